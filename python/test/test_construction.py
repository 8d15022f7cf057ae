"""Models are built straight into chunks: whatever model_func does with parameters comes out as in plain PyTorch."""
import copy
import unittest

import torch
import torch.nn as nn

from support import BF16, F32, VERSION, WIDTH, Case, Two, config, engine, master, masters, once, square, values
from patrickstar import Refused, torch_scope
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


class Mixed(nn.Module):
    """Modules of torch.nn of several kinds, by name of their arguments."""

    def __init__(self, **where):
        super().__init__()
        self.embedding = nn.Embedding(9, WIDTH, padding_idx=3, **where)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True, **where)
        self.memory = nn.LSTM(WIDTH, WIDTH, batch_first=True, **where)
        self.norm = nn.BatchNorm1d(5, **where)
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH, **where), nn.LayerNorm(WIDTH, **where),
                                    nn.Linear(WIDTH, 9, **where))
        self.layers[2].weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        x = x + self.attention(x, x, x)[0]
        return self.layers(self.norm(self.memory(x)[0]))


class Bare(nn.Module):
    """A parameter and a table that only the constructor fills, beside a linear module."""

    def __init__(self, **where):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH, **where)
        self.w = nn.Parameter(torch.randn(4, **where))
        self.register_buffer("table", torch.arange(WIDTH, dtype=torch.float32, **where), persistent=False)


class Meta(Case):
    """Modules on the meta device: given as they are, built by a function or in a block of patrickstar.init."""

    def test_bits_of_the_constructors(self):
        torch.manual_seed(0)
        plain = Mixed()
        with torch.no_grad():
            plain.layers[2].weight.normal_()  # of the module that comes last of those it is tied in
        given = Mixed(device="meta")
        torch.manual_seed(0)
        model, optimizer = initialize_engine(model=given, config=config(F32))
        self.assertIs(model.module.layers[2].weight, model.module.embedding.weight)
        state = model.state_dict()
        for name, value in plain.state_dict().items():
            if name not in ("embedding.weight", "layers.2.weight", "layers.2.bias"):
                self.assertTrue(torch.equal(state[name], value), name)
        model.backward(square(model(torch.arange(20).view(4, 5) % 9)))
        optimizer.step()

    def test_in_a_function(self):
        def make():
            model = Two.__new__(Two)
            nn.Module.__init__(model)
            model.a = nn.Linear(WIDTH, WIDTH, device="meta")
            model.b = nn.Linear(WIDTH, WIDTH, device="meta")
            model.b.weight = model.a.weight
            model.run = lambda s, x: s.b(s.a(x))
            return model
        torch.manual_seed(0)
        expected = nn.Linear(WIDTH, WIDTH).weight
        torch.manual_seed(0)
        model, optimizer = initialize_engine(make, 0, config())
        self.assertIs(model.module.b.weight, model.module.a.weight)
        self.assertEqual(master(model, "a.weight").shape, expected.shape)
        self.assertTrue(.05 < master(model, "a.weight").std() < .3)
        once(model, optimizer, values())

    def test_what_has_no_value_is_refused(self):
        given = Bare(device="meta")
        for call in (lambda: initialize_engine(model=given, config=config()), lambda: engine(lambda: given)):
            self.refused(call, "w, table are on meta, and no initialiser of their modules gives them values: load a "
                               "checkpoint", Refused)
            self.assertEqual({tensor.device.type for tensor in (given.w, given.a.weight, given.table)}, {"meta"})

        class Counted(nn.Linear):
            def __init__(self, **where):
                super().__init__(WIDTH, WIDTH, **where)
                self.register_buffer("positions", torch.arange(4, **where))
        self.refused(lambda: engine(lambda: Counted(device="meta")), "positions is on meta, and no initialiser of its",
                     Refused)

    @unittest.skipIf(VERSION < (2, 1), "load_state_dict(assign=True) is of PyTorch 2.1")
    def test_a_checkpoint_that_is_loaded_before(self):
        plain = Bare()
        given = Bare(device="meta")
        given.load_state_dict(plain.state_dict(), assign=True)
        given.table = torch.zeros(WIDTH)
        model, _ = initialize_engine(model=given, config=config(F32))
        for name, value in plain.state_dict().items():
            self.assertTrue(torch.equal(model.state_dict()[name], value), name)

    def test_a_part_that_has_values(self):
        """It keeps them, as of a checkpoint that lacks the rest; also where an initialiser would set them."""
        class Parent(nn.Module):
            def __init__(self, **where):
                super().__init__()
                self.a, self.b = nn.Linear(WIDTH, WIDTH, **where), nn.Linear(WIDTH, WIDTH, **where)

            def reset_parameters(self):
                self.a.reset_parameters(), self.b.reset_parameters()
        given = Parent(device="meta")
        weight = torch.full((WIDTH, WIDTH), 7.)
        given.a.weight = nn.Parameter(weight.clone())  # as load_state_dict(strict=False, assign=True) does
        model, _ = initialize_engine(model=given, config=config(F32))
        state = model.state_dict()
        self.assertTrue(torch.equal(state["a.weight"], weight))
        for name in ("a.bias", "b.weight", "b.bias"):
            self.assertTrue(0 < state[name].abs().max() < 1, name)

    def test_init_weights(self):
        """By the model's method, as of transformers or of Module.apply, if that takes a module."""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.norm = nn.Linear(WIDTH, WIDTH, device="meta"), nn.LayerNorm(WIDTH, device="meta")

            def _init_weights(self, module):
                if isinstance(module, nn.Linear):
                    nn.init.constant_(module.weight, 3), nn.init.zeros_(module.bias)

        class Other(Model):
            def _init_weights(self):
                raise AssertionError("called")
        state = engine(Model, F32)[0].state_dict()
        self.assertEqual([state[name].unique().tolist() for name in state], [[3], [0], [1], [0]])
        state = engine(Other, F32)[0].state_dict()
        self.assertTrue(.05 < state["a.weight"].std() < .3)

    def test_values_that_a_constructor_gives_to_modules_inside_are_named(self):
        class Adapter(nn.Module):
            def __init__(self, **where):
                super().__init__()
                self.b = nn.Linear(WIDTH, WIDTH, **where)
                nn.init.zeros_(self.b.weight)
        with self.assertLogs("patrickstar", "WARNING") as logged:
            initialize_engine(model=nn.Sequential(Adapter(device="meta")), config=config(F32))
        self.assertIn("the constructor of Adapter gave them", "".join(logged.output))
        with self.assertNoLogs("patrickstar", "WARNING"):
            initialize_engine(model=nn.Sequential(nn.Linear(WIDTH, WIDTH, device="meta")), config=config(F32))

    def test_initialisers_of_modules_that_contain_others(self):
        class Parent(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(2)])
                self.scale = nn.Parameter(torch.empty(3, device="meta"))

            def reset_parameters(self):
                nn.init.constant_(self.layers[1].weight, 3)
                nn.init.ones_(self.scale)
        state = engine(Parent, F32)[0].state_dict()
        self.assertEqual(state["layers.1.weight"].unique().tolist(), [3])
        self.assertEqual(state["scale"].tolist(), [1, 1, 1])
        self.assertTrue(.05 < state["layers.0.weight"].std() < .3)


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
