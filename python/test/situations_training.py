"""What programs do with autograd and in their training loops (situations.py)."""
import io
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from situations import section, trains, loop, SUMS, two, mlp, step_of, TORCH2, TORCH21, TRANSFORMERS
from situations_modules import CHUNK, gpt2, tokens
from support import BF16, F32, VERSION, WIDTH, Two, module_of, square, values

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
                     scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": .1, "warmup_num_steps": 3}},
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


@loop("batches of a `DataLoader` with a worker process")
def loaders(dtype):
    def run(model, optimizer):
        data = torch.utils.data.TensorDataset(values(8, WIDTH, dtype=F32))
        for epoch in range(2):
            for x, in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=1):
                loss = square(model(x.to(dtype)))
                model.backward(loss)
                optimizer.step()
                yield loss
    return Two, run


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
