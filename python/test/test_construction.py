"""Models are built straight into chunks: whatever model_func does with parameters comes out as in plain PyTorch."""
import copy
import unittest

import torch
import torch.nn as nn

from support import BF16, F32, VERSION, WIDTH, Case, Two, config, engine, master, masters, once, values
from patrickstar import torch_scope
from patrickstar._torch import no_torch_function
from patrickstar.runtime import initialize_engine


class Busy(nn.Module):
    """Reads, writes, ties, copies, replaces and loads its parameters while it is built."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        w = self.a.weight
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(30)])
        self.b = nn.Linear(WIDTH, WIDTH)
        for param in self.parameters():
            if param.dim() > 1:
                nn.init.xavier_uniform_(param)
        with torch.no_grad():
            self.b.weight.copy_(w)
            self.b.bias.data.fill_(3.)
            self.layers[0].weight[0, 0] = 7
        self.layers[1].weight = self.layers[2].weight
        self.layers[3] = copy.deepcopy(self.layers[0])
        self.layers[4].weight.data = torch.ones(WIDTH, WIDTH)
        self.layers[5].weight.data = torch.ones(4, WIDTH)  # of another shape
        self.layers[5].bias = nn.Parameter(torch.zeros(4))
        self.layers[6] = self.layers[6].half().float()
        del self.layers[7]
        self.load_state_dict({key: value + 1 for key, value in self.state_dict().items()})


class Scoped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        with torch_scope():
            self.b = nn.Linear(WIDTH, WIDTH)
        self.c = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Built(Case):
    def test_by_a_busy_function(self):
        for kind in (None, BF16):
            def make():
                model = Busy()
                return model if kind is None else model.to(kind)
            with self.subTest(cast=kind):
                torch.manual_seed(0)
                plain = make()
                model, _ = engine(make)
                state = model.state_dict()
                self.assertEqual(list(state), list(plain.state_dict()))
                for name, value in plain.state_dict().items():
                    self.assertTrue(torch.equal(value.float(), state[name]), name)
                self.assertIs(model.module.layers[1].weight, model.module.layers[2].weight)
                self.assertEqual(model.client.get_info().parameters, sum(p.numel() for p in plain.parameters()))

    def test_data_replaced_past_functions_of_parameters(self):
        def set_(param, tensor):
            param.set_(tensor)

        def data(param, tensor):
            with no_torch_function():
                param.data = tensor

        for replace in (set_, data):
            for shape in ((WIDTH, WIDTH), (4, WIDTH)):
                def make():
                    model = nn.Linear(WIDTH, WIDTH)
                    with torch.no_grad():
                        replace(model.weight, torch.full(shape, 7.))
                    return model
                with self.subTest(replace=replace.__name__, shape=shape):
                    state = engine(make, F32)[0].state_dict()
                    self.assertTrue(torch.equal(state["weight"], torch.full(shape, 7.)))

        def part():
            model = Two()
            model.a.weight.data.copy_(torch.arange(WIDTH * WIDTH).view(WIDTH, WIDTH))
            with torch.no_grad():
                model.a.weight.set_(model.a.weight.detach()[:4])  # on its memory
                model.b.weight.set_(torch.arange(WIDTH * WIDTH).float().view(WIDTH, WIDTH).t())
            return model
        state = engine(part, F32)[0].state_dict()
        self.assertTrue(torch.equal(state["a.weight"], torch.arange(4. * WIDTH).view(4, WIDTH)))
        self.assertTrue(torch.equal(state["b.weight"], torch.arange(1. * WIDTH * WIDTH).view(WIDTH, WIDTH).t()))

    def test_elsewhere(self):
        plain = Two()
        before = copy.deepcopy(plain.state_dict())
        for given in (lambda: plain, plain):
            plain = Two()
            plain.load_state_dict(before)
            model, optimizer = initialize_engine(plain if given is not plain else given, 0, config())
            once(model, optimizer, values())
            self.assertEqual(len(model.front.slots), 4)

    def test_of_lazy_modules(self):
        def make():
            model = nn.Sequential(nn.LazyLinear(WIDTH), nn.LazyLinear(WIDTH))
            model(torch.ones(1, WIDTH))
            return model
        model, optimizer = engine(make)
        self.assertEqual(len(model.front.slots), 4)
        once(model, optimizer, values())

    def test_numbers_format(self):
        model, _ = engine(lambda: Two().to(BF16), F32)
        self.assertEqual(model.module.a.weight.dtype, F32)
        model, _ = engine(Two, BF16)
        self.assertEqual(model.module.a.weight.dtype, BF16)

    @unittest.skipIf(VERSION < (2, 0), "PyTorch 1.13 has no torch.device context")
    def test_on_meta(self):
        def make():
            with torch.device("meta"):
                model = Two()
                model.b.weight = model.a.weight
            return model
        model, optimizer = engine(make)
        self.assertIs(model.module.b.weight, model.module.a.weight)
        std = master(model, "a.weight").std()
        self.assertTrue(.05 < std < .3, std)
        once(model, optimizer, values())

    @unittest.skipIf(VERSION < (2, 0), "PyTorch 1.13 has no torch.device context")
    def test_on_meta_without_a_way_to_initialise(self):
        class Bare(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(4))

        def make():
            with torch.device("meta"):
                return Bare()
        self.refused(lambda: engine(make), "reset_parameters")

    def test_buffers_and_integers_stay_of_pytorch(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(WIDTH))
                self.table = nn.Parameter(torch.arange(4), requires_grad=False)
                self.register_buffer("seen", torch.zeros(()))
                self.register_buffer("hidden", torch.ones(2), persistent=False)

            def forward(self, x):
                self.seen += 1
                return x * self.w + self.table.sum()
        model, optimizer = engine(Mixed)
        once(model, optimizer, values())
        state = model.state_dict()
        self.assertEqual(sorted(state), ["seen", "table", "w"])
        self.assertEqual(state["seen"], 1)
        self.assertEqual(len(model.front.slots), 1)

    def test_nothing_is_left_of_the_patches(self):
        init, new = nn.Module.__init__, nn.Parameter.__new__
        engine(Two)
        self.assertIs(nn.Module.__init__, init)
        self.assertIs(nn.Parameter.__new__, new)
        self.assertIs(type(nn.Linear(2, 2).weight), nn.Parameter)
        self.refused(lambda: engine(lambda: 1 / 0), "division", ZeroDivisionError)
        self.assertIs(nn.Module.__init__, init)

    def test_memory_of_parameters_that_are_done_may_leave(self):
        from patrickstar import _client
        told = []
        real = _client.Client.release
        _client.Client.release = lambda client, number: (told.append(number), real(client, number))[1]
        try:
            def make():
                model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(12)])
                self.assertEqual(sorted(set(told)), list(range(12 - 8)))  # the staging file keeps 32 MB of 48
                return model
            engine(make, F32, memory__device="256MB", default_chunk_size=1 << 20)
        finally:
            _client.Client.release = real


class Kept(Case):
    """What a program keeps of a parameter's memory while the model is built."""

    def test_views_are_refused(self):
        kept = []

        def make():
            model = Two()
            kept.append(model.a.weight.data)
            return model
        self.refused(lambda: engine(make), "a.weight")
        kept.clear()

        def replaced():
            model = Two()
            kept.append(model.a.weight.data[0])
            model.a.weight = model.b.weight
            return model
        self.refused(lambda: engine(replaced), "no longer in the model")

    def test_parameters_that_left_the_model_get_memory_of_their_own(self):
        kept = []

        def make():
            model = Two()
            kept.append(model.a.weight)
            model.a.weight = model.b.weight
            return model
        model, _ = engine(make)
        self.assertIs(type(kept[0]), nn.Parameter)
        self.assertTrue(.05 < kept[0].std() < .3)

    def test_sharing_by_data_is_refused(self):
        def make():
            model = Two()
            model.a.weight.data = model.b.weight.data
            return model
        self.refused(lambda: engine(make), "assigning the parameter")


class Scope(Case):
    def test_parameters_are_fp32_and_trained(self):
        model, optimizer = engine(Scoped)
        slots = {slot.name: slot for slot in model.front.slots}
        self.assertEqual([name for name in slots if slots[name].is_unmanaged], ["b.weight", "b.bias"])
        self.assertEqual(model.module.b.weight.dtype, F32)
        self.assertEqual(model.module.a.weight.dtype, BF16)
        seen = []
        model.module.b.register_forward_hook(lambda m, i, o: seen.append((i[0].dtype, o.dtype)))
        before = masters(model)
        once(model, optimizer, values())
        self.assertEqual(seen, [(BF16, F32)])
        for name, value in masters(model).items():
            self.assertFalse(torch.equal(value, before[name]), name)

    def test_bits_are_those_of_plain_pytorch(self):
        plain = Scoped()
        model, optimizer = engine(Scoped)
        plain.load_state_dict(model.state_dict())
        plain.a.bfloat16()
        plain.c.bfloat16()
        x = values()
        y = plain.c(plain.b(plain.a(x).float()).bfloat16())
        self.assertTrue(torch.equal(model(x), y))

    def test_it_does_nothing_in_plain_pytorch(self):
        self.assertIs(type(Scoped().b.weight), nn.Parameter)


if __name__ == "__main__":
    unittest.main()
