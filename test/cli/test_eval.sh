#!/bin/sh
# pstar eval: the same numbers whatever the batch size; as in training; all three heads; what cannot be evaluated is refused.
set -u
build=$1
. test/cli/cli_lib.sh

# value KEY: of the JSON line in $work/out
value() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$work/out"; }

# near A B: equal but for the last digits, because sums are rounded in another order
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d <= 1e-10 * a * a) }'; }

head -c 30000 "$root/data/text/moby-dick.txt" >"$work/text.txt"
text="data.train=$work/text.txt data.validation_split=0.2 bf16.enabled=false"
expect 0 "$pstar" train --overwrite "$work/tiny.json" $text train.eval_interval=4 train.eval_steps=1000
trained=$(sed -n 's/.*validation loss *\([0-9.]*\).*/\1/p' "$work/out" | tail -n 1)
expect 0 "$pstar" eval "$work/tiny.json" $text
says out "perplexity"
expect 0 "$pstar" eval "$work/tiny.json" $text --json
loss=$(value loss)
targets=$(value targets)
[ $((targets % 16)) -eq 0 ] || fail "$targets targets"
# training prints four digits
awk -v a="$loss" -v b="$trained" 'BEGIN { d = a - b; exit !(b != "" && d * d <= 2.6e-9) }' ||
    fail "loss $loss, in training $trained"
near "$(value perplexity)" "$(awk -v l="$loss" 'BEGIN { printf "%.12g", exp(l) }')" || fail "perplexity $(value perplexity)"
for batch in 1 3 7; do
    expect 0 "$pstar" eval "$work/tiny.json" $text --json train_micro_batch_size_per_gpu=$batch
    near "$(value loss)" "$loss" || fail "loss $(value loss) with batch $batch, else $loss"
    [ "$(value targets)" = "$targets" ] || fail "$(value targets) targets with batch $batch, else $targets"
done
expect 0 "$pstar" eval "$work/tiny.json" $text --json --steps 2
[ "$(value targets)" = 64 ] || fail "$(value targets) targets in 2 micro-batches"
expect 0 "$pstar" eval "$work/tiny.json" $text --split train --steps 1
says out "train "
expect 2 "$pstar" eval "$work/tiny.json" $text --split test
expect 2 "$pstar" eval "$work/tiny.json" data.train="$work/text.txt" data.validation_split=0
says err "--split train"
expect 3 "$pstar" eval "$work/tiny.json" $text --weights "$work/nothing.safetensors"

# what only training asks for refuses nothing: a batch that the micro-batch does not divide, evaluations without data for them, updates
# that the clipping forbids, training data that are not there; what is wrong for both still is
expect 0 "$pstar" eval "$work/tiny.json" $text --json train_batch_size=64 train_micro_batch_size_per_gpu=3
near "$(value loss)" "$loss" || fail "loss $(value loss) with train_batch_size, else $loss"
expect 0 "$pstar" eval "$work/tiny.json" $text data.validation_split=0 train.eval_interval=3 --split train --steps 1
expect 0 "$pstar" eval "$work/tiny.json" $text --steps 1 memory.update_in_backward=always gradient_clipping=1
for train in "$work/gone.txt" null; do
    expect 0 "$pstar" eval "$work/tiny.json" data.train="$train" data.validation="$work/text.txt" data.validation_split=0
done
expect 3 "$pstar" eval "$work/tiny.json" data.train="$work/gone.txt"
expect 2 "$pstar" eval "$work/tiny.json" $text train_batch_size=64 train_micro_batch_size_per_gpu=3 model.n_head=5
says err "n_head"

# a classifier of lines: which word the text repeats
i=0
while [ $i -lt 60 ]; do
    echo "{\"text\": \"good good good\", \"label\": \"plus\"}"
    echo "{\"text\": \"bad bad\", \"label\": \"minus\"}"
    i=$((i + 1))
done >"$work/lines.jsonl"
lines="data.train=$work/lines.jsonl data.validation_split=0.25 model.head=sequence_classification"
expect 0 "$pstar" train --overwrite "$work/tiny.json" $lines train.steps=30 train.output_dir="$work/class"
expect 0 "$pstar" eval "$work/tiny.json" $lines train.output_dir="$work/class" --json train_micro_batch_size_per_gpu=4
[ "$(value samples)" = 30 ] || fail "$(value samples) samples"
[ "$(value correct)" = 30 ] || fail "$(value correct) of 30 correct"
[ -z "$(value perplexity)" ] || fail "a classifier has no perplexity"

# tokens hidden from a model: as many as asked for
masked="model.type=bert model.head=masked_lm data.train=$work/text.txt data.tokenizer=$root/test/golden/tokenizers/bert_like.json"
masked="$masked bf16.enabled=false train.output_dir=$work/masked"
expect 0 "$pstar" train --overwrite "$work/tiny.json" $masked train.steps=1
share() {
    expect 0 "$pstar" eval "$work/tiny.json" $masked --json data.mlm_probability="$1"
    awk -v n="$(value targets)" -v all=$((16 * $(value samples))) 'BEGIN { print n / all }'
}
awk -v few="$(share 0.15)" -v many="$(share 0.6)" 'BEGIN { exit !(few > 0.1 && few < 0.2 && many > 0.4 && many < 0.7) }' ||
    fail "a share of $(share 0.15) with mlm_probability 0.15, of $(share 0.6) with 0.6"
sed '7s/"label": "plus"/"lable": 1/' "$work/lines.jsonl" >"$work/bad.jsonl"
expect 2 "$pstar" train --overwrite "$work/tiny.json" $lines data.train="$work/bad.jsonl"
says err "bad.jsonl: line 7, offset"
