#!/bin/sh
# data.pad_to_multiple_of: the losses of padding to the full length but for rounding, with less padding, which is shown; the same
# bits in little memory and after a resume, which keeps a checkpoint's value; evaluation likewise.
set -u
build=$1
. test/cli/cli_lib.sh

# texts of 1 to 20 words, two classes; the epoch is 24 lines
awk 'BEGIN { for (i = 0; i < 24; i++) { printf "{\"text\": \"word"; for (k = 0; k < (i * 7) % 20; k++) printf i % 2 ? " good" : " bad";
             printf "\", \"label\": %d}\n", i % 2 } }' >"$work/lines.jsonl"
set -- model.n_positions=32 model.head=sequence_classification model.num_labels=2 data.train="$work/lines.jsonl" \
    bf16.enabled=false model.embd_pdrop=0 model.resid_pdrop=0 model.attn_pdrop=0 gradient_accumulation_steps=2 \
    train.steps=6 train.eval_interval=2 train.eval_steps=1

run() {
    folder=$work/$1
    shift
    expect 0 "$pstar" train "$work/tiny.json" "$@" train.output_dir="$folder"
}
losses() { sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$work/$1/metrics.jsonl"; }

run full "$@" data.pad_to_multiple_of=0
cp "$work/out" "$work/full.out"
run padded "$@" data.pad_to_multiple_of=4
[ "$(losses full | wc -l)" -eq 6 ] || fail "no losses in metrics.jsonl"
losses full >"$work/a"
losses padded >"$work/b"
paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { exit bad }' ||
    fail "losses differ: $(paste "$work/a" "$work/b")"
# tokens are those of the texts, however much is computed in addition: 6 steps of 4 rows are an epoch
tokens() { summary "$work/$1" tokens; }
padding() { summary "$work/$1" padding; }
[ "$(tokens padded)" = "$(tokens full)" ] || fail "$(tokens padded) tokens, without padding $(tokens full)"
awk -v share="$(padding full)" -v n="$(tokens full)" 'BEGIN { d = n / (24 * 32) - (1 - share); exit !(n > 0 && d < 1e-9 && d > -1e-9) }' ||
    fail "padding $(padding full) beside $(tokens full) tokens"
awk -v a="$(padding padded)" -v b="$(padding full)" 'BEGIN { exit !(a > 0 && a < b) }' || fail "padding $(padding padded), of whole rows $(padding full)"
grep -Eq '^step 6/6 .* tokens/s \([0-9.]+ % padding\) ' "$work/full.out" || fail "a step shows no share of padding"
grep -Eq '^time .* tokens/s \([0-9.]+ % padding\)$' "$work/full.out" || fail "the end shows no share of padding"
sed -n 's/.*"tokens": *\([0-9]*\).*/\1/p' "$work/full/metrics.jsonl" | awk '{ n += $1 } END { print n }' | grep -qx "$(tokens full)" ||
    fail "the tokens of metrics.jsonl are not those of the summary"
grep -q '"padding": *0\.' "$work/full/metrics.jsonl" || fail "no padding in metrics.jsonl"
# 8 is the default
run usual "$@"
run eight "$@" data.pad_to_multiple_of=8
[ "$(padding usual)" = "$(padding eight)" ] || fail "padding $(padding usual) by default, with 8 $(padding eight)"

run small "$@" data.pad_to_multiple_of=4 memory.device=7MB memory.disk=200MB
same() { [ "$(summary "$work/$1" weights_xxh3)" = "$(summary "$work/$2" weights_xxh3)" ] || fail "$1 and $2 have other weights"; }
same padded small

run halves "$@" data.pad_to_multiple_of=4 train.save_interval=3 train.steps=3
expect 0 "$pstar" train "$work/tiny.json" "$@" data.pad_to_multiple_of=4 train.save_interval=3 train.output_dir="$work/halves" --resume
same padded halves

# whatever is configured now, a checkpoint's value stays, and one of a version without the option is off
run kept "$@" data.pad_to_multiple_of=4 train.save_interval=3 train.steps=3
cp -r "$work/kept" "$work/older"
expect 0 "$pstar" train "$work/tiny.json" "$@" train.output_dir="$work/kept" --resume
says err "the checkpoint's data.pad_to_multiple_of = 4, not the default 8"
same padded kept
run off "$@" data.pad_to_multiple_of=0 train.save_interval=3 train.steps=3
expect 0 "$pstar" train "$work/tiny.json" "$@" data.pad_to_multiple_of=16 train.output_dir="$work/other" --resume="$work/off/checkpoints"
says err "the checkpoint's data.pad_to_multiple_of = 0, not the configured 16"
same full other
python3 - "$work/older/checkpoints/step-000003/state.json" <<'END' || fail "the checkpoint cannot be made an older one"
import ctypes, re, sys
text = open(sys.argv[1], "rb").read()
text = re.sub(rb'"pad_to_multiple_of": 4,\n\s*(?="shuffle")', b"", text)
assert text.count(b"pad_to_multiple_of") == 1
body = text[: text.rindex(b',\n  "state_xxh3"')]
xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
xxh3.argtypes, xxh3.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
open(sys.argv[1], "wb").write(body + b',\n  "state_xxh3": "%016x"\n}\n' % xxh3(body, len(body)))
END
expect 0 "$pstar" train "$work/tiny.json" "$@" train.output_dir="$work/older" --resume
says err "the checkpoint's data.pad_to_multiple_of = 0, not the default 8"
expect 0 "$pstar" train "$work/tiny.json" "$@" train.output_dir="$work/halves" --resume train.steps=7 data.pad_to_multiple_of=4
if grep -q pad_to_multiple_of "$work/err"; then fail "a value that is the checkpoint's is spoken of"; fi

expect 0 "$pstar" eval "$work/tiny.json" "$@" data.pad_to_multiple_of=4 train.output_dir="$work/padded" --json
of() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$work/out"; }
short=$(of)
expect 0 "$pstar" eval "$work/tiny.json" "$@" data.pad_to_multiple_of=0 train.output_dir="$work/padded" --json
awk -v a="$short" -v b="$(of)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || fail "evaluated to $short and $(of)"

# the prediction is that of the longest batch, not of the last
[ "$(summary "$work/padded" device_peak_bytes)" -le "$(summary "$work/padded" planned_device_peak_bytes)" ] ||
    fail "more than predicted: $(summary "$work/padded" device_peak_bytes)"

# language models have no padding: the option changes nothing
run plain train.steps=1 data.pad_to_multiple_of=0
run plain_option train.steps=1
[ "$(padding plain_option)" = 0.0 ] && [ "$(tokens plain_option)" -eq 32 ] || fail "padding of text: $(padding plain_option)"
same plain plain_option
