#!/bin/sh
# data.pad_to_multiple_of: the losses of padding to the full length but for rounding, in fewer tokens; the same bits in little
# memory and after a resume; evaluation likewise.
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

run full "$@"
run padded "$@" data.pad_to_multiple_of=4
[ "$(losses full | wc -l)" -eq 6 ] || fail "no losses in metrics.jsonl"
losses full >"$work/a"
losses padded >"$work/b"
paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { exit bad }' ||
    fail "losses differ: $(paste "$work/a" "$work/b")"
tokens() { summary "$work/$1" tokens; }
[ "$(tokens padded)" -lt "$(tokens full)" ] || fail "$(tokens padded) tokens, without padding less $(tokens full)"

run small "$@" data.pad_to_multiple_of=4 memory.device=7MB memory.disk=200MB
same() { [ "$(summary "$work/$1" weights_xxh3)" = "$(summary "$work/$2" weights_xxh3)" ] || fail "$1 and $2 have other weights"; }
same padded small

run halves "$@" data.pad_to_multiple_of=4 train.save_interval=3 train.steps=3
expect 0 "$pstar" train "$work/tiny.json" "$@" data.pad_to_multiple_of=4 train.save_interval=3 train.output_dir="$work/halves" --resume
same padded halves

expect 0 "$pstar" eval "$work/tiny.json" "$@" data.pad_to_multiple_of=4 train.output_dir="$work/padded" --json
of() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$work/out"; }
short=$(of)
expect 0 "$pstar" eval "$work/tiny.json" "$@" train.output_dir="$work/padded" --json
awk -v a="$short" -v b="$(of)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || fail "evaluated to $short and $(of)"

# the prediction is that of the longest batch, not of the last
[ "$(summary "$work/padded" device_peak_bytes)" -le "$(summary "$work/padded" planned_device_peak_bytes)" ] ||
    fail "more than predicted: $(summary "$work/padded" device_peak_bytes)"

# language models have no padding: the option changes nothing
run plain train.steps=1
run plain_option train.steps=1 data.pad_to_multiple_of=8
same plain plain_option
