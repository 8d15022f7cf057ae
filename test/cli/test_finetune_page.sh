#!/bin/sh
# doc/finetune.md as its reader follows it: all its blocks of commands, in their order, in one folder. What is not as on the page: the
# download becomes a tiny model of random weights, and the first run is stopped by Ctrl-C as the page says one may. Its lines of Python are
# tried by test_transformers.sh.
set -u
build=$1
. test/cli/cli_lib.sh
. test/cli/page_lib.sh
page=doc/finetune.md reader=$work/reader

mkdir "$work/bin" "$reader"
download qwen3 "$work/downloaded"

# The data: the page's conversations, and more of them. The other forms that it shows are read as well.
block $page json 1 >"$reader/chat.jsonl"
[ "$(grep -c '^{"messages"' "$reader/chat.jsonl")" -eq 3 ] || fail "the page shows no three conversations"
cat data/chat/train.jsonl >>"$reader/chat.jsonl"

# What stands in for commands of the page.
cat >"$work/bin/hf" <<END
#!/bin/sh
[ "\$*" = "download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B" ] && cp -r "$work/downloaded" Qwen3-0.6B
END
cat >"$work/bin/pstar" <<END
#!/bin/sh
[ "\$*" = "train finetune.json" ] || exec "$pstar" "\$@"
"$pstar" "\$@" &
until [ -s runs/finetune/metrics.jsonl ] && [ "\$(grep -c loss runs/finetune/metrics.jsonl)" -ge 3 ]; do
    kill -0 \$! || exit
    sleep 0.05
done
kill -INT \$! # Ctrl-C
wait \$!
got=\$?
echo "pstar train: status \$got"
[ \$got -eq 130 ]
END
chmod +x "$work/bin/hf" "$work/bin/pstar"
PATH=$work/bin:$PATH

n=0
while block $page sh $((n + 1)) >"$work/block" && [ -s "$work/block" ]; do
    n=$((n + 1))
    (cd "$reader" && expect 0 sh -eu "$work/block") || { cat "$work/block"; fail "block $n of $page"; }
    cat "$work/out" "$work/err" >>"$work/all"
done
[ "$n" -ge 7 ] || fail "only $n blocks of commands were found: has the page changed?"
cp "$work/all" "$work/out"

# What the page shows of them, but for losses and times.
shown=0
for block in 1 3; do
    block $page "" $block | grep -v '^\.\.\.$' | sed 's/ loss [0-9].*//' >"$work/shown"
    while read -r line; do
        says out "$line"
        shown=$((shown + 1))
    done <"$work/shown"
done
[ $shown -ge 8 ] || fail "the page shows only $shown lines of what its commands print"

says out "stopped after step"
resumed=$(sed -n 's/^resumed from .* after step \([0-9]*\)$/\1/p' "$work/out")
[ "${resumed:-0}" -ge 3 ] || { cat "$work/out"; fail "resumed after step $resumed"; }
# eval before, after, and of what was exported
set -- $(sed -n 's/^loss  *\([0-9.]*\)$/\1/p' "$work/out")
echo "$n blocks, resumed after step $resumed, losses $*"
[ $# -eq 3 ] || fail "$# evaluations"
awk -v before="$1" -v after="$2" 'BEGIN { exit !(after < before - 0.01) }' || fail "the validation loss went from $1 to $2"
[ "$3" = "$2" ] || fail "exported weights have a loss of $3, those of the run $2"

# The folder has the weights that were trained, in the original's tensors.
cmp -s "$reader/finetuned/model.safetensors" "$reader/Qwen3-0.6B/model.safetensors" && fail "the weights are those of before"
expect 0 "$pstar" train "$work/qwen.json" model.from_pretrained="$reader/finetuned" train.output_dir="$work/again"
says out "optimizer.params.lr is not given: 0.001, as for training from scratch"
trained=$(summary "$reader/runs/finetune" weights_xxh3)
[ -n "$trained" ] && [ "$(summary "$work/again" weights_xxh3)" = "$trained" ] || fail "other weights are exported than were trained"
expect 0 "$pstar" inspect "$reader/finetuned"
says out "Qwen3ForCausalLM"
cmp "$reader/finetuned/generation_config.json" "$reader/Qwen3-0.6B/generation_config.json" || fail "another end of an answer"

# The page's other forms of lines, with its configuration.
block $page json 2 >"$work/forms"
[ "$(wc -l <"$work/forms")" -eq 2 ] || fail "the page shows no two other forms"
while read -r line; do
    printf '%s\n' "$line" >"$work/form.jsonl"
    (cd "$reader" && expect 0 "$pstar" tokenize --sample 0 finetune.json data.train="$work/form.jsonl") || fail "$line"
    says out '*  "3"'
done <"$work/forms"
