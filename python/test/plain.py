"""Plain PyTorch with the interface of engine and optimizer: forward and backward over ordinary tensors, and the update
of the library, which rounds its Adam otherwise than torch.optim (test_optimizer.py compares these). So what a program
does with either has the same bits, unless hooks or chunks of the package do something else."""
import ctypes

import torch
import torch.nn as nn

from support import F32, config
from patrickstar import _client, _library

_NORMS = nn.modules.batchnorm._NormBase  # keep fp32 parameters where they have statistics in fp32


class Plain(nn.Module):
    def __init__(self, module, dtype, **changed):
        super().__init__()
        given = config(dtype, **changed)
        given["memory"] = {"device": "64MB", "host": "64MB", "disk": "256MB"}
        self.client = _client.Client(_client.Config(given))
        self.n_micro, self.n_backward = given.get("gradient_accumulation_steps", 1), 0
        self.numbers, self.dtypes = {}, {}
        for part in module.modules():
            keeps = isinstance(part, _NORMS) and part.running_mean is not None
            for param in part._parameters.values():
                if param is not None and param.is_floating_point():
                    self.dtypes[id(param)] = F32 if keeps else dtype
        self.params = {name: param for name, param in module.named_parameters() if id(param) in self.dtypes}
        for name, param in self.params.items():
            number, address = self.client.add(tuple(param.shape), F32, self.dtypes[id(param)] != dtype)
            first = param.detach().float().contiguous()
            ctypes.memmove(address, first.data_ptr(), first.numel() * 4)
            self.client.name(number, name, not param.requires_grad)
            self.numbers[name] = number
        self.client.begin()
        self.read_all()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def backward(self, loss, retain_graph=False):
        (loss / self.n_micro if self.n_micro != 1 else loss).backward(retain_graph=retain_graph)
        self.n_backward += 1

    def zero_grad(self, set_to_none=True):
        if self.n_backward % self.n_micro == 0:
            self.module.zero_grad(set_to_none=True)

    def named_parameters(self, *args, **kwargs):
        return self.module.named_parameters(*args, **kwargs)

    def read_all(self):
        with torch.no_grad():
            for name, value in self.masters().items():
                self.params[name].data = value.to(self.dtypes[id(self.params[name])], copy=True)

    def masters(self):
        return {name: self.client.read(self.numbers[name], None, param.shape) for name, param in self.params.items()}

    def state_dict(self):
        names = {id(param): name for name, param in self.params.items()}
        state, values = self.module.state_dict(keep_vars=True), self.masters()
        return {key: values[names[id(value)]] if id(value) in names else value.detach().clone()
                for key, value in state.items()}

    def load_state_dict(self, state):
        self.module.load_state_dict(state)
        for name in self.params:
            self.client.write(self.numbers[name], None, state[name])
        self.read_all()

    def write(self, name, value):
        """The fp32 value of a parameter, and the parameter from it."""
        self.client.write(self.numbers[name], None, value)
        self.read_all()

    def close(self):
        self.client.close()


class PlainOptimizer(torch.optim.Optimizer):
    def __init__(self, engine):
        self.engine, self.client = engine, engine.client
        self.known = self.client.get_groups()[0].lr
        super().__init__(list(engine.params.values()), {"lr": self.known})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        engine = self.engine
        if engine.n_backward % engine.n_micro != 0:
            return loss
        group = self.param_groups[0]
        if group["lr"] != self.known:  # the program has written it
            self.client.set_group(0, _library.ClientGroup(lr=group["lr"], weight_decay=float("nan"),
                                                          beta1=-1, beta2=-1, eps=-1))
        for name, param in engine.params.items():
            if param.grad is not None:
                self.client.give_gradient(engine.numbers[name], param.grad.contiguous(), True)
                param.grad = None
        self.client.moment(_library.FORWARD, "step")
        self.client.step()
        engine.read_all()
        engine.n_backward = 0
        if group["lr"] == self.known:  # the rate of a schedule of the configuration
            group["lr"] = self.client.get_groups()[0].lr
        self.known = self.client.get_groups()[0].lr
        return loss

    def zero_grad(self, set_to_none=True):
        self.engine.zero_grad()
