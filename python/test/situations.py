"""What people do in PyTorch, each with a small model: test_coverage.py runs them by plain PyTorch and by the package.

A function under @trains is given the number format, and returns (make, step) or (make, step, options): step(model, t) is the
loss of step t of the usual loop. Under @loop it is (make, loop), where loop(model, optimizer) is the whole program, and
yields numbers that are to be the same. options: of the configuration; is_tight=False where parameters outside of chunks
cannot leave the device. Under @refused it is a program that raises an error with the text of the table."""
import collections
import copy
import dataclasses
import importlib.util
import io
import pickle
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from support import BF16, F32, VERSION, WIDTH, Two, config, engine, module_of, once, square, values
from patrickstar import initialize_engine, torch_scope

Situation = collections.namedtuple("Situation", "section name function is_loop message needs bf16_needs within")
SITUATIONS = []

_section = ""


def section(name):
    global _section
    _section = name


SUMS = 1e-3, "gradients are added in fp32"


def trains(name, needs=(), bf16=None, bf16_needs=(), is_loop=False):
    """bf16: how far losses in bf16 may be from plain PyTorch's, and why; None: the same bits."""
    def add(function):
        SITUATIONS.append(Situation(_section, name, function, is_loop, None, needs, bf16_needs, bf16))
        return function
    return add


def loop(name, needs=(), bf16=None, bf16_needs=()):
    return trains(name, needs, bf16, bf16_needs, is_loop=True)


def refused(name, message, needs=()):
    def add(function):
        SITUATIONS.append(Situation(_section, name, function, False, message, needs, (), None))
        return function
    return add


def lacks(needs):
    """The first of these that is not here, or None: ("torch", 2, 1) or the name of a package, perhaps with a version."""
    for need in needs:
        if isinstance(need, str):
            if importlib.util.find_spec(need) is None:
                return need
        elif need[0] == "torch" and VERSION < need[1:]:
            return "torch %s" % ".".join(str(n) for n in need[1:])
    return None


def two(run):
    return lambda: Two(run)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))


def plain_step(model, t):
    return square(model(values(dtype=next(model.parameters()).dtype)))


def step_of(dtype, *shape):
    return lambda model, t: square(model(values(*shape, dtype=dtype)))


TORCH2, TORCH21, TRANSFORMERS = (("torch", 2, 0),), (("torch", 2, 1),), ("transformers",)

# ----------------------------------------------------------------------------------------------------------------------
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


# ----------------------------------------------------------------------------------------------------------------------
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
            lambda model, t: model(pixel_values=values(2, 3, 8, 8, dtype=dtype), labels=torch.tensor([0, 2])).loss, CHUNK)


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


# ----------------------------------------------------------------------------------------------------------------------
section("Autograd")


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class Keeps(Saves):
    @staticmethod
    def forward(ctx, x, w):
        ctx.x, ctx.w = x, w
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.w, g.t() @ ctx.x


@trains("`autograd.Function` with `save_for_backward`")
def function(dtype):
    return two(lambda s, x: Saves.apply(s.b(x), s.a.weight)), step_of(dtype)


@trains("`autograd.Function` that keeps a parameter as an attribute of its context")
def function_that_keeps(dtype):
    return two(lambda s, x: Keeps.apply(s.b(x), s.a.weight)), step_of(dtype)


@trains("two forward passes before one backward pass")
def two_forwards(dtype):
    return Two, lambda model, t: square(model(values(dtype=dtype))) + square(model(values(dtype=dtype)) - 1)


@loop("two losses of one forward pass, each with a backward pass (`retain_graph`)", bf16=SUMS)
def retained(dtype):
    def run(model, optimizer):
        for t in range(3):
            out = model(values(dtype=dtype))
            model.backward(square(out), retain_graph=True)
            model.backward(square(out - 1))
            optimizer.step()
            yield square(out)
    return two(lambda s, x: s.b(s.a(x).tanh())), run


@trains("gradient penalty: `autograd.grad(create_graph=True)` with respect to the input")
def gradient_penalty(dtype):
    def step(model, t):
        x = values(dtype=dtype).requires_grad_()
        y = model(x)
        g, = torch.autograd.grad(y.float().sum(), x, create_graph=True)
        return square(y) + g.float().pow(2).sum()
    return two(lambda s, x: s.b(s.a(x).tanh())), step


@trains("`torch.utils.checkpoint`, not re-entrant")
def checkpointed(dtype):
    return two(lambda s, x: s.b(checkpoint(lambda y: s.a(y).tanh(), x, use_reentrant=False))), step_of(dtype)


@trains("`torch.utils.checkpoint`, re-entrant, nested")
def reentrant(dtype):
    def run(s, x):
        inner = lambda y: checkpoint(s.a, y, use_reentrant=True).tanh()
        return s.b(checkpoint(inner, x.requires_grad_(), use_reentrant=True))
    return two(run), step_of(dtype)


@trains("`saved_tensors_hooks`, `save_on_cpu`")
def saved_hooks(dtype):
    def run(s, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            x = s.a(x).tanh()
        with torch.autograd.graph.save_on_cpu():
            return s.b(x).tanh()
    return two(run), step_of(dtype)


@trains("`torch.autocast`")
def autocast(dtype):
    def step(model, t):
        with torch.autocast("cpu", dtype=BF16):
            return square(model(values(dtype=F32)))
    return Two, step


@trains("`detach`, `no_grad` within forward, straight-through estimators")
def detached(dtype):
    def run(s, x):
        with torch.no_grad():
            target = s.a(x)
        y = s.b(x)
        return y + (y.round() - y).detach() + target * s.a.weight.detach()[0]
    return two(run), step_of(dtype)


@trains("hooks: of modules before and after forward and backward, of parameters")
def hooks(dtype):
    def make():
        model = Two()
        model.a.register_forward_pre_hook(lambda m, i: (i[0] * 2,))
        model.a.register_forward_hook(lambda m, i, o: o * 2)
        model.b.register_full_backward_hook(lambda m, i, o: (i[0] * 3,) if i[0] is not None else None)
        model.b.weight.register_hook(lambda g: g * 3)
        return model
    return make, step_of(dtype)


@trains("operations in place on outputs of modules")
def in_place(dtype):
    return two(lambda s, x: s.b(s.a(x).relu_()).mul_(2).tanh_()), step_of(dtype)


# ----------------------------------------------------------------------------------------------------------------------
section("Training loops")


def each_step(body, make=Two, n=4, **options):
    """body(model, optimizer, t) is a step of the program, and returns a loss."""
    def run(model, optimizer):
        for t in range(n):
            yield body(model, optimizer, t)
    return make, run, options


@loop("`loss.backward()` in place of `model.backward(loss)`")
def own_backward(dtype):
    def body(model, optimizer, t):
        optimizer.zero_grad()
        loss = square(model(values(dtype=dtype)))
        loss.backward()
        optimizer.step()
        return loss
    return each_step(body)


@loop("accumulation: several backward passes before a step", bf16=SUMS)
def accumulation(dtype):
    def body(model, optimizer, t):
        for _ in range(3):
            loss = square(model(values(dtype=dtype))) / 3
            model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body, n=3)


@loop("accumulation by `gradient_accumulation_steps`, `zero_grad` in each micro-batch", bf16=SUMS)
def accumulation_by_key(dtype):
    def body(model, optimizer, t):
        model.zero_grad()
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body, n=6, gradient_accumulation_steps=2)


@loop("`clip_grad_norm_`, `clip_grad_value_` of PyTorch (one process)")
def clipping(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1e-2)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
        optimizer.step()
        return loss + norm
    return each_step(body)


@loop("gradients that are read, changed and set: `p.grad.mul_`, `p.grad = ...`, noise")
def own_gradients(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        for p in model.parameters():
            p.grad.mul_(.5)
            p.grad = p.grad + 1e-2 * torch.randn_like(p.grad)
        optimizer.step()
        return loss
    return each_step(body)


@loop("`autograd.grad`, and gradients assigned by hand")
def assigned(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        params = list(model.parameters())
        for p, g in zip(params, torch.autograd.grad(loss, params)):
            p.grad = g
        optimizer.step()
        return loss
    return each_step(body)


@loop("`optimizer.step(closure)`")
def closures(dtype):
    def body(model, optimizer, t):
        x = values(dtype=dtype)

        def closure():
            optimizer.zero_grad()
            loss = square(model(x))
            model.backward(loss)
            return loss
        return optimizer.step(closure)
    return each_step(body)


@loop("learning rates of `torch.optim.lr_scheduler`, written to `param_groups`")
def schedulers(dtype):
    def run(model, optimizer):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
        for t in range(4):
            loss = square(model(values(dtype=dtype)))
            model.backward(loss)
            if t == 2:
                optimizer.param_groups[0]["lr"] *= .5
            optimizer.step()
            scheduler.step()
            yield loss
    return Two, run


@loop("SGD with momentum, `gradient_clipping` and a schedule of the configuration")
def sgd(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body, optimizer={"type": "SGD", "params": {"lr": .1, "momentum": .9, "nesterov": True}},
                     gradient_clipping=.05)


@loop("evaluation between steps: `eval()`, `no_grad`, `inference_mode`")
def evaluation(dtype):
    def body(model, optimizer, t):
        model.eval()
        with torch.no_grad():
            before = square(model(values(dtype=dtype)))
        with torch.inference_mode():
            before = before + square(model(values(7, WIDTH, dtype=dtype))).item()
        model.train()
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        return loss + before
    return each_step(body, lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(.2), nn.Linear(WIDTH, WIDTH)))


@loop("`generate` between steps", TRANSFORMERS + TORCH2)
def generates(dtype):
    def body(model, optimizer, t):
        model.eval()
        ids = model.generate(tokens(2, 4), max_new_tokens=6, do_sample=True, pad_token_id=0)
        model.train()
        loss = model(input_ids=ids, labels=ids).loss
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body, gpt2, **CHUNK)


@loop("an exception in forward, and in backward; training goes on")
def exceptions(dtype):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no gradient")

    def body(model, optimizer, t):
        for bad in ("forward", "backward"):
            optimizer.zero_grad()
            try:
                model.backward(square(model(values(dtype=dtype), bad)))
            except (ZeroDivisionError, ValueError):
                pass
        optimizer.zero_grad()
        loss = square(model(values(dtype=dtype), ""))
        model.backward(loss)
        optimizer.step()
        return loss

    def run(s, x, bad):
        x = s.a(x)
        if bad == "forward":
            1 / 0
        return s.b(Fails.apply(x) if bad == "backward" else x)
    return each_step(body, two(run))


@loop("weights that are read, and written in place, between steps")
def written(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        weight = module_of(model).a.weight
        total = weight.float().abs().sum()
        if isinstance(getattr(model, "numbers", None), dict):  # plain PyTorch: the fp32 value, too
            value = model.masters()["a.weight"]
            model.write("a.weight", value.clamp_(-.1, .1))
        else:
            with torch.no_grad():
                weight.clamp_(-.1, .1)
        return loss + total
    return each_step(body)


@loop("frozen layers; layers frozen, and trained again, between steps")
def freezing(dtype):
    def body(model, optimizer, t):
        module_of(model).a.requires_grad_(t % 2 == 0)
        loss = square(model(values(dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body)


@loop("state_dict in the middle, and back: `load_state_dict`")
def saved_state(dtype):
    def run(model, optimizer):
        for t in range(4):
            loss = square(model(values(dtype=dtype)))
            model.backward(loss)
            optimizer.step()
            if t == 1:
                file = io.BytesIO()
                torch.save(model.state_dict(), file)
                file.seek(0)
            yield loss
        model.load_state_dict(torch.load(file))
        yield square(model(values(dtype=dtype)))
    return Two, run


@loop("an average of the weights (EMA), from `state_dict()` of each step")
def averages(dtype):
    def run(model, optimizer):
        average = {key: value.clone() for key, value in model.state_dict().items()}
        for t in range(4):
            loss = square(model(values(dtype=dtype)))
            model.backward(loss)
            optimizer.step()
            for key, value in model.state_dict().items():
                average[key].lerp_(value, .1)
            yield loss
            yield sum(value.double().sum() for value in average.values())
    return Two, run


@loop("a teacher outside of the engine, distillation")
def distillation(dtype):
    torch.manual_seed(7)
    teacher = mlp().to(dtype).eval().requires_grad_(False)

    def body(model, optimizer, t):
        x = values(dtype=dtype)
        loss = F.mse_loss(model(x).float(), teacher(x).float())
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body, mlp)


@loop("a step without any gradient, steps without `zero_grad`")
def without_gradient(dtype):
    def body(model, optimizer, t):
        loss = square(model(values(dtype=dtype)))
        if t != 1:
            model.backward(loss)
            optimizer.step()
        return loss
    return each_step(body)


@loop("forward and backward in another thread")
def threads(dtype):
    def body(model, optimizer, t):
        losses = []

        def work():
            losses.append(square(model(values(dtype=dtype))))
            model.backward(losses[0])
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        optimizer.step()
        return losses[0]
    return each_step(body)


@loop("`torch.compile` of a function without parameters", TORCH21)
def compiled(dtype):
    act = torch.compile(lambda x: x.tanh() * 2, backend="eager") if VERSION >= (2, 1) else None

    def body(model, optimizer, t):
        loss = square(act(model(values(dtype=dtype))))
        model.backward(loss)
        optimizer.step()
        return loss
    return each_step(body)


# ----------------------------------------------------------------------------------------------------------------------
section("Refused")


@refused("`torch.func.grad`, `vjp`, `jacrev`, `hessian` over parameters", "torch.func (grad, vjp, jacrev, hessian) of "
         "parameter a.weight, which is in chunks: use torch.autograd.grad, or pass a copy", TORCH2)
def of_func(dtype):
    model, _ = engine(Two, dtype)
    torch.func.grad(lambda w: F.linear(values(dtype=dtype), w).float().sum())(model.module.a.weight)


@refused("`functional_call`", "leave out what replaces parameters by tensors: FSDP, functional_call, torch.export", TORCH2)
def of_functional_call(dtype):
    model, _ = engine(Two, dtype)
    torch.func.functional_call(model.module, model.state_dict(), (values(dtype=dtype),))


@refused("`torch.jit.script` of a module", "torch.jit.script of a, whose parameters are in chunks: a script keeps their "
         "addresses, which change; load model.state_dict() into a module outside of chunks")
def of_script(dtype):
    model, _ = engine(Two, dtype)
    torch.jit.script(model.module.a)


@refused("`torch.jit.trace`, `torch.onnx.export` by tracing", "a trace would keep its address, which is valid for one use")
def of_trace(dtype):
    model, _ = engine(Two, dtype)
    torch.jit.trace(model.module.a, values(dtype=dtype))


@refused("`torch.compile` of the model", "which is in chunks: parameters change their addresses between operators, which "
         "a compiled graph does not see", TORCH21)
def of_compile(dtype):
    model, _ = engine(Two, dtype)
    torch.compile(model.module, backend="eager")


@refused("sparse embeddings", "has sparse gradients: build it with sparse=False")
def of_sparse(dtype):
    engine(lambda: nn.Embedding(9, 4, sparse=True), dtype)


@refused("complex parameters", "a parameter of complex numbers")
def of_complex(dtype):
    engine(lambda: nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.complex64))]), dtype)


@refused("float64 parameters", "chunks hold float32, bfloat16 and float16; call .float()")
def of_double(dtype):
    engine(lambda: Two().double(), dtype)


@refused("lazy modules without a shape", "parameters without a shape (lazy modules): have model_func run a dummy batch")
def of_lazy(dtype):
    engine(lambda: nn.LazyLinear(4), dtype)


@refused("`DataParallel`", "have a process for each GPU, by torchrun")
def of_data_parallel(dtype):
    model, _ = engine(Two, dtype)
    nn.DataParallel(model)


@refused("`DistributedDataParallel`", "gradients are averaged over the ranks already; use the engine as it is")
def of_ddp(dtype):
    model, _ = engine(Two, dtype)
    nn.parallel.DistributedDataParallel(model)


@refused("`copy.deepcopy` of engine, module or optimizer", "copy model.state_dict()")
def of_deepcopy(dtype):
    model, _ = engine(Two, dtype)
    copy.deepcopy(model.module)


@refused("`pickle`, `torch.save` of engine or module", "save its state_dict()")
def of_pickle(dtype):
    model, _ = engine(Two, dtype)
    pickle.dumps(model)


@refused("another optimizer over the engine's parameters", "the optimizer of initialize_engine updates it, and "
         "optimizer.type of the configuration sets its kind")
def of_optimizer(dtype):
    model, _ = engine(Two, dtype)
    torch.optim.AdamW(model.parameters())


@refused("Lion and other kinds of optimizers", "optimizer.type")
def of_lion(dtype):
    initialize_engine(Two, 0, config(dtype, optimizer={"type": "Lion"}))


@refused("`amsgrad`, `maximize`", "of this library does not support that; leave it out")
def of_amsgrad(dtype):
    model, optimizer = engine(Two, dtype)
    optimizer.param_groups[0]["amsgrad"] = True
    once(model, optimizer, values(dtype=dtype))


@refused("`add_param_group`", "optimizer.param_groups of the configuration creates groups by patterns of names")
def of_add_group(dtype):
    _, optimizer = engine(Two, dtype)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


@refused("a `GradScaler`", "model.backward(loss) and optimizer.step() have the loss scale of fp16 already; leave the "
         "scaler out", (("torch", 2, 3),))
def of_scaler(dtype):
    model, optimizer = engine(Two, dtype)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(square(model(values(dtype=dtype)))).backward()
    scaler.step(optimizer)


@refused("`loss.backward()` with `gradient_accumulation_steps` in the configuration", "call model.backward(loss), which "
         "divides the loss by it and counts micro-batches")
def of_own_backward(dtype):
    model, _ = engine(Two, dtype, gradient_accumulation_steps=2)
    square(model(values(dtype=dtype))).backward()


@refused("parameters, or modules, added after `initialize_engine`", "is registered or replaced after initialize_engine; "
         "create it in model_func")
def of_registration(dtype):
    model, _ = engine(Two, dtype)
    model.module.c = nn.Parameter(torch.ones(2))


@refused("a module that an engine has already", "build the module again for each initialize_engine")
def of_second_engine(dtype):
    model, _ = engine(Two, dtype)
    initialize_engine(model=model.module, config=config(dtype))


@refused("`load_state_dict(assign=True)`", "values are copied there; leave assign out")
def of_assign(dtype):
    model, _ = engine(Two, dtype)
    model.load_state_dict(model.state_dict(), assign=True)


@refused("`torch.nn.utils.spectral_norm` by hooks", "use torch.nn.utils.parametrizations.spectral_norm")
def of_spectral_norm(dtype):
    engine(lambda: nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(4, 4))), dtype)


@refused("a graph that is older than the last step (PyTorch's own error)", "modified by an inplace operation")
def of_old_graph(dtype):
    model, optimizer = engine(Two, dtype)
    old = square(model(values(dtype=dtype)))
    once(model, optimizer, values(dtype=dtype))
    model.backward(old)


@refused("a parameter on meta that no initialiser gives a value", "and no initialiser of its module gives it a value: "
         "load a checkpoint into the model before")
def of_meta(dtype):
    engine(lambda: nn.ParameterList([nn.Parameter(torch.empty(2, device="meta"))]), dtype)


@refused("a model of BatchNorm alone in bf16, or all of it in a `torch_scope`", "stay outside of them as fp32")
def of_nothing(dtype):
    def make():
        with torch_scope():
            return Two()
    engine(make, dtype)
