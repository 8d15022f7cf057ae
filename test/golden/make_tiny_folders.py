#!/usr/bin/env python3
"""Writes tiny Hugging Face model folders with the real classes, for the round trip through pstar.

usage: python3 make_tiny_folders.py DEST

Works with transformers 4.4x on PyTorch 1.13 as well as with recent versions; classes that a version lacks are left out.
"""
import os
import sys

import torch
import transformers

LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BERT = dict(vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, pad_token_id=0)
GPT2 = dict(vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)

# folder -> class, arguments of its configuration, arguments of save_pretrained
FOLDERS = {
    "gpt2": ("GPT2LMHeadModel", GPT2, {}),
    "gpt2_classifier": ("GPT2ForSequenceClassification", dict(GPT2, num_labels=3), {}),
    "llama_sharded": ("LlamaForCausalLM", dict(LLAMA, rope_theta=50000.0), {"max_shard_size": "20KB"}),
    "mistral": ("MistralForCausalLM", dict(LLAMA, sliding_window=6), {}),
    "qwen2_tied": ("Qwen2ForCausalLM", dict(LLAMA, tie_word_embeddings=True), {}),
    "qwen3": ("Qwen3ForCausalLM", dict(LLAMA, head_dim=16), {}),
    "bert_classifier": ("BertForSequenceClassification", dict(BERT, num_labels=2), {}),
    "bert_masked": ("BertForMaskedLM", BERT, {"safe_serialization": False}),  # pytorch_model.bin
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, (class_name, arguments, how) in FOLDERS.items():
        model_class = getattr(transformers, class_name, None)
        if model_class is None:
            print(f"{name}: transformers {transformers.__version__} has no {class_name}")
            continue
        torch.manual_seed(7)
        model = model_class(model_class.config_class(**arguments))
        model.save_pretrained(os.path.join(sys.argv[1], name), **how)
        if how.get("safe_serialization") is False:  # recent versions write safetensors all the same
            folder = os.path.join(sys.argv[1], name)
            if os.path.exists(os.path.join(folder, "model.safetensors")):
                os.remove(os.path.join(folder, "model.safetensors"))
                torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))
        print(f"{name}: {class_name}")


if __name__ == "__main__":
    main()
