"""What a program of Python's reads: messages name keys of its dictionary, and objects print as what they are."""
import gc
import logging
import os
import pickle
import tempfile
import unittest

import torch.nn as nn

import patrickstar
import patrickstar.zero
from patrickstar import BudgetError, PatrickStarError, Refused
from patrickstar._client import Config
from patrickstar._library import _keys
from support import F32, WIDTH, Case, Two, config, engine, once, values


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

    def test_a_comma_in_a_name(self):
        """Of a ModuleDict: groups of another optimizer become patterns."""
        class Comma(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleDict({"a,b": nn.Linear(WIDTH, WIDTH), "c": nn.Linear(WIDTH, WIDTH)})

            def forward(self, x):
                return self.parts["c"](self.parts["a,b"](x))
        module = Comma()
        import torch
        optimizer = torch.optim.SGD([{"params": module.parts["c"].parameters()},
                                     {"params": module.parts["a,b"].parameters(), "lr": 0.}], lr=.1)
        model, ours = patrickstar.zero.convert_to_zero_v2(module, optimizer, {"bf16": True, **{
            key: value for key, value in config().items() if key in ("memory", "train", "default_chunk_size")}})
        before = {name: value.clone() for name, value in model.state_dict().items()}
        once(model, ours, values())
        self.assertEqual({name for name, value in model.state_dict().items() if torch.equal(value, before[name])},
                         {"parts.a,b.weight", "parts.a,b.bias"})


class Warnings(Case):
    def test_a_step_after_a_forward_pass_that_failed_in_an_evaluation(self):
        """There is no gradient: it is no training step."""
        model, optimizer = engine(Two, F32)
        model.eval()
        self.refused(lambda: model(values(4, 5, dtype=F32)), "mat1", RuntimeError)
        with self.assertLogs("patrickstar", logging.WARNING) as logs:
            optimizer.step()
            once(model, optimizer, values(dtype=F32))
        self.assertEqual(len(logs.output), 1)
        self.assertIn("a training step in model.eval()", logs.output[0])


if __name__ == "__main__":
    unittest.main()
