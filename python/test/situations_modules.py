"""Modules of torch.nn, and models that are made of them (situations.py)."""
import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

from situations import section, trains, two, mlp, step_of, TORCH2, TRANSFORMERS
from support import F32, VERSION, WIDTH, Two, module_of, square, values

section("Modules")


@trains("a perceptron, each step with another batch size")
def batch_sizes(dtype):
    return mlp, lambda model, t: square(model(values(t + 1, WIDTH, dtype=dtype)))


@trains("convolutions, `GroupNorm`, transposed convolution", bf16_needs=TORCH2)
def convolutions(dtype):
    return (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(inplace=True),
                                  nn.ConvTranspose2d(8, 3, 3)), step_of(dtype, 2, 3, 8, 8))


@trains("`BatchNorm` (in bf16 its weights stay fp32, as under autocast)", bf16_needs=TORCH2)
def batch_norm(dtype):
    return (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)),
            step_of(dtype, 2, 3, 8, 8), {"is_tight": dtype == F32})


@trains("`LSTM`, two layers, both directions", bf16_needs=TORCH2)
def lstm(dtype):
    return (lambda: nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True),
            lambda model, t: square(model(values(2, 5, WIDTH, dtype=dtype))[0]))


@trains("`LSTM` over a packed sequence, state carried from step to step")
def packed(dtype):
    def make():
        model = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        model.carried = None
        return model

    def step(model, t):
        module = module_of(model)
        x = torch.nn.utils.rnn.pack_padded_sequence(values(2, 5, WIDTH, dtype=dtype), [5, 3], batch_first=True)
        out, state = model(x, module.carried)
        module.carried = tuple(part.detach() for part in state)
        return square(out.data)
    return make, step


@trains("`GRU`, `RNNCell` in a loop over time")
def recurrent(dtype):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.RNNCell(WIDTH, WIDTH)

        def forward(self, x):
            x, state = self.gru(x)[0], None
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return state
    return Recurrent, step_of(dtype, 2, 5, WIDTH)


@trains("`MultiheadAttention` with a mask")
def attention(dtype):
    def step(model, t):
        x = values(2, 5, WIDTH, dtype=dtype)
        return square(model(x, x, x, attn_mask=torch.ones(5, 5).triu(1).bool())[0])
    return lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True), step


@trains("`TransformerEncoder` with dropout")
def encoder(dtype):
    return (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 32, batch_first=True), 2),
            step_of(dtype, 2, 5, WIDTH))


@trains("`nn.Transformer`, encoder and decoder")
def transformer(dtype):
    def step(model, t):
        return square(model(values(2, 5, WIDTH, dtype=dtype), values(2, 3, WIDTH, dtype=dtype)))
    return lambda: nn.Transformer(WIDTH, 4, 1, 1, 32, batch_first=True), step


@trains("`EmbeddingBag`, `Bilinear`, `PReLU`", bf16_needs=TORCH2)
def bags(dtype):
    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag, self.both, self.act = nn.EmbeddingBag(20, WIDTH), nn.Bilinear(WIDTH, WIDTH, 8), nn.PReLU()

        def forward(self, ids):
            x = self.bag(ids)
            return self.act(self.both(x, x))
    return Bags, lambda model, t: square(model(torch.randint(0, 20, (4, 6))))


@trains("`ParameterList`, `ParameterDict`, a parameter of no dimension")
def lists(dtype):
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ParameterList([nn.Parameter(torch.randn(WIDTH)) for _ in range(3)])
            self.d = nn.ParameterDict({"k": nn.Parameter(torch.randn(WIDTH))})
            self.scale = nn.Parameter(torch.tensor(.5))

        def forward(self, x):
            for p in self.p:
                x = x * p
            return (x + self.d["k"]) * self.scale.exp()
    return Lists, step_of(dtype)


@trains("a class token, positions that are cut or interpolated to the input")
def positions(dtype):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.table = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 6, WIDTH))
            self.a = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
            table = F.interpolate(self.table.transpose(1, 2).float(), size=x.shape[1], mode="linear").transpose(1, 2)
            return self.a(x + table.to(x.dtype) + self.table[:, :x.shape[1]])
    return Positions, lambda model, t: square(model(values(2, 2 + t, WIDTH, dtype=dtype)))


@trains("`weight_norm` by hook (PyTorch 1) or parametrization")
def weight_norm(dtype):
    normed = torch.nn.utils.weight_norm if VERSION < (2, 1) else torch.nn.utils.parametrizations.weight_norm

    def make():
        model = Two()
        normed(model.a)
        return model
    return make, step_of(dtype)


@trains("buffers that forward updates, integer parameters")
def buffers(dtype):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(WIDTH, WIDTH)
            self.order = nn.Parameter(torch.arange(WIDTH - 1, -1, -1), requires_grad=False)
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.seen += 1
            return self.a(x)[:, self.order] * int(self.seen)
    return Counts, step_of(dtype)


section("Models")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.layer = nn.Embedding(50, 32), nn.Linear(32, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        return self.head(x + self.layer(self.norm(x)))


@trains("tied embedding and head, cross entropy with label smoothing")
def tied(dtype):
    def step(model, t):
        ids = torch.randint(0, 50, (4, 8))
        return F.cross_entropy(model(ids).float().view(-1, 50), ids.view(-1), label_smoothing=.1)
    return Tied, step


@trains("modules and parameters that some steps do not use")
def unused(dtype):
    return (two(lambda s, x, t: s.b(s.a(x)) if t % 2 else s.a(x)),
            lambda model, t: square(model(values(dtype=dtype), t)))


@trains("layers in another order in each step (stochastic depth)")
def another_order(dtype):
    def run(s, x):
        for i in torch.randperm(2).tolist():
            x = (s.a, s.b)[i](x) if torch.rand(()) < .8 else x
        return x + 0 * s.a.weight.sum()
    return two(run), step_of(dtype)


@trains("a mixture of experts, routed by the data")
def experts(dtype):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(WIDTH, 4)
            self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])

        def forward(self, x):
            weights, chosen = self.gate(x).float().softmax(-1).to(x.dtype).max(-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows = (chosen == i).nonzero()[:, 0]
                if len(rows):
                    out = out.index_add(0, rows, expert(x[rows]) * weights[rows, None])
            return out
    return Experts, step_of(dtype, 6, WIDTH)


@trains("one encoder for two inputs, contrastive loss with a learned temperature")
def siamese(dtype):
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.scale = mlp(), nn.Parameter(torch.tensor(1.))

        def forward(self, x, y):
            x, y = F.normalize(self.encoder(x), dim=-1), F.normalize(self.encoder(y), dim=-1)
            return F.cross_entropy((x @ y.t() * self.scale.exp()).float(), torch.arange(len(x)))
    return Siamese, lambda model, t: model(values(dtype=dtype), values(dtype=dtype))


@trains("weights that another module computes (hypernetwork)")
def hypernetwork(dtype):
    return (two(lambda s, x: F.linear(x, s.a(s.b.weight), s.b.bias)), step_of(dtype))


@trains("low-rank adapters written by hand over frozen layers")
def adapters(dtype):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
            self.down, self.up = nn.Parameter(torch.randn(2, WIDTH)), nn.Parameter(torch.zeros(WIDTH, 2))

        def forward(self, x):
            return self.base(x) + x @ self.down.t() @ self.up.t()
    return lambda: nn.Sequential(Adapted(), nn.GELU(), Adapted()), step_of(dtype)


@trains("results in dictionaries, dataclasses, and lists that the caller gives")
def results(dtype):
    @dataclasses.dataclass
    class Output:
        y: torch.Tensor
        all: dict

    def run(s, x, seen):
        seen.append(s.a(x))
        return Output(s.b(seen[0]), {"hidden": seen[0]})

    def step(model, t):
        seen = []
        out = model(values(dtype=dtype), seen)
        return square(out.y) + square(out.all["hidden"]) + square(seen[0])
    return two(run), step


@trains("weights that are used outside of their module, and outside of the model")
def outside(dtype):
    return (two(lambda s, x: F.linear(s.a(x), s.a.weight.t(), s.b.bias)),
            lambda model, t: square(F.linear(model(values(dtype=dtype)), module_of(model).b.weight)))


@trains("weight decay in the loss, over all parameters")
def penalty(dtype):
    return Two, lambda model, t: square(model(values(dtype=dtype))) + 1e-2 * sum(
        p.float().pow(2).sum() for p in model.parameters())


def of_transformers(name, **numbers):
    def make():
        import transformers
        return getattr(transformers, name)(getattr(transformers, numbers["kind"])(**{
            key: value for key, value in numbers.items() if key != "kind"}))
    return make


def tokens(*shape):
    return torch.randint(3, 90, shape or (2, 8))


def causal(model, t):
    ids = tokens()
    return model(input_ids=ids, labels=ids).loss


CHUNK = {"default_chunk_size": 1 << 13, "memory__device": "4MB"}
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=90)
gpt2 = of_transformers("GPT2LMHeadModel", kind="GPT2Config", n_embd=32, n_layer=2, n_head=2, vocab_size=90,
                       n_positions=32, bos_token_id=0, eos_token_id=0)


@trains("transformers: GPT-2", TRANSFORMERS)
def with_gpt2(dtype):
    return gpt2, causal, CHUNK


@trains("transformers: Llama, gradient checkpointing", TRANSFORMERS)
def with_llama(dtype):
    def make():
        model = of_transformers("LlamaForCausalLM", kind="LlamaConfig", num_key_value_heads=1,
                                max_position_embeddings=32, bos_token_id=0, eos_token_id=0, pad_token_id=0, **SMALL)()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model
    return make, causal, CHUNK


@trains("transformers: BERT, classification", TRANSFORMERS)
def with_bert(dtype):
    return (of_transformers("BertForSequenceClassification", kind="BertConfig", max_position_embeddings=32,
                            num_labels=3, **SMALL),
            lambda model, t: model(input_ids=tokens(), labels=torch.tensor([0, 2])).loss, CHUNK)


@trains("transformers: T5", TRANSFORMERS)
def with_t5(dtype):
    return (of_transformers("T5ForConditionalGeneration", kind="T5Config", vocab_size=90, d_model=32, d_kv=16, d_ff=64,
                            num_layers=2, num_heads=2, decoder_start_token_id=0),
            lambda model, t: model(input_ids=tokens(), labels=tokens(2, 5)).loss, CHUNK)


@trains("transformers: Mixtral, a mixture of experts", TRANSFORMERS)
def with_mixtral(dtype):
    return (of_transformers("MixtralForCausalLM", kind="MixtralConfig", num_key_value_heads=1, num_local_experts=4,
                            max_position_embeddings=32, bos_token_id=0, eos_token_id=0, pad_token_id=0, **SMALL),
            causal, CHUNK)


@trains("transformers: ViT", TRANSFORMERS)
def with_vit(dtype):
    numbers = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    return (of_transformers("ViTForImageClassification", kind="ViTConfig", image_size=8, patch_size=4, num_labels=3,
                            **numbers),
            lambda model, t: model(pixel_values=values(2, 3, 8, 8, dtype=dtype), labels=torch.tensor([0, 2])).loss,
            CHUNK)


@trains("peft: LoRA", TRANSFORMERS + ("peft",))
def with_lora(dtype):
    def make():
        import peft
        return peft.get_peft_model(gpt2(), peft.LoraConfig(r=4, target_modules=["c_attn"]))
    return make, causal, CHUNK


@trains("peft: prompt tuning", TRANSFORMERS + ("peft",))
def with_prompts(dtype):
    def make():
        import peft
        return peft.get_peft_model(gpt2(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    return make, causal, CHUNK
