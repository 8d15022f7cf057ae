"""python -m patrickstar.to_dcp: torch.distributed.checkpoint reads what a run has saved, and plain PyTorch resumes from
it."""
import contextlib
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn as nn

from support import BF16, F32, VERSION, WIDTH, Case, engine, square, torchrun
from test_checkpoint import read_safetensors
from patrickstar import PatrickStarError, _program, _torch, to_dcp, torch_scope
from patrickstar._checkpoint_files import CheckpointFiles, Piece, StoredTensor

HAS_DCP = VERSION >= (2, 3) and dist.is_available()
if HAS_DCP:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from patrickstar import _dcp

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NEEDS_DCP = unittest.skipUnless(HAS_DCP, "torch.distributed.checkpoint of PyTorch 2.3")
BIASES = {"params": ["*.bias"], "lr": 2e-2, "weight_decay": 0.0}


class Varied(nn.Module):
    """Buffers, a shared parameter, one without gradient, one outside of chunks, one that is unused."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.tied = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH), nn.Linear(WIDTH, 40)
        self.tied.weight = self.a.weight
        self.norm = nn.BatchNorm1d(40)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        with torch_scope():
            self.apart = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("not_saved", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.apart(self.b(self.norm(torch.tanh(self.a(self.frozen(x))))) + self.b(self.tied(x)))


def convert_here(*arguments):
    """(status, output, errors) of python -m patrickstar.to_dcp, without starting Python again"""
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        status = to_dcp.main([str(argument) for argument in arguments])
    return status, said.getvalue(), errors.getvalue()


def x_of(step):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = square(model(x_of(step)))
        model.backward(loss) if hasattr(model, "backward") else loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def torch_optimizer(model, kind, **numbers):
    params = dict(model.named_parameters())
    biases = [params[name] for name in params if name.endswith(".bias")]
    others = [params[name] for name in params if not name.endswith(".bias")]
    return getattr(torch.optim, kind)([{"params": others}, {"params": biases}], lr=0.5, **numbers)


class WithFolder(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = self.path("out")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def converted(self, *arguments):
        status, said, errors = convert_here(*arguments)
        self.assertEqual((status, errors), (0, ""))
        return said

    def everything(self):
        """The whole of `out`, as torch.save would have it."""
        dcp_to_torch_save(self.out, self.path("whole.pt"))
        return torch.load(self.path("whole.pt"), weights_only=True)


@NEEDS_DCP
class RoundTrip(WithFolder):
    def saved(self, dtype=F32, kind="AdamW", **params):
        model, optimizer = engine(Varied, dtype, optimizer={
            "type": kind, "params": {"lr": 1e-2, "weight_decay": 0.1, **params}, "param_groups": [BIASES]})
        model.train()
        if dtype == F32:
            train(model, optimizer, range(2))
        return model, optimizer

    def goes_on(self, kind, **params):
        """In plain PyTorch, by the calls that FSDP's users make; and here."""
        if VERSION < (2, 5):
            self.skipTest("load of PyTorch 2.3 gives no numbers back, and its set_state_dict knows no tied parameters")
        model, optimizer = self.saved(kind=kind, **params)
        optimizer.param_groups[0]["lr"] = 0.03  # of the program
        model.save_checkpoint(self.path("saved"), client_state={"at": 2, "more": {"order": torch.arange(3)}})
        self.assertIn("parameters (%s)" % kind, self.converted(self.path("saved"), self.out))
        self.assertEqual(sorted(os.listdir(self.out)), [".metadata", "__0_0.distcp"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "saved"])

        plain = Varied().train()
        theirs = torch_optimizer(plain, kind, **({"momentum": 0.5} if kind == "SGD" else {}))
        values, states = get_state_dict(plain, theirs)
        loaded = {"model": values, "optim": states, "client_state": {"at": 0, "more": {"order": torch.zeros(3).long()}}}
        dcp.load(loaded, checkpoint_id=self.out)
        set_state_dict(plain, theirs, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"])
        self.assertEqual(loaded["client_state"]["at"], 2)
        self.assertTrue(torch.equal(loaded["client_state"]["more"]["order"], torch.arange(3)))
        self.same_values(plain, model)
        self.assertEqual([(group["lr"], group["weight_decay"]) for group in theirs.param_groups],
                         [(0.03, 0.1), (0.02, 0)])
        for group, mine in zip(theirs.param_groups, optimizer.param_groups):
            for key in set(mine) - {"params"}:
                self.assertEqual(group[key], mine[key], key)

        ours, other = train(model, optimizer, range(2, 5)), train(plain, theirs, range(2, 5))
        for one, two in zip(ours, other):
            self.assertAlmostEqual(one, two, delta=1e-5 * abs(one))  # torch.optim rounds otherwise
        self.same_values(plain, model, within=1e-5)

    def same_values(self, plain, model, within=0.0):
        have, want = plain.state_dict(), model.state_dict()
        self.assertEqual(sorted(have), sorted(want))
        for name, value in want.items():
            self.assertTrue(torch.allclose(have[name].double(), value.double(), rtol=within, atol=within), name)

    def test_adamw(self):
        self.goes_on("AdamW")

    def test_adam(self):
        self.goes_on("Adam", betas=[0.8, 0.99], eps=1e-6)

    def test_sgd(self):
        self.goes_on("SGD", momentum=0.9, dampening=0.1)

    def test_is_exact_in_pieces(self):
        """Each value, state and count; no more than what state_dict has; masters, where parameters are bf16."""
        self.expect_exact("fp32")

    def test_is_exact_of_compact_states(self):
        self.expect_exact("compact")

    def expect_exact(self, state_format):
        model, optimizer = self.saved(BF16, state_format=state_format)
        model.backward(square(model(x_of(0).to(BF16))))
        optimizer.step()
        want = model.state_dict()
        counts = {slot.name: model.client.get_steps(slot.number) for slot in model.front.slots}
        states = {slot.name: {key: model.client.read(slot.number, key, slot.shape)
                              for key in model.client.get_state_names()} for slot in model.front.slots}
        model.save_checkpoint(self.path("saved"), tag="one")
        model.save_checkpoint(self.path("saved"), tag="two")
        with mock.patch.object(_dcp, "_PIECE_BYTES", 1000):
            self.assertIn(self.path("saved", "one"), self.converted(self.path("saved"), self.out, "--tag", "one"))
        chunks = dcp.FileSystemReader(self.out).read_metadata().state_dict_metadata["model.a.weight"].chunks
        self.assertEqual([tuple(chunk.sizes) for chunk in chunks], [(15, 16), (15, 16), (10, 16)])
        have = self.everything()
        self.assertEqual(sorted(have), ["model", "optim"])
        self.assertEqual(sorted(have["model"]), sorted(want))
        for name, value in want.items():
            self.assertTrue(torch.equal(have["model"][name], value), name)
        trained = [slot.name for slot in model.front.slots if slot.param.requires_grad]
        self.assertEqual(sorted(have["optim"]["state"]), sorted(trained))
        self.assertEqual(counts["a.weight"], 1)
        for name in trained:
            state = have["optim"]["state"][name]
            self.assertEqual(sorted(state), ["exp_avg", "exp_avg_sq", "step"])
            self.assertEqual(state["step"].item(), counts[name])
            for key, value in states[name].items():
                self.assertTrue(torch.equal(state[key], value), (name, key))

    def test_without_the_optimizer(self):
        """Which the program let go of."""
        model = engine(Varied, F32)[0]
        model.save_checkpoint(self.path("saved"))
        self.assertIn("without an optimizer", self.converted(self.path("saved", "step-000000"), self.out))
        self.assertEqual(sorted(self.everything()), ["model"])

    def test_memory_for_a_piece(self):
        for name, n in (("small", 1), ("large", 48)):
            model, optimizer = engine(lambda: nn.Sequential(*(nn.Linear(512, 256) for _ in range(n))), F32,
                                      default_chunk_size=1 << 18, memory__device="256MB")
            model.save_checkpoint(self.path(name))  # large: 75 MB
            model.close()
        code = ("import re, resource, sys\n"
                "from patrickstar import to_dcp\n"
                "to_dcp.convert(sys.argv[1], sys.argv[1] + '-out')\n"
                "taken = 1024 * int(re.search('VmData:\\\\s*([0-9]+) kB', open('/proc/self/status').read()).group(1))\n"
                "resource.setrlimit(resource.RLIMIT_DATA, (taken + (24 << 20), resource.RLIM_INFINITY))\n"
                "to_dcp.convert(sys.argv[2], sys.argv[2] + '-out')\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, self.path("small"), self.path("large")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_of_two_ranks(self):
        worker = os.path.join(HERE, "checkpoint_worker.py")
        status, text = torchrun(worker, self.folder, "save")
        self.assertEqual(status, 0, text)
        saved = self.path("saved", "step-000003")
        header = open(os.path.join(saved, "model-0-of-2.safetensors"), "rb").read(4096)
        self.assertIn(b"shape:wide.weight", header)
        self.converted(self.path("saved"), self.out)
        have, then = self.everything(), torch.load(self.path("rank-0.pt"))
        for name, value in {**then["values"], **then["buffers"]}.items():
            self.assertTrue(torch.equal(have["model"].pop(name), value), name)
        self.assertEqual(list(have["model"]), [])
        for name, states, steps in zip(then["values"], then["states"], then["steps"]):
            if name.startswith("frozen"):
                self.assertNotIn(name, have["optim"]["state"])
                continue
            state = have["optim"]["state"][name]
            self.assertEqual(state["step"].item(), steps)
            for key, value in states.items():
                self.assertTrue(torch.equal(state[key], value), (name, key))
        self.assertEqual(have["client_state"], {"rank": 0})

    def test_of_pstar(self):
        config = {"train_micro_batch_size_per_gpu": 2,
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1},
                                "param_groups": [{"params": "*.mlp.*", "lr": 1e-3},
                                                 {"params": ["*ln_f*"], "weight_decay": 0.2}]},
                  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 2}},
                  "model": {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16},
                  "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2"},
                  "train": {"steps": 3, "output_dir": self.path("run")}}
        with open(self.path("config.json"), "w") as file:
            json.dump(config, file)
        subprocess.run([_program.find(), "train", self.path("config.json")], check=True, stdout=subprocess.DEVNULL)
        self.converted(self.path("run"), self.out)
        folder = self.path("run", "checkpoints", "step-000003")
        values = read_safetensors(os.path.join(folder, "model-0-of-1.safetensors"))
        states = read_safetensors(os.path.join(folder, "optimizer-0-of-1.safetensors"))
        have = self.everything()
        self.assertTrue(torch.equal(have["model"].pop("lm_head.weight"), values["transformer.wte.weight"]))
        self.assertEqual(sorted(have["model"]), sorted(values))
        for name, value in values.items():
            self.assertTrue(torch.equal(have["model"][name], value), name)
            state = have["optim"]["state"][name]
            self.assertEqual(state["step"].item(), 3)
            for key in ("exp_avg", "exp_avg_sq"):
                self.assertTrue(torch.equal(state[key], states[name + "." + key]), (name, key))
        with open(os.path.join(folder, "state.json")) as file:
            rate = json.load(file)["lr_schedule"]["learning_rate"]
        self.assertNotEqual(rate, 1e-2)
        numbers = {name: (group["lr"], group["weight_decay"], tuple(group["betas"]), group["eps"])
                   for group in have["optim"]["param_groups"] for name in group["params"]}
        self.assertEqual(sorted(numbers), sorted(values))
        block = "transformer.h.0."
        for name, lr, decay in (("transformer.wte.weight", 1, .1), (block + "attn.c_attn.weight", 1, .1),
                                (block + "attn.c_attn.bias", 1, 0), (block + "ln_1.weight", 1, 0),
                                (block + "mlp.c_fc.weight", .1, .1), (block + "mlp.c_fc.bias", .1, 0),
                                ("transformer.ln_f.weight", 1, .2)):
            self.assertAlmostEqual(numbers[name][0], rate * lr, delta=1e-12)
            self.assertEqual(numbers[name][1:], (decay, (.9, .999), 1e-8), name)


class CompactFiles(WithFolder):
    def test_states_are_decoded(self):
        """From any element on, with the bits that the library gives."""
        model, optimizer = engine(Varied, BF16, optimizer={
            "type": "AdamW", "params": {"lr": 1e-2, "state_format": "compact"}})
        model.backward(square(model(x_of(0).to(BF16))))
        optimizer.step()
        model.save_checkpoint(self.path("saved"), tag="one")
        files = CheckpointFiles(self.path("saved", "one"))
        slots = {slot.name: slot for slot in model.front.slots}
        self.assertTrue(any(piece.is_compact for tensor in files.states.values() for piece in tensor.pieces))
        for stored, tensor in files.states.items():
            name, _, key = stored.rpartition(".")
            want = model.client.read(slots[name].number, key, slots[name].shape)
            self.assertEqual(tensor.shape, want.shape)
            for first in {0, 1, min(45, want.numel() - 1)}:
                room = bytearray(4 * (want.numel() - first))
                tensor.read(first, memoryview(room))
                self.assertTrue(torch.equal(torch.frombuffer(room, dtype=F32), want.flatten()[first:]), stored)


    def test_bf16_states_are_read(self):
        """Of optimizer.params.state_format = bf16_stochastic, by pstar: from any element on, as fp32."""
        config = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True},
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "state_format": "bf16_stochastic"}},
                  "model": {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16},
                  "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2"},
                  "train": {"steps": 2, "output_dir": self.path("run")}}
        with open(self.path("config.json"), "w") as file:
            json.dump(config, file)
        subprocess.run([_program.find(), "train", self.path("config.json")], check=True, stdout=subprocess.DEVNULL)
        folder = self.path("run", "checkpoints", "step-000002")
        states = read_safetensors(os.path.join(folder, "optimizer-0-of-1.safetensors"))
        files = CheckpointFiles(folder)
        self.assertEqual(sorted(files.states), sorted(states))
        for name, tensor in files.states.items():
            want = states[name]
            self.assertEqual((want.dtype, tensor.shape), (BF16, want.shape))
            for first in {0, 1, min(45, want.numel() - 1)}:
                room = bytearray(4 * (want.numel() - first))
                tensor.read(first, memoryview(room))
                self.assertTrue(torch.equal(torch.frombuffer(room, dtype=F32), want.flatten()[first:].float()), name)
        self.assertTrue(any(value.abs().max() > 0 for value in states.values()))


class Refusals(WithFolder):
    def setUp(self):
        super().setUp()
        model, _ = engine(lambda: nn.Linear(WIDTH, WIDTH), F32)
        self.saved = model.save_checkpoint(self.path("saved"))

    def refuses(self, *texts, arguments=None):
        before = sorted(os.listdir(self.folder))
        status, said, errors = convert_here(*(arguments or (self.path("saved"), self.out)))
        self.assertEqual((status, said), (2, ""))
        for text in texts:
            self.assertIn(text, errors)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_an_older_pytorch(self):
        version = contextlib.nullcontext() if not HAS_DCP else mock.patch.object(_torch, "VERSION", (2, 2))
        with version:
            self.refuses("PyTorch " + torch.__version__, "2.3 or later is needed")

    def test_options_without_pytorch(self):
        done = subprocess.run([sys.executable, "-X", "importtime", "-m", "patrickstar.to_dcp", "--help"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--tag", done.stdout)
        self.assertNotIn(" torch\n", done.stderr)

    @NEEDS_DCP
    def test_no_checkpoint(self):
        os.mkdir(self.path("empty"))
        self.refuses(self.path("empty") + ": no checkpoint there", "model.save_checkpoint(FOLDER)",
                     arguments=(self.path("empty"), self.out))
        self.refuses(self.path("nowhere") + ": no checkpoint there", arguments=(self.path("nowhere"), self.out))
        self.refuses(self.path("saved", "best") + ": no checkpoint there", "saved has step-000000 (--tag)",
                     arguments=(self.path("saved"), self.out, "--tag", "best"))
        os.remove(os.path.join(self.saved, "state.json"))
        self.refuses("no state.json", arguments=(self.saved, self.out))

    @NEEDS_DCP
    def test_output_that_is_there(self):
        os.mkdir(self.out)
        open(os.path.join(self.out, "x"), "w").close()
        self.refuses(self.out + " is there and not empty; name a new folder")
        shutil.rmtree(self.out)
        open(self.out, "w").close()
        self.refuses(self.out + " is there and no folder")
        os.remove(self.out)
        os.mkdir(self.out)
        with mock.patch.object(os.path, "ismount", return_value=True):
            self.refuses("out is where a file system is mounted")
        os.symlink(self.out, self.path("link"))
        self.converted(self.path("saved"), self.path("link"))
        self.assertEqual(sorted(os.listdir(self.out)), [".metadata", "__0_0.distcp"])

    @NEEDS_DCP
    def test_damage(self):
        for name in sorted(os.listdir(self.saved)):
            path = os.path.join(self.saved, name)
            kept = open(path, "rb").read()
            for damaged in (kept[:-5] + bytes([kept[-5] ^ 1]) + kept[-4:], kept[:-1]):
                with open(path, "wb") as file:
                    file.write(damaged)
                self.refuses(name)
            with open(path, "wb") as file:
                file.write(kept)
        self.converted(self.path("saved"), self.out)

    @NEEDS_DCP
    def test_names_that_would_be_one(self):
        model, _ = engine(lambda: nn.Linear(WIDTH, WIDTH), F32)
        model.save_checkpoint(self.path("saved"), client_state={"a.b": 1, "a": {"b": 2}})
        self.refuses("step-000000: ", "two of client_state would have one name", "client_state.a.b")

    @NEEDS_DCP
    def test_no_room(self):
        usage = mock.Mock(free=1000)
        with mock.patch.object(shutil, "disk_usage", return_value=usage):
            self.refuses("out takes 3.27 kB, and its file system has 1 kB left; free some, or name an ")

    def test_a_read_that_fails(self):
        tensor = StoredTensor(torch.Size([2]), [Piece(0, 2, "/no/such/file", 0)])
        with self.assertRaisesRegex(PatrickStarError, "^/no/such/file: cannot be read: No such file"):
            tensor.read(0, memoryview(bytearray(8)))

    @NEEDS_DCP
    def test_a_write_that_fails(self):
        code = ("import resource, signal, sys\n"
                "from patrickstar import _dcp, to_dcp\n"
                "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
                "sys.exit(to_dcp.main(sys.argv[1:]))\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, self.path("saved"), self.out],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("out: cannot be written: File too large; nothing of it is left. Free some room", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["saved"])

    @NEEDS_DCP
    def test_interrupted(self):
        with mock.patch.object(_dcp, "write", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                convert_here(self.path("saved"), self.out)
        self.assertEqual(os.listdir(self.folder), ["saved"])

    @NEEDS_DCP
    def test_of_a_run_that_was_killed_nothing_stays(self):
        left = self.out + ".tmp-to_dcp"
        os.makedirs(os.path.join(left, "folder"))
        open(os.path.join(left, ".metadata"), "w").close()
        folder = os.open(left, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # it is at work
        self.refuses("out is being written by another process")
        self.assertEqual(sorted(os.listdir(left)), [".metadata", "folder"])
        os.close(folder)
        self.converted(self.path("saved"), self.out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "saved"])
        self.assertEqual(sorted(os.listdir(self.out)), [".metadata", "__0_0.distcp"])


if __name__ == "__main__":
    unittest.main()
