"""The optimizer: torch.optim's numbers, groups, schedulers and state."""
import copy
import io
import tempfile
import unittest

import torch
import torch.nn as nn

from patrickstar.runtime.optimizer import templates
from support import BF16, F32, LR, WIDTH, Case, Two, engine, master, masters, once, square, values


def plain_of(model, kind=torch.optim.AdamW, **numbers):
    plain = Two()
    plain.load_state_dict(model.state_dict())
    return plain, kind(plain.parameters(), lr=LR, **numbers)


def plain_step(plain, optimizer, x):
    optimizer.zero_grad()
    loss = square(plain(x))
    loss.backward()
    optimizer.step()
    return loss.item()


class Lion(torch.optim.Optimizer):
    """As arXiv 2302.06675 writes it."""

    def __init__(self, params, lr=1e-4, betas=(.9, .99), weight_decay=0.):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for param in group["params"]:
                mean = self.state[param].setdefault("exp_avg", torch.zeros_like(param))
                direction = (mean * first + param.grad * (1 - first)).sign()
                param.sub_(group["lr"] * (direction + group["weight_decay"] * param))
                mean.mul_(second).add_(param.grad, alpha=1 - second)


class Updates(Case):
    def compare(self, kind, options, **numbers):
        model, optimizer = engine(Two, F32, optimizer={"type": kind.__name__, "params": {"lr": LR, **options}})
        plain, theirs = plain_of(model, kind, **numbers)
        for _ in range(5):
            x = values(dtype=F32)
            optimizer.zero_grad()
            loss = square(model(x))
            model.backward(loss)
            optimizer.step()
            self.assertAlmostEqual(loss.item(), plain_step(plain, theirs, x), delta=1e-5)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(model, name), atol=1e-5), name)
        return model, optimizer, plain, theirs

    def test_adamw(self):
        self.compare(torch.optim.AdamW, {"weight_decay": .1}, weight_decay=.1)

    def test_adam(self):
        self.compare(torch.optim.Adam, {"weight_decay": .1, "betas": [.8, .9], "eps": 1e-6}, weight_decay=.1,
                     betas=(.8, .9), eps=1e-6)

    def test_sgd(self):
        self.compare(torch.optim.SGD, {"momentum": .9, "nesterov": True}, momentum=.9, nesterov=True)

    def test_lion(self):
        _, optimizer, plain, theirs = self.compare(Lion, {"weight_decay": .1, "betas": [.8, .9]}, weight_decay=.1,
                                                   betas=(.8, .9))
        self.assertEqual(set(optimizer.param_groups[0]), {"params", "lr", "weight_decay", "betas"})
        saved = optimizer.state_dict()
        theirs.load_state_dict(saved)  # has no step
        for param, values_of in zip(plain.parameters(), saved["state"].values()):
            self.assertEqual(list(values_of), ["exp_avg"])
            self.assertTrue(torch.equal(theirs.state[param]["exp_avg"], values_of["exp_avg"]))

    def test_lion_of_a_program(self):
        self.assertEqual(engine(Two, F32, optimizer={"type": "Lion"})[1].param_groups[0]["betas"], (.9, .99))
        model, optimizer = engine(Two, F32, optimizer={"type": "Lion", "params": {"lr": LR}})
        with templates():
            given = Lion(model.parameters(), lr=LR / 2, betas=(.7, .8), weight_decay=.2)
        self.refused(lambda: optimizer.take_over(given), "or Lion of lion_pytorch, pytorch_optimizer, bitsandbytes")
        self.addCleanup(setattr, Lion, "__module__", Lion.__module__)
        Lion.__module__ = "lion_pytorch.lion_pytorch"
        given.param_groups[0]["cautious"] = True
        self.refused(lambda: optimizer.take_over(given), "param_groups[0]['cautious'] = True")
        given.param_groups[0]["cautious"] = False
        optimizer.take_over(given)
        once(model, optimizer, values(dtype=F32))
        told = model.client.get_groups()[0]
        self.assertEqual((told.lr, told.beta1, told.beta2, told.weight_decay), (LR / 2, .7, .8, .2))

    def near_states(self, optimizer, plain, theirs, keys):
        """States are given in fp32, and are PyTorch's as far as 8 bits can say."""
        for param, kept in zip(plain.parameters(), optimizer.state_dict()["state"].values()):
            for key in keys:
                want = theirs.state[param][key]
                self.assertEqual(kept[key].dtype, F32)
                self.assertFalse(torch.equal(kept[key], want))
                self.assertLess((kept[key] - want).abs().max().item(), want.abs().max().item() / 10)

    def resumes(self, run, other):
        """Another model and optimizer go on from the state dictionaries of these with the same bits."""
        for mine, theirs in zip(run, other):
            theirs.load_state_dict(mine.state_dict())
        for _ in range(2):
            x = values(dtype=F32)
            once(*run, x)
            once(*other, x)
        self.same_masters(run[0], other[0])

    def test_compact_states(self):
        compact = {"type": "AdamW", "params": {"lr": LR, "state_format": "compact"}}
        model, optimizer = engine(Two, F32, optimizer=compact)
        other, resumed = engine(Two, F32, optimizer=compact)
        plain, theirs = plain_of(model, weight_decay=0)
        for _ in range(5):
            x = values(dtype=F32)
            once(model, optimizer, x)
            plain_step(plain, theirs, x)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(model, name), atol=LR / 2), name)
        self.near_states(optimizer, plain, theirs, ("exp_avg", "exp_avg_sq"))
        self.resumes((model, optimizer), (other, resumed))
        self.assertLess(model.client.get_info().model_data_bytes,
                        engine(Two, F32)[0].client.get_info().model_data_bytes * .75)
        with self.assertRaisesRegex(RuntimeError, "compact has no effect without optimizer.params.momentum"):
            engine(Two, F32, optimizer={"type": "SGD", "params": {"state_format": "compact"}})

    def test_compact_split(self):
        """Weights of compact but for one element in 2^17, states alike; in any memory, early or not, saved and resumed."""
        def of(kind, **more):
            return engine(Two, BF16, optimizer={"type": "AdamW", "params": {"lr": LR, "state_format": kind}}, **more)

        def train(run, first=0, n=4, micro=1):
            for t in range(first, first + n):
                torch.manual_seed(t)
                for _ in range(micro):
                    once(*run, values())
            return run
        small = {"memory__device": "40MB", "memory__host": 0}
        whole, split = train(of("compact")), train(of("compact_split"))
        self.assertEqual(split[1].last_step.n_restored, 0)
        theirs, mine = masters(whole[0]), masters(split[0])
        for name, value in theirs.items():
            self.assertEqual(mine[name].dtype, F32)
            self.assertFalse(torch.equal(value, value.to(BF16).float()), name)
            self.assertLess((mine[name] - value).abs().max().item(), 2e-6 * value.abs().max().item())
            self.assertTrue(torch.equal(mine[name].to(BF16), value.to(BF16)), name)
        for more in (small, {**small, "gradient_clipping": 0, "train__max_nonfinite_steps": 1,
                             "memory__update_in_backward": "always"}):
            base, other = train(of("compact_split", gradient_clipping=more.get("gradient_clipping", 1.))), train(
                of("compact_split", **{"gradient_clipping": 1., **more}))
            self.same_masters(base[0], other[0])
        saved, weights = split[1].state_dict(), split[0].state_dict()
        other = of("compact_split")
        other[0].load_state_dict(weights)
        other[1].load_state_dict(saved)
        self.assertEqual(saved["state"][0]["exp_avg"].dtype, F32)
        with tempfile.TemporaryDirectory() as folder:
            split[0].save_checkpoint(folder)
            resumed, converted = of("compact_split", **small), of("fp32")
            resumed[0].load_checkpoint(folder)
            converted[0].load_checkpoint(folder)
        self.same_masters(split[0], converted[0])
        self.same_masters(train(split, 4)[0], train(resumed, 4)[0])
        with torch.no_grad():  # a written parameter keeps the 16 bits beside it
            resumed[0].module.a.weight.fill_(0.5)
        self.assertLess((masters(resumed[0])["a.weight"] - 0.5).abs().max().item(), 2 ** -9)
        self.assertTrue(bool((resumed[0].module.a.weight == 0.5).all()))
        several = [train(of("compact_split", gradient_accumulation_steps=2, **more), micro=2) for more in ({}, small)]
        self.same_masters(several[0][0], several[1][0])
        with self.assertRaisesRegex(RuntimeError, "compact_split"):
            engine(Two, F32, optimizer={"type": "AdamW", "params": {"state_format": "compact_split"}})

    def test_bf16_stochastic(self):
        """Bf16 weights, near those of fp32 masters; the same bits in any memory, early or not, saved and resumed."""
        def of(**more):
            params = {"lr": LR, "state_format": "bf16_stochastic"}
            return engine(Two, BF16, optimizer={"type": "AdamW", "params": params}, **more)

        def train(run, first=0, n=4):
            for t in range(first, first + n):
                torch.manual_seed(t)
                once(*run, values())
            return run
        small = {"memory__device": "40MB", "memory__host": 0}
        model, optimizer = train(of())
        mine = masters(model)
        for name, value in mine.items():
            self.assertEqual(value.dtype, F32)
            self.assertTrue(torch.equal(value, value.to(BF16).float()), name)
        self.same_masters(model, train(of(**small))[0])
        late = train(of(gradient_clipping=0))
        self.same_masters(late[0], train(of(**small, gradient_clipping=0, train__max_nonfinite_steps=1,
                                            memory__update_in_backward="always"))[0])
        other = masters(train(of(train__seed=5))[0])
        self.assertFalse(all(torch.equal(other[name], value) for name, value in mine.items()))
        whole = masters(train(engine(Two, BF16, optimizer={"type": "AdamW", "params": {"lr": LR}}))[0])
        for name, value in whole.items():  # rounded once in each of 4 steps, up or down
            self.assertLess((mine[name] - value).abs().max().item(), 2 ** -6 * value.abs().max().item() + LR)
        saved = optimizer.state_dict()
        self.assertEqual(saved["state"][0]["exp_avg"].dtype, F32)
        self.assertGreater(saved["state"][0]["exp_avg"].abs().max().item(), 0)
        resumed = of()
        resumed[0].load_state_dict(model.state_dict())
        resumed[1].load_state_dict(saved)
        with tempfile.TemporaryDirectory() as folder:
            model.save_checkpoint(folder)
            loaded = of(**small)
            loaded[0].load_checkpoint(folder)
        train((model, optimizer), 4)
        self.same_masters(model, train(loaded, 4)[0])
        self.same_masters(model, train(resumed, 4)[0])

    def test_compact_momentum(self):
        """Of SGD: beside PyTorch's, and resumed with the same bits."""
        compact = {"type": "SGD", "params": {"lr": LR, "momentum": .9, "state_format": "compact"}}
        model, optimizer = engine(Two, F32, optimizer=compact)
        other, resumed = engine(Two, F32, optimizer=compact)
        plain = Two().to(F32)
        plain.load_state_dict(model.state_dict())
        theirs = torch.optim.SGD(plain.parameters(), lr=LR, momentum=.9)
        for _ in range(5):
            x = values(dtype=F32)
            once(model, optimizer, x)
            plain_step(plain, theirs, x)
        self.near_states(optimizer, plain, theirs, ("momentum_buffer",))
        self.resumes((model, optimizer), (other, resumed))

    def test_step_gives_what_closure_gave(self):
        model, optimizer = engine(Two)
        x = values()

        def closure():
            loss = square(model(x))
            model.backward(loss)
            return loss
        expected = square(model(x)).item()
        self.assertEqual(optimizer.step(closure).item(), expected)
        self.assertIsNone(optimizer.step())

    def test_step_without_gradients(self):
        for more in ({}, {"gradient_accumulation_steps": 2}):
            model, optimizer = engine(Two, scheduler={"type": "WarmupLR", "params": {
                "warmup_max_lr": LR, "warmup_num_steps": 10, "warmup_type": "linear"}}, **more)
            n = more.get("gradient_accumulation_steps", 1)

            def update():
                for _ in range(n):
                    model.backward(square(model(values())))
                    optimizer.step()
            rate, before = optimizer.param_groups[0]["lr"], masters(model)
            for _ in range(3):
                optimizer.step()
                self.assertEqual((optimizer.last_step.step, optimizer.last_step.is_skipped), (0, False))
            self.assertEqual(optimizer.param_groups[0]["lr"], rate)
            self.assertTrue(all(torch.equal(before[name], value) for name, value in masters(model).items()))
            update()
            self.assertEqual(optimizer.last_step.step, 1)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            self.assertEqual((optimizer.last_step.step, optimizer.param_groups[0]["lr"]), (1, rate))
            update()
            self.assertEqual(optimizer.last_step.step, 2)
            self.assertNotEqual(optimizer.param_groups[0]["lr"], rate)


class Groups(Case):
    def test_numbers_act_in_the_next_step(self):
        model, optimizer = engine(Two, F32)
        plain, theirs = plain_of(model, weight_decay=0)
        for t in range(6):
            for o in (optimizer, theirs):
                o.param_groups[0]["lr"] = LR / (t + 1)
                if t == 3:
                    o.param_groups[0].update(betas=(.5, .6), weight_decay=.3, eps=1e-3)
            x = values(dtype=F32)
            once(model, optimizer, x)
            plain_step(plain, theirs, x)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(model, name), atol=1e-5), name)

    def test_betas_that_are_none(self):
        model, optimizer = engine(Two, F32)
        for betas in (.9, (.9,), (.9, 1.), (-.1, .9), ("x", .9), None):
            optimizer.param_groups[0]["betas"] = betas
            with self.assertRaisesRegex(RuntimeError, r"param_groups\[0\]\['betas'\] is .*two numbers"):
                once(model, optimizer, values(dtype=F32))
        with self.assertRaisesRegex(RuntimeError, r"two numbers in \[0, 1\), not \[0.9,1.5\]"):
            engine(Two, F32, optimizer={"type": "Adam", "params": {"betas": [.9, 1.5]}})

    def test_schedulers_of_pytorch(self):
        model, optimizer = engine(Two, F32)
        plain, theirs = plain_of(model, weight_decay=0)
        schedulers = [torch.optim.lr_scheduler.OneCycleLR(o, max_lr=.1, total_steps=6, cycle_momentum=False)
                      for o in (optimizer, theirs)]
        for _ in range(5):
            x = values(dtype=F32)
            once(model, optimizer, x)
            plain_step(plain, theirs, x)
            for scheduler in schedulers:
                scheduler.step()
            self.assertEqual(optimizer.param_groups[0]["lr"], theirs.param_groups[0]["lr"])
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(model, name), atol=1e-5), name)

    def test_the_scheduler_of_the_configuration(self):
        model, optimizer = engine(Two, F32, scheduler={"type": "linear", "params": {
            "total_num_steps": 4, "warmup_num_steps": 0}})
        rates = []
        for _ in range(4):
            rates.append(optimizer.param_groups[0]["lr"])
            once(model, optimizer, values(dtype=F32))
        self.assertEqual(rates, [LR, LR * .75, LR * .5, LR * .25])

    def test_groups_of_the_configuration(self):
        model, optimizer = engine(Two, F32, optimizer={"type": "AdamW", "params": {"lr": LR}, "param_groups": [
            {"params": "*.bias", "lr": .5, "weight_decay": .25}]})
        self.assertEqual([len(group["params"]) for group in optimizer.param_groups], [2, 2])
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [LR, .5])
        self.assertEqual([group["weight_decay"] for group in optimizer.param_groups], [0, .25])
        before = masters(model)
        optimizer.param_groups[0]["lr"] = 0.
        once(model, optimizer, values(dtype=F32))
        self.assertTrue(torch.equal(before["a.weight"], master(model, "a.weight")))
        self.assertFalse(torch.equal(before["a.bias"], master(model, "a.bias")))

    def test_what_was_refused_acts_no_more(self):
        model, optimizer = engine(Two)
        group = optimizer.param_groups[0]
        group["lr"] = .5
        once(model, optimizer, values())
        group["lr"] = -1.
        self.refused(lambda: once(model, optimizer, values()), "at least 0")
        group.update(lr=.5, weight_decay=.25)
        once(model, optimizer, values())
        told = model.client.get_groups()[0]
        self.assertEqual((told.lr, told.weight_decay), (.5, .25))

    def test_what_is_not_done(self):
        for kind, keys in (("AdamW", ("amsgrad", "maximize", "momentum")), ("SGD", ("amsgrad", "maximize"))):
            model, optimizer = engine(Two, F32, optimizer={"type": kind, "params": {"lr": LR}})
            before, group = masters(model), optimizer.param_groups[0]
            for key in keys:
                group[key] = True
                self.refused(lambda: once(model, optimizer, values(dtype=F32)), "[%r] = True" % key)
                state = {"state": {}, "param_groups": [{"params": list(range(len(group["params"]))), key: True}]}
                self.refused(lambda: optimizer.load_state_dict(state), "[%r] = True" % key)
                group[key] = False
            for name, value in masters(model).items():
                self.assertTrue(torch.equal(value, before[name]), name)
            group["name"] = "all"  # the program's own matter
            once(model, optimizer, values(dtype=F32))

    def test_wrong_numbers(self):
        model, optimizer = engine(Two, optimizer={"type": "SGD", "params": {"lr": LR, "momentum": .9}})
        optimizer.param_groups[0]["momentum"] = .5
        self.refused(lambda: once(model, optimizer, values()), "optimizer.params.momentum")
        optimizer.param_groups[0].update(momentum=.9, lr=-1.)
        self.refused(optimizer.step, "at least 0")
        self.refused(lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
                     "optimizer.param_groups")


class State(Case):
    def trained(self, n=3, dtype=F32, **options):
        model, optimizer = engine(Two, dtype, **options)
        for t in range(n):
            torch.manual_seed(t)
            once(model, optimizer, values(dtype=dtype))
        return model, optimizer

    def test_going_on_from_saved_states_has_the_same_bits(self):
        for dtype in (F32, BF16):
            model, optimizer = self.trained(dtype=dtype)
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file)
            other, theirs = engine(Two, dtype)
            other.load_state_dict(saved["model"])
            theirs.load_state_dict(saved["optimizer"])
            for t in range(3):
                x = values(dtype=dtype)
                once(model, optimizer, x)
                once(other, theirs, x)
            for name, value in masters(model).items():
                self.assertTrue(torch.equal(value, master(other, name)), name)
            self.assertEqual(theirs.last_step.step, 6)

    def test_to_and_from_adamw_of_pytorch(self):
        model, optimizer = self.trained()
        plain, theirs = plain_of(model, weight_decay=0)
        theirs.load_state_dict(optimizer.state_dict())
        x = values(dtype=F32)
        once(model, optimizer, x)
        plain_step(plain, theirs, x)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(model, name), atol=1e-6), name)
        self.assertEqual(float(theirs.state[plain.a.weight]["step"]), 4)
        other, ours = engine(Two, F32)
        other.load_state_dict(plain.state_dict())
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        x = values(dtype=F32)
        once(other, ours, x)
        plain_step(plain, theirs, x)
        self.assertEqual(ours.last_step.step, 5)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.allclose(param, master(other, name), atol=1e-6), name)

    def test_a_parameter_that_was_never_updated_has_no_state(self):
        model, optimizer = engine(lambda: Two(lambda s, x: s.b(x)), F32)
        once(model, optimizer, values(dtype=F32))
        self.assertEqual(sorted(optimizer.state_dict()["state"]), [2, 3])

    def test_a_state_that_does_not_fit_changes_nothing(self):
        model, optimizer = self.trained()
        state = optimizer.state_dict()
        wrong = copy.deepcopy(state)
        wrong["state"][1]["exp_avg"] = torch.zeros(3)
        self.refused(lambda: optimizer.load_state_dict(wrong), "a.bias", ValueError)
        wrong = copy.deepcopy(state)
        wrong["param_groups"][0]["params"].pop()
        self.refused(lambda: optimizer.load_state_dict(wrong), "groups of [3]", ValueError)
        after = optimizer.state_dict()
        for number, values_of in state["state"].items():
            for key, value in values_of.items():
                self.assertTrue(torch.equal(value, after["state"][number][key]))

    def test_what_is_no_state(self):
        model, optimizer = engine(Two)
        for wrong in ({}, {"state": {}}, model.state_dict(), None, [1]):
            self.refused(lambda: optimizer.load_state_dict(wrong), "'state' and 'param_groups'", ValueError)
        self.refused(lambda: optimizer.load_state_dict({}), "found dict with no keys", ValueError)

    def test_one_state_missing(self):
        plain = Two()
        theirs = torch.optim.AdamW(plain.parameters())
        plain_step(plain, theirs, values(dtype=F32))
        model, optimizer = engine(Two)
        once(model, optimizer, values())
        for state in (optimizer.state_dict(), copy.deepcopy(theirs.state_dict())):
            del state["state"][1]["exp_avg_sq"]
            self.refused(lambda: optimizer.load_state_dict(state), "exp_avg_sq of a.bias is missing", ValueError)
            state["state"][1]["exp_avg_sq"] = torch.zeros(WIDTH)
            optimizer.load_state_dict(state)

    def test_learning_rates_are_part_of_it(self):
        model, optimizer = self.trained()
        optimizer.param_groups[0]["lr"] = .125
        state = optimizer.state_dict()
        other, theirs = engine(Two, F32)
        theirs.load_state_dict(state)
        self.assertEqual(theirs.param_groups[0]["lr"], .125)
        before = master(other, "a.weight")
        once(other, theirs, values(dtype=F32))
        self.assertGreater((master(other, "a.weight") - before).abs().max(), .02)


if __name__ == "__main__":
    unittest.main()
