#!/bin/sh
# pstar export writes the chat template of the form that was trained: for each form the template, rendered as transformers does, makes the
# text that was learnt. A template of another form is replaced, and said so; one that is the same stays; a similar one is reported.
set -u
build=$1
. test/cli/cli_lib.sh
python3 -c 'import jinja2.sandbox' 2>/dev/null || skip "no jinja2 for python3"

# llama_like.json with the tokens of all forms, in a folder; without what it puts in front of texts
mkdir "$work/tokenizer" "$work/bare"
python3 - "$work" <<'END' || fail "no tokenizer"
import json, sys
root = json.load(open("test/golden/tokenizers/llama_like.json"))
for i, token in enumerate(["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]):
    root["added_tokens"].append({"id": 2002 + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": False, "special": True})
named = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
for folder in "tokenizer", "bare":
    json.dump(root, open(f"{sys.argv[1]}/{folder}/tokenizer.json", "w"))
    json.dump(named, open(f"{sys.argv[1]}/{folder}/tokenizer_config.json", "w"))
    root["post_processor"] = None
END
cat >"$work/render.py" <<'END'
"""render.py FOLDER SAMPLE: does the folder's template make the tokens that pstar tokenize printed? With a question alone, too."""
import json, re, sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
messages = json.loads(open(sys.argv[3]).readline())["messages"]
def refuse(text):
    raise ValueError(text)
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
env.globals["raise_exception"] = refuse
template = env.from_string(open(sys.argv[1] + "/chat_template.jinja").read())
def render(messages, asks):
    return template.render(messages=messages, add_generation_prompt=asks, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")
trained, asked = "", None
for line in open(sys.argv[2]):
    token = re.match(r'^ *\d+ +\d+  ([ *])  "(.*)"$', line)
    if token:
        asked = trained if token[1] == "*" and not asked_ended else asked
        asked_ended = token[1] == "*"
        trained += token[2].replace("\\n", "\n").replace('\\"', '"')
    else:
        asked_ended = False
# a row ends with its last target: the newline of ChatML after it is not shown
assert render(messages, False) in (trained, trained + "\n"), (render(messages, False), trained)
assert render(messages[:-1], True) == asked, (render(messages[:-1], True), asked)
END
sed "s,\"tokenizer\": [^}]*,\"tokenizer\": \"$work/tokenizer\"," "$work/tiny.json" >"$work/chat.json"
grep -q "$work/tokenizer" "$work/chat.json" || fail "the configuration has another tokenizer"

# try FORM LINES TOKENIZER: train, export, compare
try() {
    rm -rf "$work/run" "$work/hf"
    set -- "$1" "$2" "$3" data.train="$2" data.tokenizer="$3" data.chat_format="$1" data.validation_split=0 model.n_positions=128
    expect 0 "$pstar" tokenize --sample 0 "$work/chat.json" "$4" "$5" "$6" "$7" "$8"
    cp "$work/out" "$work/sample"
    expect 0 "$pstar" train "$work/chat.json" "$4" "$5" "$6" "$7" "$8" train.steps=1
    expect 0 "$pstar" export "$work/run" "$work/hf"
    if [ -s "$work/hf/chat_template.jinja" ]; then
        python3 "$work/render.py" "$work/hf" "$work/sample" "$2" || fail "the template of $1 makes another text"
    fi
}
turns='{"role": "user", "content": "Is it \"open\"?"}, {"role": "assistant", "content": "Until six."}, {"role": "user", "content": " And then? "}, {"role": "assistant", "content": "No."}'
echo "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, $turns]}" >"$work/system.jsonl"
echo "{\"messages\": [$turns]}" >"$work/turns.jsonl"
for form in chatml llama2 llama3 mistral alpaca; do
    for lines in system turns; do
        [ $form-$lines != mistral-system ] || continue
        try $form "$work/$lines.jsonl" "$work/tokenizer"
        says out "chat_template.jinja: the form $form"
        # and it is known when it is read again
        expect 0 "$pstar" tokenize --sample 0 "$work/chat.json" data.train="$work/$lines.jsonl" data.tokenizer="$work/hf" model.n_positions=128
        cmp -s "$work/out" "$work/sample" || fail "$form by its template is another text"
    done
done
try alpaca "$work/turns.jsonl" "$work/bare"
if grep -q bos_token "$work/hf/chat_template.jinja"; then fail "a bos token where the tokenizer puts none"; fi

# lines of Alpaca decide the form, and generate knows it from the weights
echo '{"instruction": "Add.", "input": "1 and 2", "output": "3"}' >"$work/alpaca.jsonl"
rm -rf "$work/run" "$work/hf"
set -- data.train="$work/alpaca.jsonl" data.validation_split=0 model.n_positions=128
expect 0 "$pstar" train "$work/chat.json" "$@" train.steps=1
expect 0 "$pstar" export "$work/run" "$work/hf"
says out "chat_template.jinja: the form alpaca"
expect 0 "$pstar" generate "$work/chat.json" "$@" --chat --prompt "Add." --tokens 1

# another template: replaced, with a word; the same: copied, without one; one that looks alike: copied, with a word
cp "$work/hf/chat_template.jinja" "$work/tokenizer/"
try chatml "$work/turns.jsonl" "$work/tokenizer"
says err "tokenizer/chat_template.jinja is not the form that was trained, data.chat_format = chatml"
cp "$work/hf/chat_template.jinja" "$work/tokenizer/"
try chatml "$work/turns.jsonl" "$work/tokenizer"
[ ! -s "$work/err" ] || { cat "$work/err"; fail "a template that is the same is spoken of"; }
cmp "$work/hf/chat_template.jinja" "$work/tokenizer/chat_template.jinja" || fail "not copied"
sed -i "s/'<|im_start|>' + /'<|im_start|>' ~ /" "$work/tokenizer/chat_template.jinja"
expect 2 "$pstar" tokenize --sample 0 "$work/chat.json" data.train="$work/turns.jsonl" model.n_positions=128
says err "it looks like ChatML: set data.chat_format=chatml"
try chatml "$work/turns.jsonl" "$work/tokenizer"
says err "looks like it and is copied, but is none of the known ones"
cmp "$work/hf/chat_template.jinja" "$work/tokenizer/chat_template.jinja" || fail "not copied"
