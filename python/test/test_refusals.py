"""What does not work in chunks is refused by name, with an alternative."""
import copy
import importlib.util
import io
import os
import pickle
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.nn as nn

from support import F32, VERSION, WIDTH, Case, Two, engine, once, values
from patrickstar import Refused
from patrickstar.core import torch_scope
from patrickstar.runtime import initialize_engine


class Configurations(Case):
    def test_kinds(self):
        self.refused(lambda: initialize_engine(Two, 0, {"optimizer": {"type": "Adagrad"}}), "optimizer.type")
        self.refused(lambda: initialize_engine(Two, 0, {"optimiser": {}}), "optimiser")
        self.refused(lambda: initialize_engine(Two, 0, [1]), "dictionary")
        self.refused(lambda: initialize_engine(Two, 0, {"optimizer": {1, 2}}), "JSON")
        self.refused(lambda: initialize_engine(Two, 0, "nowhere.json"), "nowhere.json")
        self.refused(lambda: initialize_engine(Two, 0, "8GB"), 'memory is given as {"memory": "8GB"}')
        self.refused(lambda: initialize_engine("Two"), "model_func")
        self.refused(lambda: initialize_engine(lambda: None), "NoneType")
        self.refused(lambda: initialize_engine(Two, 0, None, object()), "client=object")


class Models(Case):
    def test_parameters(self):
        class Strange(nn.Parameter):
            pass

        def of(param):
            def make():
                model = nn.Module()
                model.p = param()
                return model
            return make
        self.refused(lambda: engine(of(lambda: Strange(torch.ones(2)))), "class Strange")
        self.refused(lambda: engine(of(lambda: nn.Parameter(torch.ones(2, dtype=torch.complex64)))), "complex")
        self.refused(lambda: engine(of(lambda: nn.Parameter(torch.ones(2, dtype=torch.float64)))), "float64")
        self.refused(lambda: engine(of(lambda: nn.Parameter(torch.ones(2).to_sparse()))), "sparse parameter")
        self.refused(lambda: engine(lambda: nn.LazyLinear(4)), "dummy batch")
        self.refused(lambda: engine(lambda: nn.Embedding(9, 4, sparse=True)), "sparse=False")
        self.refused(lambda: engine(lambda: nn.DataParallel(Two())), "DataParallel")

    def test_nothing_in_chunks(self):
        def norm():
            return nn.Sequential(nn.BatchNorm1d(8))

        def scope():
            with torch_scope():
                return nn.Linear(8, 8)
        self.refused(lambda: engine(norm), "all 2, the first of which is 0.weight, stay outside of them", Refused)
        self.refused(lambda: engine(scope), "torch_scope", Refused)
        self.refused(lambda: engine(nn.GELU), "no floating-point parameter", Refused)
        engine(norm, F32)

    def test_after_initialize_engine(self):
        model, optimizer = engine(Two)
        self.refused(lambda: setattr(model.module, "c", nn.Parameter(torch.ones(2))), "after initialize_engine")
        self.refused(lambda: setattr(model.module.a.weight, "data", torch.ones(3)), "expected shape")
        self.refused(lambda: model.half(), "fp16.enabled")
        self.refused(lambda: setattr(model.module.a.weight, "grad", torch.ones(3)), "expected shape")
        model.to("cpu")
        model.module.c = nn.Linear(2, 2)
        self.refused(lambda: once(model, optimizer, values()), "module c")

    def test_data_replaced_within_forward(self):
        class Replaces(nn.Linear):
            def forward(self, x):
                self.weight.data = torch.zeros(WIDTH, WIDTH, dtype=x.dtype)
                return super().forward(x)
        model, _ = engine(lambda: nn.Sequential(Replaces(WIDTH, WIDTH)))
        self.refused(lambda: model(values()), "0.weight.data.copy_")
        self.assertEqual(model.front.slots[0].n_uses, 0)


class Copies(Case):
    def test_deepcopy_and_pickle(self):
        model, optimizer = engine(Two)
        for what, copied in (("deepcopy of an engine", model),
                             ("deepcopy of parameter a.weight", model.module.a.weight),
                             ("deepcopy of parameter", model.module), ("deepcopy of an optimizer", optimizer)):
            with self.subTest(what=what):
                self.refused(lambda: copy.deepcopy(copied), what)
        for what, pickled in (("pickle of an engine", model), ("pickle of", model.module),
                              ("pickle of an optimizer", optimizer)):
            with self.subTest(what=what):
                self.refused(lambda: pickle.dumps(pickled), what)
                self.refused(lambda: torch.save(pickled, io.BytesIO()), what)


class Companions(Case):
    """What else wraps models and optimizers."""

    def test_another_optimizer(self):
        model, optimizer = engine(Two)
        for make in (torch.optim.SGD, torch.optim.AdamW):
            self.refused(lambda: make(model.parameters(), lr=0.1), "%s over a.weight" % make.__name__, Refused)
        rest = [{"params": [torch.nn.Parameter(torch.ones(2))]}, {"params": model.module.b.parameters()}]
        self.refused(lambda: torch.optim.SGD(rest, lr=0.1), "SGD over b.weight")
        other = torch.optim.SGD(rest[:1], lr=0.1)
        self.refused(lambda: other.add_param_group(rest[1]), "SGD over b.weight", Refused)
        self.assertEqual(len(other.param_groups), 1)
        once(model, optimizer, values())

    @unittest.skipIf(VERSION < (2, 0), "hooks of all optimizers are of PyTorch 2")
    def test_an_optimizer_from_before(self):
        module = Two()
        before = torch.optim.AdamW(module.parameters())
        model, optimizer = initialize_engine(model=module, config={"optimizer": {"type": "AdamW"}})
        model.backward(model(torch.ones(2, WIDTH)).sum())
        self.refused(before.step, "step() of AdamW, which was created before a.weight was in chunks")
        optimizer.step()
        plain = nn.Linear(2, 2)
        other = torch.optim.AdamW(plain.parameters())
        plain(torch.ones(1, 2)).sum().backward()
        other.step()

    def test_data_parallel(self):
        model, _ = engine(Two)
        for given in (model, model.module, model.module.a):
            self.refused(lambda: nn.DataParallel(given), "have a process for each GPU, by torchrun")
        self.refused(model._replicate_for_data_parallel, "torchrun", Refused)  # what data_parallel calls on GPUs
        nn.DataParallel(nn.Linear(2, 2))
        nn.DataParallel(lambda x: x)

    def test_distributed_data_parallel(self):
        model, _ = engine(Two)
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=0, world_size=1)
            try:
                for given in (model, model.module, model.module.a):
                    self.refused(lambda: nn.parallel.DistributedDataParallel(given), "averaged over the ranks already")
                nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
            finally:
                dist.destroy_process_group()

    @unittest.skipIf(VERSION < (2, 6), "this PyTorch has no fully_shard")
    def test_fully_shard(self):
        from torch.distributed.fsdp import fully_shard
        model, _ = engine(Two)
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=0, world_size=1)
            try:
                self.refused(lambda: fully_shard(model), "replaces parameters by tensors: FSDP", Refused)
            finally:
                dist.destroy_process_group()

    @unittest.skipIf(VERSION < (2, 1), "torch.compile is of PyTorch 2")
    def test_compile(self):
        model, optimizer = engine(Two)
        for given in (model, model.module, model.module.a):
            self.refused(lambda: torch.compile(given, backend="eager"), "torch.compile of a module with a.weight",
                         Refused)
            self.refused(lambda: torch.compile(backend="eager")(given), "torch.compile of a module", Refused)
            if VERSION >= (2, 2):
                self.refused(given.compile, "torch.compile of a module with a.weight", Refused)
        self.assertEqual(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)), 2)
        torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
        once(model, optimizer, values())

        def compiled_part():
            model = Two()
            model.b = torch.compile(model.b, backend="eager")
            return model
        self.refused(lambda: engine(compiled_part), "b is a OptimizedModule", Refused)

        def compiled_in_place():
            model = Two()
            model.b.compile(backend="eager")
            return model
        if VERSION >= (2, 2):
            self.refused(lambda: engine(compiled_in_place), "b is compiled by its method compile()", Refused)

    def test_trace(self):
        model, optimizer = engine(Two)
        for given in (model, model.module, model.module.a):
            self.refused(lambda: torch.jit.trace(given, values()), "torch.jit.trace", Refused)
        once(model, optimizer, values())

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "accelerate is not installed")
    def test_accelerate(self):
        from accelerate import Accelerator
        model, optimizer = engine(Two)
        accelerator = Accelerator(cpu=True)
        self.refused(lambda: accelerator.prepare(model), "accelerate.prepare")
        self.refused(lambda: accelerator.prepare(model, optimizer), "accelerate.prepare")

    @unittest.skipUnless(importlib.util.find_spec("transformers") and importlib.util.find_spec("accelerate"),
                         "transformers and accelerate are not installed")
    def test_trainer(self):
        from transformers import Trainer, TrainingArguments
        model, _ = engine(Two)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(output_dir=folder, use_cpu=True, report_to=[], max_steps=1,
                                          per_device_train_batch_size=1)
            for given in (model, model.module):
                trainer = Trainer(model=given, args=arguments, train_dataset=[{"x": torch.ones(WIDTH)}] * 4)
                self.refused(trainer.train, "Trainer creates its own")


if __name__ == "__main__":
    unittest.main()
