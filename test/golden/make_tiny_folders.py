#!/usr/bin/env python3
"""Writes tiny Hugging Face model folders with transformers' own classes, to be loaded, exported and compared.

usage: python3 make_tiny_folders.py DEST

DEST/<name>/ gets config.json and the weights, random ones: model.safetensors, and in some folders another form that
models are published in (FOLDERS below). check_roundtrip.py compares such folders. Needs torch and transformers, of version 4.47
or later; models that this version does not have are left out, and said so.
"""
import json
import os
import sys

import torch
import transformers

LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
GPT2 = dict(vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BERT = dict(vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, pad_token_id=0)
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.25}

SAFETENSORS, SHARDED, BIN, BIN_SHARDED, BF16 = "safetensors", "sharded", "bin", "bin, sharded", "bf16"
# name -> family and end of the class, arguments of its configuration, form of the weights
FOLDERS = {
    "gpt2": ("GPT2", "LMHeadModel", GPT2, SAFETENSORS),
    "gpt2_bin": ("GPT2", "LMHeadModel", GPT2, BIN),
    "gpt2_pytorch_tanh": ("GPT2", "LMHeadModel", dict(GPT2, activation_function="gelu_pytorch_tanh"), SAFETENSORS),
    "gpt2_cls": ("GPT2", "ForSequenceClassification", dict(GPT2, num_labels=3), SAFETENSORS),
    "llama": ("Llama", "ForCausalLM", dict(LLAMA, rope_theta=50000.0, rope_scaling=LLAMA3), SAFETENSORS),
    "llama_sharded": ("Llama", "ForCausalLM", dict(LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), SHARDED),
    "llama_bf16": ("Llama", "ForCausalLM", dict(LLAMA, head_dim=16), BF16),
    "mistral": ("Mistral", "ForCausalLM", dict(LLAMA, sliding_window=7), SAFETENSORS),
    "mistral_bin_sharded": ("Mistral", "ForCausalLM", dict(LLAMA, sliding_window=None), BIN_SHARDED),
    "qwen2_yarn": ("Qwen2", "ForCausalLM", dict(LLAMA, rope_theta=50000.0, rope_scaling=YARN), SAFETENSORS),
    "qwen2": ("Qwen2", "ForCausalLM", dict(LLAMA, tie_word_embeddings=True), SAFETENSORS),
    "qwen3": ("Qwen3", "ForCausalLM", dict(LLAMA, head_dim=16), SAFETENSORS),
    "olmo2": ("Olmo2", "ForCausalLM", LLAMA, SAFETENSORS),
    "olmo2_cls": ("Olmo2", "ForSequenceClassification", dict(LLAMA, attention_bias=True, num_labels=3), SAFETENSORS),
    "bert_fast": ("Bert", "ForMaskedLM", dict(BERT, hidden_act="gelu_fast"), SAFETENSORS),
    "bert_mlm": ("Bert", "ForMaskedLM", BERT, SAFETENSORS),
    "bert_untied": ("Bert", "ForMaskedLM", dict(BERT, tie_word_embeddings=False, hidden_act="relu"), SAFETENSORS),
    "bert_untied_bin": ("Bert", "ForMaskedLM", dict(BERT, tie_word_embeddings=False), BIN),
    "gpt2_relu": ("GPT2", "LMHeadModel", dict(GPT2, activation_function="relu"), SAFETENSORS),
    "bert_regression": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=1), SAFETENSORS),
    "bert_token": ("Bert", "ForTokenClassification", dict(BERT, num_labels=5), SAFETENSORS),
    "bert_qa": ("Bert", "ForQuestionAnswering", BERT, SAFETENSORS),
    "gpt2_token": ("GPT2", "ForTokenClassification", dict(GPT2, num_labels=5), SAFETENSORS),
    "gpt2_qa": ("GPT2", "ForQuestionAnswering", GPT2, SAFETENSORS),
    "llama_token": ("Llama", "ForTokenClassification", dict(LLAMA, num_labels=5), SAFETENSORS),
    "llama_qa": ("Llama", "ForQuestionAnswering", LLAMA, SHARDED),
    "mistral_multi": ("Mistral", "ForSequenceClassification",
                      dict(LLAMA, num_labels=4, problem_type="multi_label_classification"), SAFETENSORS),
    "mistral_qa": ("Mistral", "ForQuestionAnswering", LLAMA, SAFETENSORS),
    "qwen2_token": ("Qwen2", "ForTokenClassification", dict(LLAMA, num_labels=5), SAFETENSORS),
    "qwen2_qa": ("Qwen2", "ForQuestionAnswering", LLAMA, SAFETENSORS),
    "qwen3_token": ("Qwen3", "ForTokenClassification", dict(LLAMA, head_dim=16, num_labels=5), SAFETENSORS),
    "qwen3_qa": ("Qwen3", "ForQuestionAnswering", dict(LLAMA, head_dim=16), SAFETENSORS),
    "bert_cls_bin": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=3), BIN),
}
SHARD_BYTES = 20000


def make_model(family, head, arguments):
    torch.manual_seed(9)
    model = getattr(transformers, family + head)(getattr(transformers, family + "Config")(**arguments))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():  # biases and norms away from 0 and 1, so that an error in them shows
        for name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=generator)
            is_norm = p.dim() == 1 and name.endswith("weight")
            p.copy_(1.0 + 0.1 * z if is_norm else 0.05 * z if p.dim() == 1 else 0.1 * z)
    return model


def write_bin(model, folder, sharded):
    """pytorch_model.bin, as transformers before version 5 writes it; version 5 reads it only."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    weights = {n: x.contiguous() for n, x in model.state_dict().items()}
    if not sharded:
        torch.save(weights, os.path.join(folder, "pytorch_model.bin"))
        return
    names = list(weights)
    parts = [names[: len(names) // 2], names[len(names) // 2:]]
    index = {"metadata": {"total_size": sum(x.numel() * x.element_size() for x in weights.values())}, "weight_map": {}}
    for i, part in enumerate(parts):
        file = f"pytorch_model-{i + 1:05}-of-{len(parts):05}.bin"
        torch.save({n: weights[n] for n in part}, os.path.join(folder, file))
        index["weight_map"].update({n: file for n in part})
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w", encoding="utf-8") as f:
        json.dump(index, f, indent=2)


def write(model, folder, form):
    os.makedirs(folder, exist_ok=True)
    if form in (BIN, BIN_SHARDED):
        write_bin(model, folder, form == BIN_SHARDED)
    elif form == SHARDED:
        model.save_pretrained(folder, max_shard_size=SHARD_BYTES, safe_serialization=True)
    else:
        model.to(torch.bfloat16 if form == BF16 else torch.float32).save_pretrained(folder, safe_serialization=True)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, (family, head, arguments, form) in FOLDERS.items():
        if not hasattr(transformers, family + head):
            print(f"{name}: left out, transformers {transformers.__version__} has no {family}{head}")
            continue
        folder = os.path.join(sys.argv[1], name)
        write(make_model(family, head, arguments), folder, form)
        files = sorted(f for f in os.listdir(folder) if not f.endswith("config.json"))
        print(f"{name}: {', '.join(files)}")


if __name__ == "__main__":
    main()
