#!/bin/sh
# Text to tokens and back; token files as training data.
set -u
build=$1
. test/cli/cli_lib.sh

head -c 20000 "$root/data/text/moby-dick.txt" >"$work/a.txt"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output "$work/a.bin" "$work/a.txt"
says out "tokens"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --decode "$work/a.bin"
cmp -s "$work/out" "$work/a.txt" || fail "decoding does not give the text back"
printf 'Hello world' >"$work/b.txt"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output "$work/b.bin" "$work/b.txt" "$work/b.txt"
says out "b.bin: 5 tokens"
expect 0 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/a.bin" train.steps=1
expect 2 "$pstar" tokenize --vocab "$root/data/gpt2" "$work/a.txt"
expect 3 "$pstar" tokenize --vocab "$work" --output "$work/c.bin" "$work/a.txt"
head -c 1000 "$work/a.bin" >"$work/cut.bin"
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/cut.bin" train.steps=1
says err "cut.bin"

# any tokenizer: a tokenizer.json, a folder with one, a vocab.txt
for t in qwen_like llama_like llama2_like; do
    expect 0 "$pstar" tokenize --vocab "$root/test/golden/tokenizers/$t.json" --output "$work/t.bin" "$work/a.txt"
    says out "MB/s"
    expect 0 "$pstar" tokenize --vocab "$root/test/golden/tokenizers/$t.json" --decode "$work/t.bin"
    cmp -s "$work/out" "$work/a.txt" || fail "$t: decoding does not give the text back"
done
mkdir "$work/bert" "$work/words"
cp "$root/test/golden/tokenizers/bert_like.json" "$work/bert/tokenizer.json"
printf 'The whale!' >"$work/c.txt"
expect 0 "$pstar" tokenize --vocab "$work/bert" --output "$work/c.bin" "$work/c.txt"
expect 0 "$pstar" tokenize --vocab "$work/bert" --decode "$work/c.bin"
says out "the whale!"
printf '[UNK]\n[CLS]\n[SEP]\nthe\nwh\n##ale\n!\n' >"$work/words/vocab.txt"
expect 0 "$pstar" tokenize --vocab "$work/words" --output "$work/c.bin" "$work/c.txt"
says out "c.bin: 4 tokens"
expect 0 "$pstar" tokenize --vocab "$work/words/vocab.txt" --decode "$work/c.bin"
says out "the whale!"

# a long text is decoded in parts: 65536 tokens end before " wh", 131072 before "##ale"
yes 'the whale' | head -n 50000 >"$work/long.txt"
expect 0 "$pstar" tokenize --vocab "$work/words" --output "$work/c.bin" "$work/long.txt"
says out "c.bin: 150000 tokens"
expect 0 "$pstar" tokenize --vocab "$work/words" --decode "$work/c.bin"
printf '%s' "$(tr '\n' ' ' <"$work/long.txt" | sed 's/ $//')" | cmp - "$work/out" || fail "a long text is decoded wrongly"

# what reads like a special token is text, unless asked for
printf '<|im_end|>' >"$work/d.txt"
expect 0 "$pstar" tokenize --special --vocab "$root/test/golden/tokenizers/qwen_like.json" --output "$work/d.bin" "$work/d.txt"
says out "d.bin: 1 tokens"
expect 0 "$pstar" tokenize --vocab "$root/test/golden/tokenizers/qwen_like.json" --output "$work/d.bin" "$work/d.txt"
grep -q "d.bin: 1 tokens" "$work/out" && fail "a special token without --special"

# so it is in training data: 12 special tokens are too short for a window of 16, 84 tokens of text are not
printf '<|endoftext|>%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 >"$work/spelt.txt"
expect 0 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/spelt.txt" train.steps=1 train.output_dir="$work/spelt"
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/spelt.txt" train.steps=1 train.output_dir="$work/spelt" \
    data.added_tokens=true
says err "spelt.txt: 12 tokens, but"

printf '{"model": {"type": "Unigram", "vocab": []}}' >"$work/unigram.json"
expect 2 "$pstar" tokenize --vocab "$work/unigram.json" --output "$work/d.bin" "$work/d.txt"
says err "unigram.json: model Unigram is not supported"

# SentencePiece's BPE trains, and what follows the prompt token by token has its spaces: the text begins as it was given
llama2=$root/test/golden/tokenizers/llama2_like.json
expect 0 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/a.txt" data.tokenizer="$llama2" model.vocab_size=2000 train.steps=1 \
    train.output_dir="$work/llama2"
expect 0 "$pstar" generate "$work/tiny.json" data.tokenizer="$llama2" model.vocab_size=2000 --weights "$work/llama2" --tokens 5 \
    --temperature 0 --prompt "the captain of  the whale"
grep -q "^the captain of  the whale" "$work/out" || { cat "$work/out"; fail "the prompt is not what was given"; }

# what is missing is what is named
mkdir "$work/model_only" "$work/nothing"
printf '\n\016<unk>' >"$work/model_only/tokenizer.model"
for path in "$work/model_only" "$work/model_only/tokenizer.model"; do
    expect 2 "$pstar" tokenize --vocab "$path" --output "$work/d.bin" "$work/d.txt"
    says err "tokenizer.model: a binary model of SentencePiece, which is not read; transformers turns it into"
done
expect 3 "$pstar" tokenize --vocab "$work/nothing" --output "$work/d.bin" "$work/d.txt"
says err "$work/nothing: no tokenizer is there; expected a folder with a tokenizer.json,"
expect 3 "$pstar" tokenize --vocab "$work/no_such" --output "$work/d.bin" "$work/d.txt"
says err "$work/no_such: no such file or folder"
: >"$work/empty.txt"
expect 2 "$pstar" tokenize --vocab "$root/data/gpt2" --output "$work/d.bin" "$work/empty.txt"
says err "empty.txt: no text, so there are no tokens to write"
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/empty.txt" train.steps=1
says err "empty.txt: offset 0: the text is empty"
for name in no_such.txt no_such.jsonl no_such.bin; do
    expect 3 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/$name" data.tokenizer= train.steps=1
    says err "$name: cannot open: No such file or directory"
done
expect 3 "$pstar" train --overwrite "$work/tiny.json" data.validation="$work/no_such.txt" data.validation_split=0 data.tokenizer=
says err "no_such.txt: cannot open: No such file or directory"

# files of tokens need no tokenizer: one that cannot be read is no matter then
expect 0 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/a.bin" data.tokenizer="$work/unigram.json" train.steps=1 \
    train.output_dir="$work/run_ids"
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/a.txt" data.tokenizer="$work/unigram.json" train.steps=1
says err "model Unigram is not supported"

# what is given together with --sample would have no effect
for option in --decode --special --vocab=/proc/nonexistent --output=/proc/nonexistent; do
    expect 2 "$pstar" tokenize --sample 0 $option "$work/tiny.json"
    says err "has no effect with --sample"
done

# the texts and the label of a sample are at the keys that are said
printf '{"text": "the", "text_pair": "whale", "other": "the whale", "label": 0, "kind": 1}\n%.0s' 1 2 >"$work/pairs.jsonl"
pairs="data.tokenizer=$work/words data.train=$work/pairs.jsonl model.head=sequence_classification"
sample() {
    expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" $pairs "$3"
    [ "$(grep -c '"$' "$work/out")" = "$1" ] || fail "not the $1 tokens of a pair with $3"
    says out "label $2"
}
sample 6 0 data.text_pair_key=text_pair
sample 7 0 data.text_pair_key=other
sample 8 0 data.text_key=other
sample 6 1 data.label_key=kind

# a line that may be read as messages, which is found first, or as a prompt with its completion
printf '{"prompt": "the", "completion": "whale", "messages": [{"role": "user", "content": "the"}], "q": "whale", "a": "the"}\n' >"$work/both.jsonl"
both="data.train=$work/both.jsonl data.validation_split=0 data.tokenizer=$root/test/golden/tokenizers/qwen_like.json"
expect 2 "$pstar" tokenize --sample 0 "$work/tiny.json" $both
says err "the tokenizer has no chat template"
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" $both data.jsonl_form=prompt_completion
says out '*  "whale"'
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" $both data.jsonl_form=prompt_completion data.prompt_key=q
says out '   "whale"'
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" $both data.jsonl_form=prompt_completion data.completion_key=a
says out '*  "the"'

# a model's folder whose only tokenizer is a binary model of SentencePiece, by each of its names
mkdir "$work/base"
printf '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}' \
    >"$work/base/config.json"
printf '{"data": {"train": "%s"}}' "$work/a.txt" >"$work/base.json"
for name in tokenizer.model spiece.model sentencepiece.bpe.model; do
    printf '\n\016<unk>' >"$work/base/$name"
    expect 2 "$pstar" tokenize --sample 0 "$work/base.json" model.from_pretrained="$work/base"
    says err "$name: a binary model of SentencePiece, which is not read"
    rm "$work/base/$name"
done
