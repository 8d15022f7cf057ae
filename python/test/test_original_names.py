"""Names of PatrickStar's guide and examples, and of ColossalAI's ZeRO, used as these use them (doc/migrating.md)."""
import contextlib
import importlib.util
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn as nn

import patrickstar.utils.global_timer as global_timer
from patrickstar import PatrickStarError, Refused, _client
from patrickstar.core import PatrickStarClient
from patrickstar.core.torch_profiler_hook import register_torch_profiler_hook
from patrickstar.ops import Embedding, FP16Adam
from patrickstar.profiler import profiler
from patrickstar.runtime import PatrickStarEngine, initialize_engine
from patrickstar.utils import get_rank, get_world_size, see_memory_usage
from patrickstar.utils.distributed import get_rank as get_rank_of_distributed
from patrickstar.utils.logging import log_dist, logger
from patrickstar.utils.model_size_calculator import get_ps_model_size
from patrickstar.zero import ShardedModelV2, ShardedOptimizerV2, convert_to_zero_v2
from support import can_multiply_halves, torchrun

N_STEPS = 4
VISUALIZE = [sys.executable, "-m", "patrickstar.visualize"]


class Model(nn.Module):
    """Called as those of transformers: a tuple whose first is the loss."""

    def __init__(self):
        super().__init__()
        self.embedding, self.up, self.down = Embedding(100, 64), nn.Linear(64, 256), nn.Linear(256, 100)

    def forward(self, input_ids, labels):
        logits = self.down(nn.functional.gelu(self.up(self.embedding(input_ids)))).float()
        return nn.functional.cross_entropy(logits.view(-1, 100), labels.view(-1)), logits


def batches():
    tokens = torch.arange(80).view(8, 10)
    return [(tokens, tokens + 1)] * N_STEPS


def config(folder, **memory):
    return {"optimizer": {"type": "Adam", "params": {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0,
                                                     "use_hybrid_adam": True}},
            "bf16": {"enabled": True}, "default_chunk_size": 16384, "release_after_init": False,
            "use_cpu_embedding": False,
            "memory": {"device": "60MB", "host": 0, "disk": "10MB", "disk_path": folder, **memory}}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "profile.pkl")
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)

    def begin(self, **memory):
        torch.manual_seed(0)
        model, optimizer = initialize_engine(model_func=Model, local_rank=0, config=config(self.folder, **memory))
        self.addCleanup(model.close)
        return model, optimizer

    def said(self, call):
        with self.assertLogs("patrickstar", logging.INFO) as caught:
            call()
        return "\n".join(record.getMessage() for record in caught.records)

    def figure_of(self, path):
        done = subprocess.run(VISUALIZE + [path, "--fig_type", "memory", "--memory_type", "GPU"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(os.path.exists(done.stdout.split()[-1]))


def has_matplotlib():
    return subprocess.run([sys.executable, "-c", "import matplotlib"], stderr=subprocess.DEVNULL).returncode == 0


class PretrainDemo(Case):
    def test_steps(self):
        """examples/pretrain_demo.py: profiler, timers and see_memory_usage around the steps."""
        profiler.start()
        model, optimizer = self.begin()
        numel, n_params = get_ps_model_size(model)
        self.assertEqual((numel, n_params), (100 * 64 + 64 * 256 + 256 + 256 * 100 + 100, 5))
        self.assertEqual(get_ps_model_size(Model()), (numel, n_params))
        self.assertEqual(self.said(lambda: log_dist(f"Model size {numel / 1e9} B")), "[Rank 0] Model size 4.874e-05 B")
        text = self.said(lambda: see_memory_usage("After model init", force=True))
        self.assertRegex(text, r"^After model init\nprocess: [\d.]+ [MG]B resident, at most ")
        self.assertRegex(text, r"\ndevice: [\d.]+ .B of 60 MB, at most ")
        losses = []
        for n, batch in enumerate(batches()):
            if n == N_STEPS - 1:
                global_timer.my_timer.start()
                global_timer.data_move_cnter.reset()
            optimizer.zero_grad()
            if n == 1:
                profiler.warmup_finish()
            loss = model(input_ids=batch[0], labels=batch[1])[0]
            model.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            if get_rank() == 0:
                see_memory_usage(f"After step {n}.", force=True)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual((get_rank(), get_rank_of_distributed(), get_world_size()), (0, 0, 1))
        self.assertRegex(self.said(global_timer.my_timer.print), r"^total: [\d.e-]+ s, 100 %\nwaiting for chunks: ")
        self.said(global_timer.data_move_cnter.print)
        global_timer.my_timer.reset()
        global_timer.my_timer.finish()
        profiler.end()
        if get_rank() == 0:
            profiler.save(self.path)
        with open(self.path) as file:
            steps = [event["args"]["step"] for event in json.load(file)["traceEvents"] if event.get("cat") == "step"]
        self.assertEqual(steps, [1, 2, 3, 4])
        self.assertIn("the warm-up is the first step alone", self.said(profiler.warmup_finish))

    def test_memory_is_seen_when_forced(self):
        with self.assertRaises(AssertionError):
            self.said(lambda: see_memory_usage("not forced"))
        text = self.said(lambda: see_memory_usage("m", force=True, scale_name="B"))
        self.assertRegex(text, r"process: \d+ B resident")

    def test_timer(self):
        timer = type(global_timer.my_timer)()
        timer.start_profile("part")
        time.sleep(0.02)
        timer.finish_profile("part")
        self.assertGreaterEqual(timer.elapse_stat["part"], 0.02)
        with self.assertRaisesRegex(PatrickStarError, "part was not started"):
            timer.finish_profile("part")
        timer.reset()
        self.assertEqual(timer.elapse_stat, {})

    def test_bytes_that_moved(self):
        """Those of our own counters, since reset()."""
        of_pytorch = mock.patch.object(_client, "MEASURE", 0)  # it takes more than this budget
        of_pytorch.start()
        self.addCleanup(of_pytorch.stop)
        model, optimizer = self.begin(device="600KB")
        counter = global_timer.data_move_cnter
        before = None
        for n, (tokens, labels) in enumerate(batches()):
            if n == 2:
                counter.reset()
                before = model.client.get_info().moved_bytes
                self.assertEqual(set(counter.amount_dict.values()), {0})
            model.backward(model(tokens, labels)[0])
            optimizer.step()
        counter.update("mine", 5_000_000)
        now = model.client.get_info().moved_bytes
        moved = counter.amount_dict
        self.assertEqual([moved["disk to memory"], moved["memory to disk"]], [now[2] - before[2], now[3] - before[3]])
        self.assertGreater(moved["disk to memory"], 0)
        self.assertIn("mine: 5 MB", self.said(counter.print))
        counter.reset()

    def test_lines_of_the_logger(self):
        """logger.setLevel(logging.INFO) is enough to see them, and a program's own logging has them once."""
        program = ("import logging\n%sfrom patrickstar.utils import logger, log_dist\nlogger.setLevel(logging.INFO)\n"
                   "log_dist('to be seen'); log_dist('elsewhere', ranks=[1])\n")
        for own in ("", "logging.basicConfig()\n"):
            done = subprocess.run([sys.executable, "-c", program % own], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            self.assertEqual((done.returncode, done.stdout.count("to be seen")), (0, 1), done.stdout)
            self.assertNotIn("elsewhere", done.stdout)
        program = "import logging, patrickstar.zero\nassert not logging.getLogger('patrickstar').handlers"
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_torch_alone(self):
        """dist_plan = "torch" of that example."""
        profiler.start()
        model = Model()
        register_torch_profiler_hook(model)
        optimizer = torch.optim.Adam(model.parameters())
        for tokens, labels in batches():
            optimizer.zero_grad()
            model(tokens, labels)[0].backward()
            optimizer.step()
        profiler.end()
        profiler.save(self.path)
        with open(self.path) as file:
            events = json.load(file)["traceEvents"]
        counts = [event for event in events if event["ph"] == "C"]
        self.assertEqual(len(counts), N_STEPS * 3 * 3)  # before and after forward, and before backward
        self.assertGreater(min(event["args"]["non_model"] for event in counts), 10_000_000)
        names = [event["name"] for event in events if event["ph"] == "i"]
        self.assertEqual(names[:6], ["embedding", "embedding", "up", "up", "down", "down"])
        if has_matplotlib():
            self.figure_of(self.path)

    def test_hooks_on_an_engine(self):
        model, _ = self.begin()
        with self.assertRaisesRegex(Refused, r"profiler.start\(\) records it without hooks"):
            register_torch_profiler_hook(model)


class Guides(unittest.TestCase):
    def test_names_in_the_page(self):
        """Each of patrickstar's that doc/migrating.md gives is there."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "doc", "migrating.md")) as file:
            names = set(re.findall(r"`(patrickstar(?:\.\w+)+)", file.read()))
        self.assertGreater(len(names), 15)
        for name in sorted(names - {"patrickstar.core.PSPreProcessCtx"}):
            module, _, last = name.rpartition(".")
            found = importlib.import_module(module)
            self.assertTrue(hasattr(found, last) or importlib.util.find_spec(name), name)


class Classes(Case):
    def test_what_initialize_engine_gives(self):
        model, optimizer = self.begin()
        self.assertIsInstance(model, PatrickStarEngine)
        self.assertIsInstance(optimizer, FP16Adam)
        self.assertIsInstance(model.client, PatrickStarClient)
        self.assertNotIsInstance(optimizer, PatrickStarEngine)

    def test_what_cannot_be_made(self):
        for call in (lambda: PatrickStarClient(local_rank=0, default_chunk_size=1024),
                     lambda: PatrickStarEngine(model=Model(), client=None, config={}),
                     lambda: FP16Adam(None, Model().parameters(), lr=1e-3)):
            with self.assertRaisesRegex(Refused, r"initialize_engine\(model_func, local_rank, config\) makes the "):
                call()
        with self.assertRaisesRegex(Refused, r"patrickstar.init\(config\) is such a context"):
            from patrickstar.core import PSPreProcessCtx  # noqa: F401
        with self.assertRaisesRegex(ImportError, "TrainingStage"):
            from patrickstar.core import TrainingStage  # noqa: F401
        with self.assertRaisesRegex(Refused, "give it to convert_to_zero_v2"):
            from patrickstar.zero import ZeroInitContext  # noqa: F401

    def test_what_they_print(self):
        model, _ = self.begin()
        text = repr(model.client)
        self.assertRegex(text, r"\n    dtype=bf16,\n(.*\n)*    n_ranks=1,\n(.*\n)*    model_data_bytes=[\d.]+ .B,\n"
                               r"    budget_bytes=\[60 MB, 0 B, 10 MB\],\n")
        self.assertIn("shape=(100, 64)", repr(model.client.get_tensor_info(0)))
        self.assertEqual([use.name for use in model.client.get_memory_use()][:2], [b"PARAM16", b"MASTER"])
        model.close()
        self.assertEqual(repr(model.client), "Client, closed")


class ColossalAI(Case):
    def arguments(self):
        return {"shard_strategy": object(), "tensor_placement_policy": "auto", "reuse_fp16_shard": True,
                "reduce_scatter_bucket_size_mb": 25, "fp32_reduce_scatter": False, "gradient_predivide_factor": 1.0,
                "bf16": not can_multiply_halves(), "memory": {"device": "60MB"}, "default_chunk_size": 16384}

    def test_convert(self):
        """As colossalai.initialize calls it."""
        torch.manual_seed(0)
        module = Model()
        hybrid = torch.optim.AdamW([{"params": list(module.embedding.parameters())},
                                    {"params": [p for part in (module.up, module.down) for p in part.parameters()],
                                     "lr": 0.02}], lr=0.01, weight_decay=0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(hybrid, lambda step: 1 / (step + 1))
        model, optimizer = convert_to_zero_v2(module, hybrid, self.arguments(), {
            "gpu_margin_mem_ratio": 0.8, "initial_scale": 2**5, "min_scale": 1, "growth_factor": 2,
            "backoff_factor": 0.5, "growth_interval": 1000, "hysteresis": 2, "max_scale": 2**16})
        self.addCleanup(model.close)
        self.assertIsInstance(model, ShardedModelV2)
        self.assertIsInstance(optimizer, ShardedOptimizerV2)
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.01, 0.02])
        self.assertEqual([len(group["params"]) for group in optimizer.param_groups], [1, 4])
        self.assertEqual(optimizer.loss_scale, 32 if can_multiply_halves() else 1)
        losses = []
        for tokens, labels in batches():
            optimizer.zero_grad()
            loss = model(tokens, labels)[0]
            optimizer.backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(model.client.get_groups()[1].lr, 0.02 / N_STEPS)
        on_gpu, in_ram = optimizer.get_memory_usage()
        self.assertEqual(on_gpu, 0)
        self.assertGreaterEqual(in_ram, 12 * get_ps_model_size(model)[0])
        dump = os.path.join(self.folder, "dump_mem_stats.log")
        model.dump_memory_stats(dump)
        with open(dump) as file:
            self.assertRegex(file.read(), r"device: [\d.]+ .B of 60 MB(.*\n)+MemoryUse\(name=MASTER, device_bytes=")
        with self.assertRaisesRegex(Refused, "gradient_clipping=0.5 beside"):
            optimizer.clip_grad_norm(model, 0.5)

    def test_same_bits(self):
        """As initialize_engine."""
        torch.manual_seed(0)
        theirs = ShardedModelV2(Model(), None, bf16=True, memory={"device": "60MB"}, default_chunk_size=16384)
        with self.assertRaisesRegex(PatrickStarError, "ShardedOptimizerV2.model, optimizer. puts it there"):
            theirs(*batches()[0])
        their_optimizer = ShardedOptimizerV2(theirs, torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-6))
        self.addCleanup(theirs.close)
        model, optimizer = self.begin()
        for tokens, labels in batches():
            losses = []
            for one, step in ((theirs, their_optimizer), (model, optimizer)):
                loss = one(tokens, labels)[0]
                one.backward(loss)
                step.step()
                losses.append(loss.item())
            self.assertEqual(losses[0], losses[1])

    def test_what_is_refused(self):
        module = Model()
        plain = torch.optim.SGD(module.parameters(), lr=0.1)
        for call, why in (
                (lambda: convert_to_zero_v2(module, torch.optim.RMSprop(module.parameters())),
                 "RMSprop: expected Adam"),
                (lambda: convert_to_zero_v2(module, torch.optim.Adam(module.parameters(), amsgrad=True)),
                 "amsgrad of"),
                (lambda: convert_to_zero_v2(module, plain, {}, {"mp_process_group": 1}), "mp_process_group"),
                (lambda: ShardedModelV2(module, reduce_scatter_process_group=1), "one process group does all")):
            with self.assertRaisesRegex(Refused, why):
                call()
        with self.assertRaisesRegex(TypeError, "unexpected argument scale"):
            convert_to_zero_v2(module, plain, {}, {"scale": 1})
        with self.assertRaisesRegex(PatrickStarError, "shard_param"):
            convert_to_zero_v2(module, plain, {"bf16": True, "shard_param": True}, {})


    def test_parameters_that_the_optimizer_does_not_have(self):
        """They would be trained all the same: refused, and the module stays as it was."""
        module = Model()
        adam = torch.optim.Adam
        for params, why in (
                (module.up.parameters(), r"Adam lacks 3 of 5 parameters with requires_grad, the first of which are "
                                         r"embedding.weight, down.weight, down.bias: .*requires_grad_\(False\)"),
                ([*module.parameters(), nn.Parameter(torch.zeros(2, 3))],
                 r"param_groups\[0\] of Adam has a parameter of shape \(2, 3\) that the module does not have"),
                ([{"params": module.parameters()}, {"params": [nn.Parameter(torch.zeros(4))]}],
                 r"param_groups\[1\] of Adam has a parameter of shape \(4,\)")):
            with self.assertRaisesRegex(Refused, why):
                convert_to_zero_v2(module, adam(params), {"bf16": True})
        module.embedding.requires_grad_(False)
        before = module.embedding.weight.detach().clone()
        params = [*module.up.parameters(), *module.down.parameters()]
        model, optimizer = convert_to_zero_v2(module, adam(params), {"bf16": True, "memory": {"device": "60MB"}})
        self.addCleanup(model.close)
        tokens, labels = batches()[0]
        optimizer.backward(model(tokens, labels)[0])
        optimizer.step()
        self.assertTrue(model.state_dict()["embedding.weight"].equal(before.bfloat16().float()))

    def test_frozen_parameters_that_the_optimizer_has(self):
        """PyTorch skips them; here they stay frozen."""
        module = Model()
        module.embedding.requires_grad_(False)
        groups = [{"params": [*module.up.parameters(), *module.down.parameters()]},
                  {"params": module.embedding.parameters(), "lr": 0.5}]
        model, optimizer = convert_to_zero_v2(module, torch.optim.Adam(groups, lr=0.1),
                                              {"bf16": True, "memory": {"device": "60MB"}})
        self.addCleanup(model.close)
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.1, 0.5])

    def test_names_with_characters_of_patterns(self):
        module = nn.Module()
        names = ["w*", "w?", "w[a]", "wa", "w]"]
        for name in names:
            module.register_parameter(name, nn.Parameter(torch.zeros(4, 4)))
        others = [{"params": [module._parameters[name]], "lr": lr} for name, lr in zip(names[:3], (0.1, 0.2, 0.3))]
        groups = [{"params": [module.wa, module._parameters["w]"]]}, *others]
        model, optimizer = convert_to_zero_v2(module, torch.optim.SGD(groups, lr=0.5),
                                              {"bf16": True, "memory": {"device": "60MB"}})
        self.addCleanup(model.close)
        found = [(group["lr"], [param._ps.name for param in group["params"]]) for group in optimizer.param_groups]
        self.assertEqual(found, [(0.5, ["wa", "w]"]), (0.1, ["w*"]), (0.2, ["w?"]), (0.3, ["w[a]"])])


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class SeveralRanks(unittest.TestCase):
    def test_rank(self):
        """examples/moe/huggingface_bert_moe.py: get_rank() after init_process_group, and without a process group."""
        for case in ("group", "none"):
            status, text = torchrun(os.path.abspath(__file__), case)
            self.assertEqual(status, 0, text)
            for rank in range(2):
                self.assertIn("rank %d of 2: before, rank %d of 2: after" % (rank, rank), text)
            self.assertEqual(text.count("seen by all"), 2, text)
            self.assertEqual(text.count("seen by one"), 1, text)


def worker(case):
    if case == "group":
        dist.init_process_group(backend="gloo")
    before = "rank %d of %d: before" % (get_rank(), get_world_size())
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        model, _ = initialize_engine(model_func=Model, local_rank=get_rank(), config=config(folder))
    logger.setLevel(logging.INFO)
    print("%s, rank %d of %d: after" % (before, get_rank(), get_world_size()), flush=True)
    log_dist("seen by one")
    log_dist("seen by all", ranks=[-1])
    model.close()


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("group", "none"):
        worker(sys.argv[1])
    else:
        unittest.main()
