"""What is refused (situations.py)."""
import copy
import pickle

import torch
import torch.nn as nn
import torch.nn.functional as F

from situations import section, refused, TORCH2, TORCH21
from support import Two, config, engine, once, square, values
from patrickstar import initialize_engine, torch_scope

section("Refused")


@refused("`torch.func.grad` and its relatives over parameters", "torch.func (grad, vjp, jacrev, hessian) of "
         "parameter a.weight, which is in chunks: use torch.autograd.grad, or pass a copy", TORCH2)
def of_func(dtype):
    model, _ = engine(Two, dtype)
    torch.func.grad(lambda w: F.linear(values(dtype=dtype), w).float().sum())(model.module.a.weight)


@refused("`functional_call`", "leave out what replaces parameters by tensors: FSDP, functional_call, torch.export",
         TORCH2)
def of_functional_call(dtype):
    model, _ = engine(Two, dtype)
    torch.func.functional_call(model.module, model.state_dict(), (values(dtype=dtype),))


@refused("`torch.jit.script` of a module", "torch.jit.script of a, whose parameters are in chunks: a script keeps "
         "their addresses, which change; load model.state_dict() into a module outside of chunks")
def of_script(dtype):
    model, _ = engine(Two, dtype)
    torch.jit.script(model.module.a)


@refused("`torch.jit.trace`",
         "a trace would keep its address, which is valid for one use")
def of_trace(dtype):
    model, _ = engine(Two, dtype)
    torch.jit.trace(model.module.a, values(dtype=dtype))


@refused("`torch.compile` of the model", "which is in chunks: parameters change their addresses between operators, "
         "which a compiled graph does not see", TORCH21)
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


@refused("`copy.deepcopy` of a module in chunks", "copy model.state_dict()")
def of_deepcopy(dtype):
    model, _ = engine(Two, dtype)
    copy.deepcopy(model.module)


@refused("`pickle` of the engine", "save its state_dict()")
def of_pickle(dtype):
    model, _ = engine(Two, dtype)
    pickle.dumps(model)


@refused("another optimizer over the engine's parameters", "the optimizer of initialize_engine updates it, and "
         "optimizer.type of the configuration sets its kind")
def of_optimizer(dtype):
    model, _ = engine(Two, dtype)
    torch.optim.AdamW(model.parameters())


@refused("Adagrad and other kinds of optimizers", "optimizer.type")
def of_adagrad(dtype):
    initialize_engine(Two, 0, config(dtype, optimizer={"type": "Adagrad"}))


@refused("`amsgrad`", "of this library does not support that; leave it out")
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


@refused("`loss.backward()` with `gradient_accumulation_steps` in the configuration",
         "call model.backward(loss), which divides the loss by it and counts micro-batches")
def of_own_backward(dtype):
    model, _ = engine(Two, dtype, gradient_accumulation_steps=2)
    square(model(values(dtype=dtype))).backward()


@refused("a parameter that is added after `initialize_engine`",
         "is registered or replaced after initialize_engine; create it in model_func")
def of_registration(dtype):
    model, _ = engine(Two, dtype)
    model.module.c = nn.Parameter(torch.ones(2))


@refused("`model.half()`, `.to(dtype)` after `initialize_engine`", "fp16.enabled")
def of_half(dtype):
    model, _ = engine(Two, dtype)
    model.half()


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


@refused("a model all of which is in a `torch_scope`", "stay outside of them as fp32")
def of_nothing(dtype):
    def make():
        with torch_scope():
            return Two()
    engine(make, dtype)
