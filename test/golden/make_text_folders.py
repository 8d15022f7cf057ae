#!/usr/bin/env python3
"""Writes tiny Hugging Face model folders with a tokenizer, and data to train them on, with transformers' own classes.

usage: python3 make_text_folders.py DEST

DEST/bert_labels/   a BERT classifier whose id2label is not in byte order
DEST/bert_base/     the same without a head
DEST/gpt2_base/     a GPT-2 language model with a padding token, to get a new head
DEST/more_tokens/   its tokenizer, alone, with two tokens more
DEST/*.jsonl        lines with a text and a label, as the scripts that use them say
Weights are random. Needs torch, tokenizers and transformers, of version 4.47 or later.
"""
import json
import os
import random
import sys

import tokenizers
import torch
import transformers

WORDS = "the film was it is a very so quite story plot acting good great fine nice lovely bad awful poor dull weak".split()
GOOD, BAD = WORDS[12:17], WORDS[17:22]


def bert_tokenizer():
    """Whole words, as BERT's files have them."""
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS)}
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    t.normalizer = tokenizers.normalizers.BertNormalizer()
    t.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    t.decoder = tokenizers.decoders.WordPiece()
    t.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                                sep_token="[SEP]", mask_token="[MASK]", model_max_length=32)


def bytes_tokenizer():
    """Single bytes, as GPT-2 has them, and two special tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    t = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>", "<|pad|>"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=t, eos_token="<|endoftext|>", bos_token="<|endoftext|>", pad_token="<|pad|>", model_max_length=64,
        chat_template="{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}")


def write_bert(folder, tokenizer):
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, id2label={0: "positive", 1: "negative"}, label2id={"positive": 0, "negative": 1})
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_bert_base(folder, tokenizer):
    config = transformers.BertConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                     num_attention_heads=2, max_position_embeddings=32)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_gpt2(folder, tokenizer):
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=1, n_head=2,
                                     bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_more_tokens(folder, tokenizer):
    """The same tokenizer, when two tokens were added to it."""
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)


def write_reviews(path, n, seed):
    r = random.Random(seed)
    with open(path, "w", encoding="utf-8") as f:
        for i in range(n):
            words = r.sample(WORDS[:12], 4) + [r.choice((GOOD, BAD)[i % 2])]
            f.write(json.dumps({"text": " ".join(words), "label": ("positive", "negative")[i % 2]}) + "\n")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(3)
    dest = sys.argv[1]
    os.makedirs(dest, exist_ok=True)
    write_bert(os.path.join(dest, "bert_labels"), bert_tokenizer())
    write_gpt2(os.path.join(dest, "gpt2_base"), bytes_tokenizer())
    write_bert_base(os.path.join(dest, "bert_base"), bert_tokenizer())
    write_more_tokens(os.path.join(dest, "more_tokens"), bytes_tokenizer())
    write_reviews(os.path.join(dest, "reviews.jsonl"), 200, 1)
    write_reviews(os.path.join(dest, "unseen.jsonl"), 40, 2)


if __name__ == "__main__":
    main()
