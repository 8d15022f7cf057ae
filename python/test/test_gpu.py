"""A GPU that the library finds and PyTorch does not: the fake driver as a library, and a PyTorch for processors. What
PyTorch's caching allocator keeps on a GPU, as it counts in memory.device."""
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import torch

import patrickstar
from patrickstar import _cuda, _library, _ranks
from patrickstar._client import Client, Config

BUILD = os.path.dirname(_library.path())
DRIVER = os.path.join(BUILD, "test", "gpu", "driver")
TRAIN = """
import sys, torch
from patrickstar.runtime import initialize_engine

torch.manual_seed(0)
config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "memory": {"device": sys.argv[2], "host": "40MB"},
          "train": {"backend": sys.argv[1]}}
model, optimizer = initialize_engine(lambda: torch.nn.Linear(64, 64), 0, config)
x = torch.ones(8, 64)
for _ in range(3):
    loss = model(x).square().mean()
    model.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item(), model.client.get_info().gpu, model.why_not_gpu)
"""


def train(backend, device="40MB"):
    path = DRIVER + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    return subprocess.run([sys.executable, "-W", "ignore", "-c", TRAIN, backend, device], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=path))


@unittest.skipIf(torch.cuda.is_available(), "PyTorch sees a GPU")
@unittest.skipUnless(os.path.exists(os.path.join(DRIVER, "libcuda.so.1")) and
                     os.path.exists(os.path.join(BUILD, "libpatrickstar_cuda.so")),
                     "a build with the fake driver as a library and the plug-in for GPUs (make CUDA=1 tests)")
class GpuThatPyTorchDoesNotSee(unittest.TestCase):
    def test_auto_computes_on_the_processor_and_says_why(self):
        done = train("auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        loss, gpu, why = done.stdout.strip().split(" ", 2)
        self.assertEqual(gpu, "-1")
        self.assertTrue(why.startswith("PyTorch %s can use none: " % torch.__version__), why)
        self.assertIn("the processor computes, as the GPU cannot be used: " + why, done.stderr)
        self.assertEqual(train("cpu").stdout.split(" ", 2), [loss, "-1", "None\n"])
        self.assertIn("; install a PyTorch for CUDA 13 (2.9 or later", why)

    def test_budgets_are_the_processors(self):
        """More than the fake GPU has, beyond which "cuda" is refused. Only what is used of them counts here."""
        done = train("auto", "900GB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(" ")[1], "-1")

    def test_cuda_is_refused(self):
        done = train("cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("train.backend = cuda: PyTorch %s can use none: " % torch.__version__, done.stderr)
        self.assertRegex(done.stderr, r"; install a PyTorch for CUDA 13 \(.*\), or set train.backend = cpu")


class DeviceOfTheEngine(unittest.TestCase):
    def test_it_is_where_parameters_are(self):
        class Own(torch.nn.Linear):
            device = "the module's"

        model, _ = patrickstar.initialize_engine(lambda: Own(4, 4), config={
            "train": {"backend": "cpu"}, "memory": {"device": "40MB", "host": 0}})
        self.assertEqual((model.device, model.module.device), (torch.device("cpu"), "the module's"))
        model.client.device = torch.device("cuda", 1)  # as Client.begin finds it
        self.assertEqual(model.device, torch.device("cuda", 1))
        model.client.device = torch.device("cpu")
        model.close()


class NumberOfTheGpu(unittest.TestCase):
    """This process as one of several; PyTorch's GPUs are replaced."""

    def begin(self, n_gpus, launcher, **given):
        """What _cuda.select is called with, and the error."""
        ranks = SimpleNamespace(size=2, comm=None, rank=0, fail=lambda error: None, close=lambda: None)
        with mock.patch.object(_cuda, "count", lambda: n_gpus), mock.patch.object(_cuda, "select") as select, \
                mock.patch.object(_ranks, "init", lambda *_: ranks), mock.patch.dict(os.environ, launcher), \
                self.assertRaises(patrickstar.PatrickStarError) as caught:
            # A GPU that is not there ends it after the number is known.
            patrickstar.initialize_engine(lambda: torch.nn.Linear(4, 4), config={"train": {"backend": "cuda"}}, **given)
        return [call[0][0] for call in select.call_args_list], str(caught.exception)

    def test_torchrun_has_it(self):
        self.assertEqual(self.begin(2, {"LOCAL_RANK": "1"})[0], [1])
        self.assertEqual(self.begin(2, {"LOCAL_RANK": "1"}, local_rank=0)[0], [0])

    def test_beyond_the_gpus(self):
        selected, error = self.begin(2, {"LOCAL_RANK": "2"})
        self.assertEqual(selected, [])
        self.assertIn("local_rank=2: expected a number below 2, the count of GPUs that this process sees; start one "
                      "process a GPU, or give each process one GPU in CUDA_VISIBLE_DEVICES, and local_rank=0", error)


class MemoryOfTheCachingAllocator(unittest.TestCase):
    """What PyTorch reports is replaced: this machine need not have a GPU."""

    def test_a_share_of_what_it_keeps_counts(self):
        for text, expected in ((None, 1000), (0.25, 1750), (1, 4000)):
            tracer = {} if text is None else {"memory_reserved_ratio": text}
            config = Config({"train": {"backend": "cpu"}, "memory": {"device": "1MB"}, "client": {"mem_tracer": tracer}})
            client = Client(config)
            client.info, client.device = SimpleNamespace(gpu=0), torch.device("cpu")
            with mock.patch("torch.cuda.memory_allocated", lambda device: 1000), \
                    mock.patch("torch.cuda.memory_reserved", lambda device: 4000), \
                    mock.patch("patrickstar._client.library.ps_client_moment", return_value=0) as moment:
                client.moment(0, "a module")
            self.assertEqual(moment.call_args[0][3], expected)
            client.close()

    def test_a_share_above_all_of_it(self):
        with self.assertRaisesRegex(patrickstar.PatrickStarError, "memory_reserved_ratio"):
            Config({"client": {"mem_tracer": {"memory_reserved_ratio": 1.5}}})


if __name__ == "__main__":
    unittest.main()
