#!/usr/bin/env python3
"""Writes <name>_tiny.safetensors for tiny models of Hugging Face's own classes: what transformers and PyTorch compute.

usage: python3 make_hf_tiny.py [FOLDER [NAME...]]    (default: the folder of this script, all models)
       python3 make_hf_tiny.py --rounding      write nothing; print how far float32 is from float64
       python3 make_hf_tiny.py --gpt2          write nothing; print how far GPT2LMHeadModel is from gpt2_tiny.safetensors

Needs recent versions of torch and transformers. README.md lists the files and their tensors.
"""
import math
import os
import sys

import torch
import transformers
from safetensors.torch import load_file

from make_gpt2_tiny import LAYER_NORM_EPS, B as GPT2_B, C, H, L, T as GPT2_T, V, save_safetensors, warmup_cosine

N_STEPS, B, T = 4, 2, 20
VOCABULARY = 61
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager",
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager", pad_token_id=0)

# name -> class, arguments of its configuration, what it is trained on
MODELS = {
    # wave lengths from 2 pi to 50000: with 32 original positions all three bands of llama3 occur
    "llama": ("Llama", "ForCausalLM", dict(LLAMA, rope_parameters={
        "rope_type": "llama3", "rope_theta": 50000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "llama_linear": ("Llama", "ForCausalLM", dict(
        LLAMA, num_key_value_heads=1, head_dim=12, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})),
    # bands of 5 and of 9 of the 16 frequencies, cut to whole dimensions or not; two ways to the attention factor
    "llama_yarn": ("Llama", "ForCausalLM", dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                                                max_position_embeddings=256, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64})),
    "qwen3_yarn": ("Qwen3", "ForCausalLM", dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                                                max_position_embeddings=256, rope_parameters={
        "rope_type": "yarn", "rope_theta": 500.0, "factor": 2.5, "original_max_position_embeddings": 100, "beta_fast": 8.0,
        "beta_slow": 0.5, "mscale": 1.2, "mscale_all_dim": 0.6, "truncate": False})),
    "mistral": ("Mistral", "ForCausalLM", dict(LLAMA, sliding_window=7,
                                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen2": ("Qwen2", "ForCausalLM", dict(
        LLAMA, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "qwen3": ("Qwen3", "ForCausalLM", dict(LLAMA, head_dim=16,
                                           rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "olmo2": ("Olmo2", "ForCausalLM", dict(LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})),
    "bert_mlm": ("Bert", "ForMaskedLM", dict(BERT)),
    "bert_untied": ("Bert", "ForMaskedLM", dict(BERT, tie_word_embeddings=False)),
    "bert_relu": ("Bert", "ForMaskedLM", dict(BERT, hidden_act="relu")),
    "bert_cls": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=3)),
    "gpt2_cls": ("GPT2", "ForSequenceClassification", dict(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=2)),
}


def make_model(name):
    family, head, arguments = MODELS[name]
    config = getattr(transformers, family + "Config")(**arguments)
    torch.manual_seed(20261121)
    model = getattr(transformers, family + head)(config)
    if head == "ForMaskedLM":  # one tensor in version 4; in 5, where nothing is tied, the second one is not used
        model.cls.predictions.bias = model.cls.predictions.decoder.bias
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():  # biases and norms away from 0 and 1, so that an error in them shows
        for parameter_name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=generator)
            is_norm = ("norm" in parameter_name.lower() or ".ln_" in parameter_name) and parameter_name.endswith("weight")
            if p.dim() >= 2:
                p.copy_(0.08 * z)
            elif is_norm:  # with heads of norm 1 scores grow large, and 16 bits cannot follow softmax
                p.copy_((0.6 if "q_norm" in parameter_name or "k_norm" in parameter_name else 1.0) + 0.1 * z)
            else:
                p.copy_(0.05 * z)
    return model.train(), head


def make_batches(head, n_labels):
    """A counting task. Encoders and classifiers get rows of different lengths, padded with 0."""
    g = torch.Generator().manual_seed(11)
    start = torch.randint(3, VOCABULARY, (N_STEPS, B, 1), generator=g)
    text = 3 + (start + torch.arange(T + 1) * torch.randint(1, 4, (N_STEPS, B, 1), generator=g)) % (VOCABULARY - 3)
    out = {"tokens": text[..., :-1].contiguous(), "targets": text[..., 1:].contiguous()}
    if head == "ForCausalLM":
        return out
    lengths = torch.randint(T // 3, T, (N_STEPS, B, 1), generator=g)
    lengths[:, 0] = T  # one row without padding
    mask = (torch.arange(T) < lengths).long()
    out["tokens"] = out["tokens"] * mask
    out["attention_mask"] = mask
    if head == "ForMaskedLM":
        hidden = (torch.rand(out["tokens"].shape, generator=g) < 0.25) & mask.bool()
        hidden[:, :, 2] = True
        out["targets"] = torch.where(hidden, out["tokens"], -100)
        out["tokens"] = torch.where(hidden, 2, out["tokens"])
    else:
        out["targets"] = torch.randint(0, n_labels, (N_STEPS, B), generator=g)
    return out


def add_types(batches, name):
    if name.startswith("bert"):
        batches["token_type_ids"] = ((torch.arange(T) >= T // 4).long().expand_as(batches["tokens"])
                                     * batches["attention_mask"])


def inputs_of(batches, step):
    return {"input_ids": batches["tokens"][step],
            **{k: batches[k][step] for k in ("attention_mask", "token_type_ids") if k in batches}}


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def train(model, batches):
    """Returns what the C code must reproduce."""
    p = dict(model.named_parameters())  # tied ones once
    out = {f"init.{n}": x.detach().clone() for n, x in p.items()}
    with torch.no_grad():
        out["hidden"] = model.base_model(**inputs_of(batches, 0)).last_hidden_state.clone()
        out["logits"] = model(**inputs_of(batches, 0)).logits.clone()
    optimizer = torch.optim.AdamW([{"params": [x for x in p.values() if x.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [x for x in p.values() if x.dim() < 2], "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    losses, lrs, norms = [], [], []
    for step in range(batches["tokens"].shape[0]):
        optimizer.zero_grad()
        loss = loss_of(model(**inputs_of(batches, step)).logits, batches["targets"][step])
        loss.backward()
        for parameter in p.values():  # such as a pooler's, which nothing depends on
            assert parameter.grad is not None
        if step == 0:
            out.update({f"grad.{n}": x.grad.clone() for n, x in p.items()})
        norms.append(math.sqrt(sum(float((x.grad.double() ** 2).sum()) for x in p.values())))
        torch.nn.utils.clip_grad_norm_(p.values(), 0.5)
        lrs.append(warmup_cosine(1e-3, 2, 8, step))
        for group in optimizer.param_groups:
            group["lr"] = lrs[-1]
        optimizer.step()
        losses.append(loss.item())
    out.update({f"final.{n}": x.detach().clone() for n, x in p.items()})
    out.update({k: v.int() for k, v in batches.items()})
    out["losses"], out["lrs"], out["grad_norms"] = (torch.tensor(x, dtype=torch.float32) for x in (losses, lrs, norms))
    return out


def make(name, dtype):
    model, head = make_model(name)
    batches = make_batches(head, model.config.num_labels)
    add_types(batches, name)
    out = train(model.to(dtype), batches)
    model_config = model.config.to_dict()
    model_config["architectures"] = [type(model).__name__]
    return out, {"config": model_config, "transformers": transformers.__version__, "torch": torch.__version__}


def print_distances(what, exact, rounded):
    for kind in ("losses", "grad_norms", "hidden", "logits", "grad.", "final."):
        worst = sorted(((float((exact[n].double() - rounded[n].double()).abs().max()), n)
                        for n in exact if n.startswith(kind)), reverse=True)
        print(f"{what} {kind}: " + ", ".join(f"{n} {d:.2g}" for d, n in worst[:3]))


def print_gpt2(folder):
    """Is the model that make_gpt2_tiny.py writes out the real class?"""
    golden = load_file(os.path.join(folder, "gpt2_tiny.safetensors"))
    config = transformers.GPT2Config(vocab_size=V, n_positions=GPT2_T, n_embd=C, n_layer=L, n_head=H, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=LAYER_NORM_EPS,
                                     activation_function="gelu_new", attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config)
    init = {n[5:]: x for n, x in golden.items() if n.startswith("init.")}
    missing, unexpected = model.transformer.load_state_dict(init, strict=False)
    assert not missing and not unexpected and golden["tokens"].shape[1:] == (GPT2_B, GPT2_T)
    ours = train(model.train(), {k: golden[k].long() for k in ("tokens", "targets")})
    print_distances("gpt2_tiny", golden, {n.replace(".transformer.", "."): x for n, x in ours.items()})


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else here
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if folder == "--gpt2":
        return print_gpt2(here)
    for name in sys.argv[2:] or MODELS:
        if folder == "--rounding":
            print_distances(name, make(name, torch.float64)[0], make(name, torch.float32)[0])
            continue
        tensors, facts = make(name, torch.float32)
        save_safetensors(os.path.join(folder, name + "_tiny.safetensors"), tensors, facts)
        print("  losses", tensors["losses"].tolist())


if __name__ == "__main__":
    main()
