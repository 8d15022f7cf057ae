#!/usr/bin/env python3
"""A language model with a chat template, as transformers saves it; and transformers' loss over what the assistant says.

usage: check_chat_loss.py make FOLDER             a tiny Llama that begins with random weights
       check_chat_loss.py loss FOLDER LINES.jsonl  the mean over the targets of all conversations, and their number
"""
import json
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
TEMPLATE = ("{% for message in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
            "{% endif %}")
MARKED = ("{{'<|im_start|>' + message['role'] + '\\n'}}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + "
          "'<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}")


def make(folder):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file("test/golden/tokenizers/qwen_like.json"),
                                        eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, max_position_embeddings=128)
    LlamaForCausalLM(config).save_pretrained(folder)


def loss(folder, lines):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).float(), AutoTokenizer.from_pretrained(folder)
    if tokenizer.chat_template != TEMPLATE:
        sys.exit("%s: another chat template: %r" % (folder, tokenizer.chat_template))
    total = n = 0
    for line in open(lines, encoding="utf-8"):
        e = tokenizer.apply_chat_template(json.loads(line)["messages"], chat_template=TEMPLATE.replace(TURN, MARKED), tokenize=True,
                                          return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = torch.tensor([e["input_ids"]]), torch.tensor([e["assistant_masks"]])
        labels = ids.masked_fill(mask == 0, -100)
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum"))
        n += int((labels[0, 1:] != -100).sum())
    print("%.6f %d" % (total / n, n))


{"make": make, "loss": loss}[sys.argv[1]](*sys.argv[2:])
