#!/bin/sh
# pstar generate: prompts and what is printed.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" train "$work/tiny.json"

# the prompt from standard input: as a word, without one newline at its end, and only one
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 20
cp "$work/out" "$work/word"
printf 'Call me' >"$work/prompt"
expect 0 "$pstar" generate "$work/tiny.json" --prompt - --tokens 20 <"$work/prompt"
cmp -s "$work/out" "$work/word" || fail "other text from standard input"
printf 'Call me\n' >"$work/prompt"
expect 0 "$pstar" generate "$work/tiny.json" --prompt=- --tokens 20 <"$work/prompt"
cmp -s "$work/out" "$work/word" || fail "a newline at the end counts"
printf 'Call me\n\n' >"$work/prompt"
expect 0 "$pstar" generate "$work/tiny.json" --prompt - --tokens 20 <"$work/prompt"
head -n 1 "$work/out" | grep -qx 'Call me' || fail "more than one newline was taken away"
printf 'a\0b' >"$work/prompt"
expect 0 "$pstar" generate "$work/tiny.json" --prompt - --tokens 1 <"$work/prompt"
[ "$(head -c 3 "$work/out" | od -An -tx1 | tr -d ' ')" = 610062 ] || fail "a zero byte in the prompt"
expect 2 "$pstar" generate "$work/tiny.json" --prompt - </dev/null
says err "--prompt is empty"
printf '\n' >"$work/prompt"
expect 2 "$pstar" generate "$work/tiny.json" --prompt - <"$work/prompt"
expect 2 "$pstar" generate "$work/tiny.json" --prompt ""

# any bytes are drawn at this temperature; what is printed is UTF-8
expect 0 "$pstar" generate "$work/tiny.json" --prompt "x" --tokens 300 --temperature 100 --top-k 0 model.n_positions=16
iconv -f UTF-8 -t UTF-8 "$work/out" >/dev/null || fail "the text is no UTF-8"

# keeping keys and values changes no token, nor does a budget; beyond sequence_length the text continues
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0 generation.use_cache=false
cp "$work/out" "$work/plain"
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0
cmp -s "$work/out" "$work/plain" || fail "other text with kept keys and values"
expect 2 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0 memory.device=500KB memory.disk=100MB
says err "keys and values of generation.max_length"
"$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0 memory.device=500KB memory.disk=100MB \
    generation.use_cache=false 2>&1 | grep -q "keys and values of" && fail "keys and values are kept with use_cache=false"
least=$(named memory.device)
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0 memory.device="$least" memory.disk=100MB
cmp -s "$work/out" "$work/plain" || fail "other text in the least memory"
expect 2 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 13 -t 0 memory.device="$(below "$least")" memory.disk=100MB
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 60 -t 0
[ "$(wc -c <"$work/out")" -gt "$(wc -c <"$work/plain")" ] || fail "no text beyond what is kept"
expect 2 "$pstar" generate "$work/tiny.json" --prompt "Call me" generation.max_length=17
says err "generation.max_length 17 exceeds model.max_position_embeddings 16"

# a prompt longer than the model: refused with both lengths, cut only when that is asked for
a16=" a a a a a a a a a a a a a a a a"
expect 2 "$pstar" generate "$work/tiny.json" --prompt " z z z z$a16"
says err "the prompt has 20 tokens, but the model accepts 16 (model.max_position_embeddings): shorten the prompt, or keep only"
says err "its last 16 tokens with --truncate-prompt"
for cache in true false; do
    expect 0 "$pstar" generate "$work/tiny.json" --prompt "$a16" --tokens 9 -t 0 generation.use_cache=$cache
    cp "$work/out" "$work/whole"
    expect 0 "$pstar" generate "$work/tiny.json" --prompt " z z z z$a16" --tokens 9 -t 0 --truncate-prompt generation.use_cache=$cache
    [ "$(cat "$work/out")" = " z z z z$(cat "$work/whole")" ] || { cat "$work/out"; fail "other text after the last 16 tokens"; }
done
expect 2 "$pstar" generate "$work/tiny.json" --prompt "$a16" generation.max_length=12
says err "has 16 tokens, but the model accepts 12 (generation.max_length): shorten the prompt, set generation.max_length, up to 16, or"
expect 2 "$pstar" generate "$work/tiny.json" --prompt "$a16" data.sequence_length=12 generation.use_cache=false
says err "accepts 12 (data.sequence_length): shorten the prompt, set data.sequence_length, up to 16, or"

# a table with more rows than the tokenizer has tokens, nearly all of them: what has no text is not drawn
expect 0 "$pstar" train "$work/tiny.json" train.steps=1 model.vocab_size=100000 train.output_dir="$work/padded"
expect 0 "$pstar" generate "$work/tiny.json" model.vocab_size=100000 --weights "$work/padded" --prompt "x" --tokens 40 \
    --temperature 100 --top-k 0
# a prompt with a token beyond the table
expect 2 "$pstar" generate "$work/tiny.json" model.vocab_size=300 --prompt "Call me"
says err "data/gpt2 has 50257 tokens, but model.vocab_size = 300"

# Samples while training, which goes on with the same bits, in files of lines; on ranks, too.
printf 'Call me\n\nThe whale, "she" said\n' >"$work/prompts.txt"
expect 0 "$pstar" train "$work/tiny.json" --overwrite train.steps=6 train.output_dir="$work/without"
expect 0 "$pstar" train "$work/tiny.json" --overwrite train.steps=6 train.output_dir="$work/samples" train.sample_prompts="$work/prompts.txt" \
    train.sample_interval=3 train.sample_tokens=5
says out "step 3 sample: Call me | "
says out 'step 6 sample: The whale, "she" said | '
[ "$(wc -l <"$work/samples/samples.jsonl")" = 4 ] || fail "samples.jsonl has other lines"
[ "$(summary "$work/without" weights_xxh3)" = "$(summary "$work/samples" weights_xxh3)" ] || fail "sampling changed the weights"
expect 3 "$pstar" train "$work/tiny.json" --overwrite train.output_dir="$work/no" train.sample_prompts="$work/none.txt"
says err "train.sample_prompts"
: >"$work/empty.txt"
expect 2 "$pstar" train "$work/tiny.json" --overwrite train.output_dir="$work/no" train.sample_prompts="$work/empty.txt"
says err "has no line with text"
