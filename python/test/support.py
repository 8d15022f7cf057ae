"""What the tests share: training by the package and by plain PyTorch, to be compared for equality.

Plain PyTorch computes forward and backward with ordinary tensors; its gradients go to the library one by one, which
updates (its Adam rounds other than torch.optim's; test_optimizer.py compares these). So both have the same arithmetic,
and any difference is the hooks' or the chunks': a weight that moved under a graph, a gradient that came twice.

The package trains in so little memory that chunks leave as soon as they can: before each operator the framework says
that it needs all of the device. With a library of DEBUG=3 each place that a chunk has left is filled with NaN, and what
is stale shows."""
import atexit
import ctypes
import gc
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.nn as nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from patrickstar import _client, _library  # noqa: E402
from patrickstar._torch import VERSION  # noqa: E402, F401
from patrickstar._weights import parse_size  # noqa: E402
from patrickstar.runtime import Engine, initialize_engine  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(2)

def named_bytes(refused: str, option: str) -> int:
    """The bytes that a refusal names for an option: "memory.device=133MB"."""
    found = re.search(r"%s=([0-9.]*[0-9][kMGT]?B)" % re.escape(option), refused)
    if found is None:
        raise AssertionError("no %s is named: %s" % (option, refused))
    return parse_size(found[1])


BF16, F32 = torch.bfloat16, torch.float32
IS_LONG = bool(os.environ.get("PS_TEST_LONG"))  # all cases, not those that a change is tried with
WIDTH = 16
CHUNK = 512  # elements
LR = 1e-2

Make = Callable[[], nn.Module]
Step = Callable[[Any, int], torch.Tensor]


def can_multiply_halves() -> bool:
    """On the processor."""
    half = torch.ones(2, 2, dtype=torch.float16)
    try:
        return bool((half @ half).sum() == 8)
    except RuntimeError:
        return False


def config(dtype: torch.dtype = BF16, **changed: Any) -> Dict[str, Any]:
    """A configuration of small chunks, and memory for anything; keys with a dot are those of sections."""
    given: Dict[str, Any] = {
        "optimizer": {"type": "AdamW", "params": {"lr": LR}}, "bf16": {"enabled": dtype == BF16},
        "fp16": {"enabled": dtype == torch.float16}, "default_chunk_size": CHUNK,
        "memory": {"device": "64MB", "host": "64MB", "disk": "256MB"}, "train": {"threads": 2}}
    for key, value in changed.items():
        section, _, name = key.replace("__", ".").rpartition(".")
        (given.setdefault(section, {}) if section else given)[name] = value
    return given


def engine(make: Make, dtype: torch.dtype = BF16, **changed: Any) -> Tuple[Engine, Any]:
    torch.manual_seed(0)
    return initialize_engine(make, 0, config(dtype, **changed))


def module_of(model: Any) -> nn.Module:
    return model.module if isinstance(model, Engine) else model


def master(model: Engine, name: str) -> torch.Tensor:
    slot = next(slot for slot in model.front.slots if slot.name == name)
    return model.client.read(slot.number, None, slot.shape)


def masters(model: Engine) -> Dict[str, torch.Tensor]:
    return {slot.name: model.client.read(slot.number, None, slot.shape) for slot in model.front.slots}


def pinned(model: Engine) -> List[str]:
    return [slot.name for slot in model.front.slots if slot.is_exported()]


def values(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*(shape or (4, WIDTH))).to(dtype)


def square(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().pow(2).mean()


def once(model: Engine, optimizer: Any, x: torch.Tensor) -> None:
    model.backward(square(model(x)))
    optimizer.step()


def model_of_tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 100))


def train_on_tokens(model: Any, optimizer: Any, n_steps: int) -> List[float]:
    """Losses of steps of model_of_tokens, which learns to count."""
    losses = []
    tokens = torch.arange(80).view(8, 10)
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).float().view(80, 100), tokens.view(-1) + 1)
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def without_dropout(make: Make) -> Make:
    def build() -> nn.Module:
        model = make()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.
        return model
    return build


class Two(nn.Module):
    """Two linear modules, and what to do with them."""

    def __init__(self, run: Callable = lambda self, x: self.b(self.a(x))) -> None:
        super().__init__()
        self.a, self.b, self.run = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


class Trained:
    """What a training gave: losses, fp32 values by name, and counts."""

    def __init__(self) -> None:
        self.losses: List[float] = []
        self.values: Dict[str, torch.Tensor] = {}
        self.n_restored = self.n_separate = self.moved_bytes = 0


def train_plain(make: Make, step: Step, n: int = 3, dtype: torch.dtype = BF16, micro: int = 1,
                **changed: Any) -> Trained:
    """By plain PyTorch, and the library's update."""
    torch.manual_seed(0)
    model = make()
    model.train()
    given = config(dtype, **changed)
    given["memory"] = {"device": "64MB", "host": "64MB", "disk": "256MB"}
    client = _client.Client(_client.Config(given))
    params = dict(model.named_parameters())
    numbers = {}
    for name, param in params.items():
        number, address = client.add(tuple(param.shape), F32, False)
        first = param.detach().float().contiguous()
        ctypes.memmove(address, first.data_ptr(), first.numel() * 4)
        client.name(number, name, not param.requires_grad)
        numbers[name] = number
    client.begin()
    trained = Trained()

    def read_all() -> None:
        for name, param in params.items():
            trained.values[name] = client.read(numbers[name], None, param.shape)
            param.data = trained.values[name].to(dtype, copy=True)

    read_all()
    for t in range(1, n + 1):
        for u in range(micro):
            torch.manual_seed(10 * t + u)
            loss = step(model, t)
            loss.backward()
            trained.losses.append(loss.item())
            for name, param in params.items():
                if param.grad is not None:
                    client.give_gradient(numbers[name], param.grad.contiguous(), True)
                    param.grad = None
        client.moment(_library.FORWARD, "step")
        client.step()
        read_all()
    client.close()
    return trained


class Squeeze:
    """Before each operator the framework needs all of the device for a moment, so that every chunk that is not in use
    leaves for disk."""

    def __init__(self, is_tight: bool) -> None:
        self.is_tight = is_tight

    def __enter__(self) -> None:
        self._moment = real = _client.Client.moment
        is_tight = self.is_tight

        def moment(client: _client.Client, phase: int, label: str) -> None:
            if is_tight and not any(client.pin_counts[:client.get_tensor_count()]):
                real(client, phase, "before", 0)
                real(client, phase, "squeeze", client.info.budget_bytes[0] // 4096 * 4096)
                real(client, phase, "after", 0)
            real(client, phase, label, 0)

        _client.Client.moment = moment

    def __exit__(self, *error: Any) -> None:
        _client.Client.moment = self._moment


def train(make: Make, step: Step, n: int = 3, dtype: torch.dtype = BF16, micro: int = 1, is_tight: bool = True,
          **changed: Any) -> Trained:
    """By the package."""
    if is_tight:
        changed = {"memory__device": "1MB", "memory__host": 0, **changed}
    with Squeeze(is_tight):
        model, optimizer = engine(make, dtype, **changed)
        model.train()
        trained = Trained()
        for t in range(1, n + 1):
            for u in range(micro):
                torch.manual_seed(10 * t + u)
                loss = step(model, t)
                model.backward(loss)
                trained.losses.append(loss.item())
                del loss
            optimizer.step()
            trained.n_restored += optimizer.last_step.n_restored
            trained.n_separate += optimizer.last_step.n_separate
            gc.collect()
            assert not pinned(model), "still pinned: %s" % pinned(model)
            assert all(slot.n_saved == 0 and slot.n_uses == 0 for slot in model.front.slots)
        trained.values = masters(model)
        trained.moved_bytes = sum(model.client.get_info().moved_bytes)
        model.close()
        return trained


class Case(unittest.TestCase):
    def same_masters(self, one: Engine, other: Engine) -> None:
        theirs = masters(other)
        for name, value in masters(one).items():
            self.assertTrue(torch.equal(theirs[name], value), name)

    def same(self, make: Make, step: Step, restored: Optional[int] = 0, beside: Optional[int] = None,
             within: Optional[float] = None, **options: Any) -> None:
        """Training by the package has the bits of plain PyTorch's, with so many parameters restored after their
        gradients (None: any number)."""
        plain = train_plain(make, step, **{key: value for key, value in options.items()
                                           if key != "is_tight"})
        ours = train(make, step, **options)
        if within is not None:
            self.assertEqual(len(plain.losses), len(ours.losses))
            for one, other in zip(plain.losses, ours.losses):
                self.assertAlmostEqual(one, other, delta=within)
        else:
            self.assertEqual(plain.losses, ours.losses)
            for name, value in plain.values.items():
                self.assertTrue(torch.equal(value, ours.values[name]), name)
        self.assertFalse(math.isnan(ours.losses[-1]), ours.losses)
        if restored is not None:
            self.assertEqual(ours.n_restored, restored)
        if beside is not None:
            self.assertEqual(ours.n_separate, beside)

    def refused(self, call: Callable[[], Any], what: str, kind: type = RuntimeError) -> None:
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(what, str(caught.exception))


# ---- files of ranks --------------------------------------------------------------------------------------------------

def path_of(folder: str, kind: str, rank: Any) -> str:
    """Of a rank's file."""
    return os.path.join(folder, "%s-%s.pt" % (kind, rank))


def load_of(folder: str, kind: str, rank: Any) -> Any:
    return torch.load(path_of(folder, kind, rank), weights_only=VERSION >= (2, 0))  # 1.13 reads no numbers so


def flat(state: Any, prefix: str = "") -> Dict[str, Any]:
    """Every tensor, number and text by where it is."""
    if isinstance(state, dict):
        return {k: v for key, value in state.items() for k, v in flat(value, "%s[%r]" % (prefix, key)).items()}
    if isinstance(state, (list, tuple)):
        return {k: v for i, value in enumerate(state) for k, v in flat(value, "%s[%d]" % (prefix, i)).items()}
    return {prefix: state}


def same_states(one: Any, other: Any) -> None:
    one, other = flat(one), flat(other)
    assert set(one) == set(other), set(one) ^ set(other)
    for name, value in other.items():
        equal = torch.equal(one[name], value) if isinstance(value, torch.Tensor) else one[name] == value
        assert equal, (name, one[name], value)


# ---- processes ------------------------------------------------------------------------------------------------------

def _environment(**more: str) -> Dict[str, str]:
    return dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                OMPI_MCA_hwloc_base_binding_policy="none", **more)


def run_worker(name: str, *arguments: Any) -> Any:
    """The JSON object that a script of this folder prints."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    done = subprocess.run([sys.executable, "-W", "ignore", script] + [str(argument) for argument in arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def run(command: List[str]) -> Tuple[int, str]:
    """(status, output) of a command that starts ranks."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True,
                          env=_environment())
    return done.returncode, done.stdout


# Importing PyTorch takes longer than what most ranks do: one process has imported it, and ranks are forks of that.
_FORKS = """
import json, os, runpy, signal, sys, time
import torch.distributed

def wait(pids, until):
    left = set(pids)
    while left and time.monotonic() < until:
        left -= {pid for pid in left if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)}
        time.sleep(0.005)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], bool(left)

for line in sys.stdin:
    arguments, ranks = json.loads(line)
    pids = []
    for environment, output in ranks:
        pid = os.fork()
        if pid == 0:
            os.environ.update(environment)
            for fd, path in ((0, os.devnull), (1, output), (2, output)):
                os.dup2(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), fd)
            sys.argv = arguments
            sys.path.insert(0, os.path.dirname(arguments[0]))
            runpy.run_path(arguments[0], run_name="__main__")
            sys.exit()
        pids.append(pid)
    print(json.dumps(wait(pids, time.monotonic() + 120)), flush=True)
"""
_forks: Optional[subprocess.Popen] = None


def _end_forks() -> None:
    if _forks is not None:
        _forks.stdin.close()
        _forks.wait()
        _forks.stdout.close()


def start_ranks(program: str, *arguments: str, n_ranks: int = 2) -> List[Tuple[int, str]]:
    """(status, output) of each rank, started as torchrun does, but without torchrun, which ends all when one fails."""
    global _forks
    if _forks is None:
        _forks = subprocess.Popen([sys.executable, "-W", "ignore", "-c", _FORKS], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env=_environment())
        atexit.register(_end_forks)
    with tempfile.TemporaryDirectory() as folder:
        of_all = dict(WORLD_SIZE=str(n_ranks), LOCAL_WORLD_SIZE=str(n_ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(free_port()))
        ranks = [(dict(of_all, RANK=str(rank), LOCAL_RANK=str(rank)), os.path.join(folder, str(rank)))
                 for rank in range(n_ranks)]
        print(json.dumps(([program, *arguments], ranks)), file=_forks.stdin, flush=True)
        statuses, hung = json.loads(_forks.stdout.readline())
        texts = []
        for _, output in ranks:
            with open(output, errors="replace") as f:
                texts.append(f.read())
    if hung:
        raise AssertionError("ranks did not end: " + "\n".join(texts))
    return list(zip(statuses, texts))


def torchrun(program: str, *arguments: str, n_ranks: int = 2) -> Tuple[int, str]:
    # Torch 1.13 on Python 3.11 knows neither its own default, 0, nor 3.
    tee = ["--redirects", "1", "--tee", "1"] if torch.__version__.startswith("1.") else []
    return run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(n_ranks), "--master_addr",
                "127.0.0.1", "--master_port", str(free_port())] + tee + [program] + list(arguments))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
