"""What a program of Python's reads: messages name keys of its dictionary, and objects print as what they are."""
import gc
import logging
import os
import pickle
import re
import tempfile
import unittest
import unittest.mock

import torch
import torch.nn as nn

import patrickstar
import patrickstar.zero
from patrickstar import BudgetError, PatrickStarError, Refused, init, initialize_engine
from patrickstar._client import Client, Config
from patrickstar._library import FORWARD, _keys
from support import BF16, F32, WIDTH, Case, Two, config, engine, once, square, values

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Keys(Case):
    def names(self, given, *what):
        with self.assertRaises(PatrickStarError) as caught:
            Config(given)
        for text in what:
            self.assertIn(text, str(caught.exception))

    def test_of_a_dictionary(self):
        self.names({"memory": {"disk": "1GB", "device": "12XB"}},
                   'config["memory"]["device"]: memory.device must be a size (64MB, 1.5GiB, bytes) of at least 1 and at '
                   'most 1EiB, or auto, not "12XB"')
        self.names({"train": {"threads": 2}, "memory": {"devize": 1}}, 'config["memory"]["devize"]: unknown key')
        self.names({"a\nb:\"": 1}, 'config["a\\nb:\\""]: unknown key')
        self.names({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, 'config["bf16"]["enabled"]: fp16.enabled and')
        self.names({"default_chunk_size": 5, "chunk_size": 6}, 'config["chunk_size"]: chunk_size and default_chunk_size, '
                   'which config["default_chunk_size"] gives, are the same option')
        self.names({"optimizer": {"param_groups": [{"params": ["a,b"]}]}}, "commas (? matches one)")
        gc.collect()

    def test_of_several(self):
        """Of an error that comes later, too, while there are others."""
        before = len(_keys)
        kept = [Config({"memory": {"device": "1GB"}}), Config({}), Config({"train": {"threads": 2}})]
        self.assertEqual(len(_keys), before + 3)
        self.names({"bf16": {"enabled": 3}}, 'config["bf16"]["enabled"]: ')
        kept.append(Config({"memory": {"disk": "1GB"}, "optimizer": {"param_groups": [{"params": "a*", "lr": 1}]}}))
        del kept
        gc.collect()
        self.assertEqual(len(_keys), before)

    def test_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "own.json")
            with open(path, "w") as file:
                file.write('{"memory":\n {"device": "12XB"}}')
            self.names(path, "own.json:2:13: memory.device must be")


class Names(Case):
    def test_modules_show_what_is_for_programs(self):
        for module in (patrickstar, patrickstar.zero):
            self.assertEqual(dir(module), sorted(module.__all__))

    def test_classes_of_errors(self):
        for kind in (BudgetError, PatrickStarError, Refused):
            self.assertEqual(kind.__module__, "patrickstar")
            self.assertIs(getattr(patrickstar, kind.__name__), kind)
        self.assertEqual(str(pickle.loads(pickle.dumps(Refused("no")))), "no")

    def test_a_client(self):
        model, _ = engine(Two, F32)
        self.assertTrue(repr(model.client).startswith("Client(\n    dtype=fp32,"), repr(model.client))
        model.close()
        self.assertEqual(repr(model.client), "Client, closed")

    def test_why_the_gpu_is_not_used(self):
        """Of the library's answer: this machine need not have a GPU."""
        real = Client.get_info

        def get_info(client):
            info = real(client)
            info.why_not_gpu = b"GPU 0 (H100) cannot be used: its compute mode forbids computing"
            return info
        model, _ = engine(Two, F32, train={"backend": "cpu"})
        self.assertIsNone(model.why_not_gpu)
        with unittest.mock.patch.object(Client, "get_info", get_info), self.assertLogs("patrickstar", "WARNING") as log:
            model, _ = engine(Two, F32)
            self.assertEqual(model.why_not_gpu, "GPU 0 (H100) cannot be used: its compute mode forbids computing")
        self.assertEqual([record.getMessage() for record in log.records], [
            "the processor computes, as the GPU cannot be used: GPU 0 (H100) cannot be used: its compute mode forbids "
            "computing"])

    def test_a_comma_in_a_name(self):
        """Of a ModuleDict: groups of another optimizer become patterns."""
        class Comma(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleDict({"a,b": nn.Linear(WIDTH, WIDTH), "c": nn.Linear(WIDTH, WIDTH)})

            def forward(self, x):
                return self.parts["c"](self.parts["a,b"](x))
        module = Comma()
        optimizer = torch.optim.SGD([{"params": module.parts["c"].parameters()},
                                     {"params": module.parts["a,b"].parameters(), "lr": 0.}], lr=.1)
        model, ours = patrickstar.zero.convert_to_zero_v2(module, optimizer, {"bf16": True, **{
            key: value for key, value in config().items() if key in ("memory", "train", "default_chunk_size")}})
        before = {name: value.clone() for name, value in model.state_dict().items()}
        once(model, ours, values())
        self.assertEqual({name for name, value in model.state_dict().items() if torch.equal(value, before[name])},
                         {"parts.a,b.weight", "parts.a,b.bias"})


def of_page():
    """The messages of the page's table, each as the parts between its ellipses."""
    with open(os.path.join(ROOT, "doc", "pytorch.md"), encoding="utf-8") as page:
        table = page.read().split("\n## Messages\n")[1].split("\n## ")[0]
    cells = [line.split(" | ")[0][2:] for line in table.split("\n") if line.startswith("| ")][1:]
    return [text for cell in cells for text in re.findall("`([^`]*)`", cell)]


def graph_of_last_step():
    model, optimizer = engine(Two, F32)
    old = square(model(values(dtype=F32)))
    once(model, optimizer, values(dtype=F32))
    model.backward(old)


def kept_view():
    kept = []

    def make():
        model = Two()
        kept.append(model.a.weight.data)
        return model
    engine(make, F32)


def of_other_types():
    model, _ = engine(lambda: Two(lambda s, x: s.a(x) @ torch.ones(WIDTH, WIDTH)), BF16)
    model(values(dtype=BF16))


def built_in_a_block():
    with init(config(F32)):
        module = Two()
    square(module(values(dtype=F32))).backward()


def too_large_a_state():
    from patrickstar._state import check_room
    check_room("state_dict()", 1 << 50, 1)


def without_a_library():
    from patrickstar._library import _load
    _load("/nowhere/libpatrickstar.so")


def small(**memory):
    return config(F32, memory=memory)


MESSAGES = {  # of the page: what raises it, or the file that has its text
    "BudgetError: ...: raise it to at least memory.disk=1.06MB": lambda: initialize_engine(
        lambda: nn.Linear(256, 256), 0, small(device="20kB", host=0, disk=0)),
    "BudgetError: the framework itself has ... in use": lambda: engine(Two, F32)[0].client.moment(
        FORWARD, "a", 1 << 40),
    'config["memory"]["devize"]: unknown key': lambda: Config({"memory": {"devize": 1}}),
    "zero_optimization is not supported": lambda: Config({"zero_optimization": {"stage": 3}}),
    "train_batch_size is ..., but ...": lambda: initialize_engine(Two, 0, config(F32, train_batch_size=7)),
    "AdamW over ..., which is in chunks": lambda: torch.optim.AdamW(engine(Two, F32)[0].parameters()),
    "loss.backward() with gradient_accumulation_steps": lambda: square(
        engine(Two, F32, gradient_accumulation_steps=2)[0](values(dtype=F32))).backward(),
    "... is in the chunks of an engine already": lambda: initialize_engine(model=engine(Two, F32)[0].module),
    "... is registered or replaced after initialize_engine": lambda: setattr(
        engine(Two, F32)[0].module, "c", nn.Parameter(torch.ones(2))),
    "... is still referenced; its values move now": kept_view,
    "... on meta, and no initialiser": lambda: engine(
        lambda: nn.ParameterList([nn.Parameter(torch.ones(2, device="meta"))])),
    "backward() of a module that was built by patrickstar.init": built_in_a_block,
    "... modified by an inplace operation": graph_of_last_step,
    "... were different dtypes": of_other_types,
    "expected scalar type": of_other_types,  # of the one or the other version of PyTorch
    "state_dict() copies ...": too_large_a_state,
    "ranks diverged": "src/api/external/announce.c",
    "the library of PatrickStar cannot be loaded": without_a_library,
    "a training step in model.eval()": "python/patrickstar/runtime/optimizer.py",
}


class Page(Case):
    def test_its_messages_are_those(self):
        self.assertEqual(of_page(), list(MESSAGES))
        for text, source in MESSAGES.items():
            parts = [part for part in re.split(r"\.\.\.[:,]?", text.replace("BudgetError: ", "")) if part.strip()]
            with self.subTest(message=text):
                if isinstance(source, str):
                    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
                        found = file.read()
                else:
                    with self.assertRaises((RuntimeError, ImportError)) as caught:
                        source()
                    found = str(caught.exception)
                    if source is of_other_types:
                        self.assertRegex(found, "were different dtypes|expected scalar type|same dtype")
                        continue
                for part in parts:
                    self.assertIn(part.strip(), found)


class Warnings(Case):
    def test_a_step_after_a_forward_pass_that_failed_in_an_evaluation(self):
        """There is no gradient: it is no training step."""
        model, optimizer = engine(Two, F32)
        model.eval()
        self.refused(lambda: model(values(4, 5, dtype=F32)), "mat1", RuntimeError)
        with self.assertLogs("patrickstar", logging.WARNING) as logs:
            optimizer.step()
            logging.getLogger("patrickstar").warning("nothing yet")
            once(model, optimizer, values(dtype=F32))
        self.assertEqual(len(logs.output), 2)
        self.assertIn("nothing yet", logs.output[0])
        self.assertIn("a training step in model.eval()", logs.output[1])


if __name__ == "__main__":
    unittest.main()
