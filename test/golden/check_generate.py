"""Tiny models with random weights, saved by transformers into FOLDER/NAME, and what transformers generates with them without
sampling: FOLDER/NAME.txt, prompt and continuation.

    check_generate.py FOLDER TOKENIZER PROMPT TOKENS
"""

import sys
from pathlib import Path

import torch
import transformers as t
import transformers.generation.utils as generation
from tokenizers import ByteLevelBPETokenizer

# Asked of every model before it generates; answering imports parts of torch 1.13 that Python 3.11 refuses. None is sharded here.
if hasattr(generation, "is_fsdp_managed_module"):
    generation.is_fsdp_managed_module = lambda model: False

folder, tokenizer_folder, prompt, n_tokens = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
tokenizer = ByteLevelBPETokenizer(f"{tokenizer_folder}/vocab.json", f"{tokenizer_folder}/merges.txt")
sizes = dict(vocab_size=50257, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
             max_position_embeddings=160, initializer_range=0.3, tie_word_embeddings=False,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
models = {
    "gpt2": t.GPT2Config(vocab_size=50257, n_positions=160, n_embd=48, n_layer=2, n_head=3, initializer_range=0.3,
                         bos_token_id=None, eos_token_id=None),
    "llama": t.LlamaConfig(num_key_value_heads=2, **sizes),
    "mistral": t.MistralConfig(num_key_value_heads=2, sliding_window=21, **sizes),
    "qwen3": t.Qwen3Config(num_key_value_heads=1, head_dim=16, **sizes) if hasattr(t, "Qwen3Config") else None,
}
torch.manual_seed(5)
for name, config in models.items():
    if config is None:
        continue
    model = t.AutoModelForCausalLM.from_config(config).float().eval()
    model.save_pretrained(folder / name)
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n_tokens, pad_token_id=0)
    (folder / f"{name}.txt").write_bytes(tokenizer.decode(out[0].tolist()).encode() + b"\n")
    print(name, out.shape[1] - ids.shape[1], "tokens,", len(set(out[0].tolist())), "different")
