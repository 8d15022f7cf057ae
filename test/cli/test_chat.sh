#!/bin/sh
# Instruction tuning as a user does it: examples/chat.json in small; what is to be predicted, resuming within an epoch, little memory,
# evaluation; what is refused, and with which way out.
set -u
build=$1
. test/cli/cli_lib.sh

same() { [ "$(summary "$work/$1" weights_xxh3)" = "$(summary "$work/$2" weights_xxh3)" ] || fail "$1 and $2 have other weights"; }
# What a small run is made of; 40 steps of 3 lines.
set -- model.n_embd=32 model.n_layer=1 train_micro_batch_size_per_gpu=3 scheduler.params.total_num_steps=40 memory.disk_path="$work"
small() {
    name=$1
    shift
    expect 0 "$pstar" train examples/chat.json train.output_dir="$work/$name" train.steps=40 "$@"
}

small whole "$@"
says out "data/chat/train.jsonl: 80 lines in the form chatml, 4098 tokens, 33 % of them to be predicted"
says out "data/chat/validation.jsonl: 20 lines in the form chatml"
losses=$(sed -n 's/^trained .*; loss \([0-9.]*\) -> \([0-9.]*\)$/\1 \2/p' "$work/out")
echo "$losses" | awk '{ exit !($1 > 7 && $2 < 5) }' || fail "the loss went $losses"

# 80 lines, 3 a step: step 20 is within an epoch, and the next one begins with it
small halves "$@" train.steps=20 train.save_interval=20
expect 0 "$pstar" train examples/chat.json "$@" train.steps=40 train.save_interval=20 train.output_dir="$work/halves" --resume
says out "after step 20"
same whole halves
small little "$@" memory.device=6500000 memory.disk=20MB
same whole little
# whole rows, and all gradients of a step one after the other, differ by rounding alone
at_step_2() { sed -n 's/^step 2\/2 loss \([0-9.]*\) .*/\1/p' "$work/$1.out"; }
for name in padded ragged; do
    small $name "$@" data.pad_to_multiple_of="$([ $name = padded ] && echo 0 || echo 8)" train.steps=2 train.log_interval=1
    cp "$work/out" "$work/$name.out"
done
awk -v a="$(at_step_2 padded)" -v b="$(at_step_2 ragged)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-3 && d > -1e-3) }' ||
    fail "losses of step 2: $(at_step_2 padded) and $(at_step_2 ragged)"
# another choice of targets of the same tokens is other data
sed 's/"role": "assistant"/"role": "user"/' data/chat/train.jsonl >"$work/other.jsonl"
expect 2 "$pstar" train examples/chat.json "$@" train.steps=60 train.save_interval=20 train.output_dir="$work/halves" --resume data.train="$work/other.jsonl"

# the loss is over what the assistant says: 311 tokens in 20 conversations
expect 0 "$pstar" eval examples/chat.json "$@" train.output_dir="$work/whole" --json
says out '"samples": 20, "targets": 311,'
grep -o '"targets": *[0-9]*' "$work/out"

# what is trained on, token by token
expect 0 "$pstar" tokenize --sample 1 examples/chat.json
says out "sample 1 of 80, line 2; * is to be predicted"
awk '/im_start/ { turns++ } / \*  / { if (turns < 2) exit 1; n++ } END { exit !(n > 3) }' "$work/out" || fail "the user's words are targets"
grep -q '2002  \*  "<|im_end|>"' "$work/out" || fail "the end of the answer is no target"
expect 2 "$pstar" tokenize --sample 80 examples/chat.json
says err "sample 80, but it has 80, numbered from 0"
expect 0 "$pstar" tokenize --sample 3 "$work/tiny.json" # text, too
[ "$(grep -c ' \*  ' "$work/out")" -eq 16 ] || fail "text has other targets than all its tokens"

# an answer: without the question, and up to its end; what spells a special token forges none
small taught "$@" train.steps=150 scheduler.params.total_num_steps=150 model.n_embd=64 train_micro_batch_size_per_gpu=8
ask() { expect 0 "$pstar" generate examples/chat.json "$@" model.n_embd=64 train.output_dir="$work/taught" --chat --temperature 0 --tokens 40; }
ask "$@" --prompt "What is four plus four?"
cat "$work/out"
grep -Eq '^[A-Z][a-z]* plus [a-z]* is [a-z]*\.$' "$work/out" || fail "no whole answer, or more than that"
ask "$@" --prompt '<|im_end|>'
# a question longer than the model
long=$(i=0; while [ $i -lt 100 ]; do printf 'four plus '; i=$((i + 1)); done)
expect 2 "$pstar" generate examples/chat.json "$@" model.n_embd=64 train.output_dir="$work/taught" --chat --prompt "$long"
says err "tokens, but the model accepts 96 (model.max_position_embeddings)"
ask "$@" --prompt "$long" --truncate-prompt
printf 'What is \377?' >"$work/bytes"
expect 2 "$pstar" generate examples/chat.json "$@" model.n_embd=64 train.output_dir="$work/taught" --chat --prompt - <"$work/bytes"
says err "the prompt is no UTF-8 from byte 8 on"
expect 0 "$pstar" train "$work/tiny.json" train.steps=1
expect 2 "$pstar" generate "$work/tiny.json" --chat --prompt a
says err "the tokenizer has no chat template; set data.chat_format"

# prompts and completions through GPT-2's vocabulary; long lines are cut, those without a target left out
cat >"$work/pairs.jsonl" <<END
{"prompt": "The sky is", "completion": " blue."}
{"prompt": "This prompt is by far too long for sixteen tokens, and so there is no room for what would follow it:", "completion": " x"}
{"prompt": "Count:", "completion": " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"}
END
expect 0 "$pstar" train "$work/tiny.json" data.train="$work/pairs.jsonl" data.validation_split=0 train.steps=2 --overwrite
says out "pairs.jsonl: 3 lines, 23 tokens, 78 % of them to be predicted; 2 cut to the sequence length; 1 left out, nothing to predict"
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" data.train="$work/pairs.jsonl"
says out '3    4171  *  " blue"'

# Alpaca's and ShareGPT's lines as they come; a model that has no form of conversations learns Alpaca's own
printf '{"instruction": "Add.", "input": "1 and 2", "output": "3"}\n{"instruction": "Go.", "input": "", "output": "I go."}\n' >"$work/alpaca.jsonl"
printf '{"conversations": [{"from": "human", "value": "Add."}, {"from": "gpt", "value": "3"}]}\n' >"$work/sharegpt.jsonl"
expect 0 "$pstar" tokenize --sample 1 examples/chat.json data.train="$work/alpaca.jsonl"
[ "$(sed -n 's/.*  \*  "\(.*\)"$/\1/p' "$work/out" | tr -d '\n')" = "I go.<|im_end|>" ] || { cat "$work/out"; fail "other targets than the output"; }
expect 0 "$pstar" tokenize --sample 0 examples/chat.json data.train="$work/sharegpt.jsonl"
[ "$(sed -n 's/.*  \*  "\(.*\)"$/\1/p' "$work/out" | tr -d '\n')" = "3<|im_end|>" ] || { cat "$work/out"; fail "other targets than gpt's"; }
expect 0 "$pstar" train "$work/tiny.json" data.train="$work/alpaca.jsonl" data.validation_split=0 train.steps=1 model.n_positions=64 train.output_dir="$work/alpaca"
says out "alpaca.jsonl: 2 lines in the form alpaca, "

# refused, with a way out
refused() {
    text=$1
    shift
    expect 2 "$pstar" train "$@" train.steps=1
    says err "$text"
}
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}\n' >"$work/tool.jsonl"
refused 'tool.jsonl: line 1, offset 0: messages[1]: role "tool" is not supported' examples/chat.json data.train="$work/tool.jsonl"
refused "the tokenizer has no chat template; set data.chat_format" examples/chat.json data.chat_format=auto
refused "data.chat_format = llama3 needs the added token <|start_header_id|>" examples/chat.json data.chat_format=llama3
printf '{"instruction": "a", "response": "b"}\n' >"$work/near.jsonl"
refused '"instruction" and "output"; found "instruction", "response".' examples/chat.json data.train="$work/near.jsonl"
refused 'expected the key "text", or "conversation"' examples/chat.json data.train=data/chat/train.jsonl data.messages_key=conversation
mkdir "$work/folder"
cp test/golden/tokenizers/qwen_like.json "$work/folder/tokenizer.json"
echo '{{ messages }}' >"$work/folder/chat_template.jinja"
refused "chat_template.jinja: the chat template (xxh3 " examples/chat.json data.tokenizer="$work/folder" data.chat_format=auto
expect 0 "$pstar" train examples/chat.json model.n_embd=32 model.n_layer=1 data.tokenizer="$work/folder" train.steps=1 \
    train.output_dir="$work/named"

# options that a model of another kind does not read
refused "data.labels has no effect with model.head causal_lm" "$work/tiny.json" data.labels=no,yes
refused "data.mlm_probability has no effect with model.head causal_lm" "$work/tiny.json" data.mlm_probability=0.3
refused "data.chat_format has no effect with model.head sequence_classification" "$work/tiny.json" \
    model.head=sequence_classification data.chat_format=chatml
