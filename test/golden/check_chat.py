#!/usr/bin/env python3
"""Conversations, and prompts with completions, as transformers makes them: ids and which of them are the assistant's.

usage: check_chat.py PSTAR WORK          in the root of the repository; WORK is an empty folder

Tokenizers are those of test/golden/tokenizers with the special tokens of each form. Templates are the public ones whose hashes
src/data/chat_template.c has; marks of "generation" are added here, and only here, to ask transformers for the assistant's tokens.
"""
import json
import os
import subprocess
import sys

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

FIRST = "{% for message in messages %}"
CHATML_TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
CHATML_END = "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must "
             "alternate user/assistant/user/assistant/...') }}{% endif %}")
LLAMA2_ANSWER = "{{ ' '  + content.strip() + ' ' + eos_token }}"
LLAMA3_TURN = ("{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
               "+ '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}")
MISTRAL_ANSWER = "{{ message['content'] + eos_token}}"


def with_default_system(text):
    return (FIRST + "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + text +
            "<|im_end|>\\n' }}{% endif %}" + CHATML_TURN + CHATML_END)


CHATML = FIRST + CHATML_TURN + CHATML_END
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
          "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
          "{% for message in loop_messages %}" + ALTERNATE + "{% if loop.index0 == 0 and system_message != false %}{% set content "
          "= '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = "
          "message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + "
          "' [/INST]' }}{% elif message['role'] == 'assistant' %}" + LLAMA2_ANSWER + "{% endif %}{% endfor %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}" + LLAMA3_TURN + "{% endfor %}{% if "
          "add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
MISTRAL = ("{{ bos_token }}" + FIRST + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
           "' [/INST]' }}{% elif message['role'] == 'assistant' %}" + MISTRAL_ANSWER + "{% else %}{{ raise_exception('Only user and "
           "assistant roles are supported!') }}{% endif %}{% endfor %}")


def marked(text):
    """The same with the assistant's words, and what ends them, between marks of generation."""
    begin, end = "{% generation %}", "{% endgeneration %}"
    text = text.replace(CHATML_TURN, "{{'<|im_start|>' + message['role'] + '\\n'}}{% if message['role'] == 'assistant' %}" + begin +
                        "{{ message['content'] + '<|im_end|>' }}" + end +
                        "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}")
    text = text.replace(LLAMA3_TURN, "{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{{ '<|start_header_id|>' + message['role'] + "
                        "'<|end_header_id|>\n\n' }}{% if message['role'] == 'assistant' %}" + begin +
                        "{{ message['content'] | trim + '<|eot_id|>' }}" + end +
                        "{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}")
    for answer in (LLAMA2_ANSWER, LLAMA2_ANSWER.replace("'  +", "' +"), MISTRAL_ANSWER):
        text = text.replace(answer, begin + answer + end)
    return text


# form, tokenizer, template, roles: all, no system first, or the last two
CASES = [("chatml", "chatml", CHATML, "all"),
         ("chatml", "chatml", with_default_system("You are a helpful assistant."), "all"),
         ("chatml", "chatml", with_default_system("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), "all"),
         ("llama2", "plain", LLAMA2, "turns"),
         ("llama2", "plain", LLAMA2.replace("' '  + content", "' ' + content"), "turns"),
         ("llama2", "inst", LLAMA2, "turns"),
         ("llama2", "llama2", LLAMA2, "turns"),
         ("llama2", "metaspace", LLAMA2, "turns"),
         ("mistral", "llama2", MISTRAL, "no system"),
         ("mistral", "metaspace", MISTRAL, "no system"),
         ("llama3", "llama3", LLAMA3, "all"),
         ("mistral", "plain", MISTRAL, "no system"),
         ("mistral", "inst", MISTRAL, "no system")]

TOKENIZERS = {  # base, special tokens beside its own, bos, eos
    "chatml": ("qwen_like", ["<|im_start|>", "<|im_end|>"], None, "<|im_end|>"),
    "llama3": ("llama_like", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|begin_of_text|>", "<|eot_id|>"),
    "plain": ("llama_like", ["<s>", "</s>"], "<s>", "</s>"),
    "llama2": ("llama2_like", [], "<s>", "</s>"),
    "metaspace": ("llama2_like", [], "<s>", "</s>"),
    "inst": ("llama_like", ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>"),
}


def system(text): return {"role": "system", "content": text}
def user(text): return {"role": "user", "content": text}
def assistant(text): return {"role": "assistant", "content": text}


CHATS = [
    [user("Who?"), assistant("Me.")],
    [system("Be brief."), user("Is it open?"), assistant("Yes, it is.")],
    [user("a"), assistant("b"), user("c"), assistant("d"), user("no answer to this one")],
    [system(" \n padded \t"), user("\u00a0 Stra\u00dfe \u2003\n"), assistant("\n\n  The whale!  \n")],
    [user(""), assistant("   "), user("  "), assistant("")],
    [system("rules"), user(""), assistant("x\x1f")],
    [user("\u65e5\u672c\u8a9e \U0001F600 e\u0301te\u0301"), assistant("l'\u00e9t\u00e9 \u0130stanbul\r\nand a line")],
    [user("1999"), assistant("123456"), user("\n\ncode:\n    return 0;\n"), assistant("```c\n    return 0;\n```\n")],
    [system("one"), user("two"), assistant("three"), user("four"), assistant("five")],
    [user("SYS"), assistant("<<SYS>> <</SYS>> is text")],
]
FREE = [[system("a"), system("b"), user("c"), user("d"), assistant("e"), assistant("f"), system("g"), assistant("h")],
        [assistant("Hello!"), user("Hi.")]]
PAIRS = [("The sky is", " blue."), ("Question:", "\nAnswer"), ("line\n", "\nline"), ("", "only this"), ("only a prompt", "")]


def write_tokenizer(folder, name):
    base, special, bos, eos = TOKENIZERS[name]
    layout = json.load(open("test/golden/tokenizers/%s.json" % base))
    if name == "metaspace":  # SentencePiece's BPE as transformers 5 writes it: a mark only at the very beginning
        layout["normalizer"] = None
        layout["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    t = Tokenizer.from_str(json.dumps(layout))
    t.add_special_tokens([AddedToken(x, normalized=False) for x in special])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos)
    fast.save_pretrained(folder)
    return fast


def pstar_sample(config, overrides, number):
    run = subprocess.run([sys.argv[1], "tokenize", "--sample", str(number), config] + overrides, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit("pstar: " + run.stdout + run.stderr)
    rows = [line for line in run.stdout.splitlines() if line[:6].strip().isdigit()]
    return [int(row[6:14]) for row in rows], [int(row[14:18].strip() == "*") for row in rows]


def compare(what, got, wanted):
    """pstar leaves out what comes after the last target: nothing learns from it."""
    (ids, mask), (wanted_ids, wanted_mask) = got, wanted
    last = max(i for i, m in enumerate(wanted_mask) if m) + 1
    if ids[:last] != wanted_ids[:last] or mask[:last] != wanted_mask[:last] or any(mask[last:]):
        sys.exit("%s:\n  pstar        %s\n  transformers %s\n  pstar        %s\n  transformers %s" %
                 (what, ids, wanted_ids, mask, wanted_mask))


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)


def chats_for(roles):
    chats = [c for c in CHATS if roles != "no system" or c[0]["role"] != "system"]
    return chats + FREE if roles == "all" else chats


def check_form(number, work, form, name, template, roles):
    """The template found by its hash, in both places and both ways to write a newline, and the form by its name."""
    folder = os.path.join(work, "t%d" % number)
    fast = write_tokenizer(folder, name)
    chats, data = chats_for(roles), os.path.join(folder, "chat.jsonl")
    write_lines(data, [{"messages": c} for c in chats])
    ways = [lambda t: t.replace("\n", "\\n"), lambda t: t.replace("\\n", "\n")]
    for way, change in enumerate(ways):
        text, marked_text = change(template), change(marked(template))
        config_path, jinja_path = os.path.join(folder, "tokenizer_config.json"), os.path.join(folder, "chat_template.jinja")
        config = json.load(open(config_path))
        config.pop("chat_template", None)
        if way == 0:
            config["chat_template"] = text
        else:
            open(jinja_path, "w").write(text + "\n")
        json.dump(config, open(config_path, "w"))
        overrides = ["data.train=" + data, "data.tokenizer=" + folder]
        if way == 1 and "loop.first and" not in text:
            overrides.append("data.chat_format=" + form)
        for i, chat in enumerate(chats):
            encoded = fast.apply_chat_template(chat, chat_template=text, tokenize=True, return_dict=True)
            ids = fast.apply_chat_template(chat, chat_template=marked_text, tokenize=True, return_dict=True,
                                           return_assistant_tokens_mask=True)
            if ids["input_ids"] != encoded["input_ids"]:
                sys.exit("%s: the marks change the ids" % form)
            mask = [int(m) for m in ids["assistant_masks"]]
            compare("%s %s %r" % (form, name, chat), pstar_sample(os.path.join(work, "tiny.json"), overrides, i),
                    (ids["input_ids"], mask))
    return len(ways) * len(chats)


def check_pairs(work):
    for name in TOKENIZERS:
        folder = os.path.join(work, "pairs-" + name)
        fast = write_tokenizer(folder, name)
        data = os.path.join(folder, "pairs.jsonl")
        write_lines(data, [{"prompt": p, "completion": c} for p, c in PAIRS])
        for i, (prompt, completion) in enumerate(PAIRS):
            both, alone = fast(prompt + completion), fast(prompt)["input_ids"]
            ids = both["input_ids"] + [fast.eos_token_id]
            n = 0
            while n < min(len(alone), len(ids)) and alone[n] == ids[n]:
                n += 1
            mask = [int(k >= n) for k in range(len(ids))]
            mask[0] = 0  # nothing predicts the first token
            got = pstar_sample(os.path.join(work, "tiny.json"), ["data.train=" + data, "data.tokenizer=" + folder], i)
            compare("%s %r" % (name, (prompt, completion)), got, (ids, mask))


def main():
    work = sys.argv[2]
    json.dump({"model": {"type": "gpt2", "n_positions": 512, "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 2048}},
              open(os.path.join(work, "tiny.json"), "w"))
    n = sum(check_form(number, work, *case) for number, case in enumerate(CASES))
    check_pairs(work)
    print("%d conversations and %d pairs: ids and targets as transformers has them" % (n, len(TOKENIZERS) * len(PAIRS)))


main()
