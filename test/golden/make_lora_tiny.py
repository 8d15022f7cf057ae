"""Golden files lora_*_tiny.safetensors: ten steps of adapters by peft, over the models of llama_tiny, qwen3_tiny, gpt2_tiny
and bert_mlm_tiny, whose first weights, tokens and targets are in their own golden files.

Needs PyTorch, transformers (4.47), peft (0.14), safetensors. As transformers 4.47 has no Qwen3, its heads' norms are hooks
of Llama's projections, behind the adapters. B begins with random numbers, so that A has a gradient from the first step on.
"""
import json
import os
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, LR = 10, 1e-3
# name: base, keywords of LoraConfig
RUNS = {
    "lora_llama": ("llama", dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"q_proj": 8, "0.mlp.up_proj": 2},
                                 alpha_pattern={"v_proj": 4})),
    "lora_qwen3": ("qwen3", dict(r=6, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "k_proj", "down_proj"],
                                 modules_to_save=["lm_head"])),
    "lora_gpt2": ("gpt2", dict(r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "c_proj"])),
    "lora_bert": ("bert_mlm", dict(r=4, lora_alpha=4, target_modules=["query", "value", "dense"])),
}


def read(name):
    with safe_open(os.path.join(HERE, name + "_tiny.safetensors"), "pt") as f:
        return {k: f.get_tensor(k) for k in f.keys()}, json.loads((f.metadata() or {}).get("config", "null"))


class Norm(torch.nn.Module):
    def __init__(self, weight, eps):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(weight), eps

    def forward(self, _module, _inputs, y):
        heads = y.view(*y.shape[:-1], -1, self.weight.numel())
        return (heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).view(y.shape)


def build(base, values, config):
    weights = {k[5:]: v for k, v in values.items() if k.startswith("init.")}
    norms = {k: weights.pop(k) for k in list(weights) if k.endswith(("q_norm.weight", "k_norm.weight"))}
    if base == "gpt2":
        V, C = weights["wte.weight"].shape
        kind = transformers.GPT2Config(vocab_size=V, n_embd=C, n_positions=weights["wpe.weight"].shape[0], n_layer=2,
                                       n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
        model = transformers.GPT2LMHeadModel(kind)
        weights = {"transformer." + k: v for k, v in weights.items()}
    elif base == "bert_mlm":
        model = transformers.BertForMaskedLM(transformers.BertConfig(**config, attn_implementation="eager"))
    else:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        for key in ("model_type", "layer_types", "dtype"):
            config.pop(key, None)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, attn_implementation="eager"))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert all("lm_head" in m or "decoder" in m for m in missing), missing
    model.tie_weights()
    return model, norms


def run(name):
    base, keys = RUNS[name]
    values, config = read(base)
    eps = (config or {}).get("rms_norm_eps")
    model, norms = build(base, values, config)
    torch.manual_seed(1)
    model = get_peft_model(model, LoraConfig(**keys))
    inner = model.base_model.model
    for key, weight in norms.items():
        norm = Norm(weight, eps)
        norm.requires_grad_(False)
        inner.get_submodule(key.replace("_norm.weight", "_proj")).register_forward_hook(norm)
    for key, p in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(p, std=0.05)

    def name_of(key):
        key = key.replace("base_model.model.", "").replace(".base_layer", "").replace(".default", "")
        key = key.replace(".modules_to_save", "")
        return key

    trained = {name_of(k): p for k, p in model.named_parameters() if p.requires_grad}
    out = {"init." + name_of(k): p.detach().clone() for k, p in model.named_parameters()
           if "original_module" not in k}
    out.update({"init." + k: v for k, v in norms.items()})
    tokens, targets = values["tokens"], values["targets"]
    n = tokens.shape[0]
    order = [i % n for i in range(STEPS)]
    # a learning rate that only warms up, as the other files have it: warmup_cosine of make_gpt2_tiny.py over 20 steps
    sys.path.insert(0, HERE)
    from make_gpt2_tiny import warmup_cosine
    matrices = [p for p in trained.values() if p.dim() == 2]
    vectors = [p for p in trained.values() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    losses, norms_of, lrs = [], [], []
    extra = {k: values[k] for k in ("attention_mask", "token_type_ids") if k in values}
    for step, i in enumerate(order):
        optimizer.zero_grad()
        logits = model(input_ids=tokens[i].long(), **{k: v[i].long() for k, v in extra.items()}).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets[i].long().reshape(-1),
                                                 ignore_index=-100)
        loss.backward()
        if step == 0:
            out.update({"grad." + k: p.grad.clone() for k, p in trained.items()})
        norms_of.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), 0.5).item())
        lrs.append(warmup_cosine(LR, 2, 20, step))
        for group in optimizer.param_groups:
            group["lr"] = lrs[-1]
        optimizer.step()
        losses.append(loss.item())
    out.update({"final." + name_of(k): p.detach().clone() for k, p in model.named_parameters()
                if "original_module" not in k})
    out.update({"final." + k: v.clone() for k, v in norms.items()})
    pick = torch.tensor(order)
    out.update({k: v[pick].to(torch.int32) for k, v in {"tokens": tokens, "targets": targets, **extra}.items()})
    out.update({"losses": torch.tensor(losses), "grad_norms": torch.tensor(norms_of), "lrs": torch.tensor(lrs)})
    metadata = {"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__}
    original = json.dumps(read(base)[1])
    if original != "null":
        metadata["config"] = original
    import peft
    metadata["peft"] = peft.__version__
    save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(HERE, name + "_tiny.safetensors"), metadata)
    print(name, losses[0], losses[-1])


torch.set_num_threads(1)
for run_name in sys.argv[1:] or RUNS:
    run(run_name)
