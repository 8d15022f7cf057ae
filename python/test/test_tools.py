"""The guide's tools: python -m patrickstar.merge, python -m patrickstar.visualize, and where they find pstar."""
import collections
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

from patrickstar import _library, _program, visualize
from patrickstar.runtime import initialize_engine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def visualize_here(*arguments):
    """(status, output, errors) of python -m patrickstar.visualize, without starting Python again"""
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            status = visualize.main(list(arguments))
        except SystemExit as end:
            status = end.code
    return status, said.getvalue(), errors.getvalue()


def tool(name, *arguments, folder=None):
    """(status, output, errors) of python -m patrickstar.NAME"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "patrickstar." + name] + list(arguments), cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, done.stderr


class Merge(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        torch.manual_seed(0)
        self.parts = [collections.OrderedDict([("wte.weight", torch.randn(7, 3)), ("shared", torch.arange(4.0))]),
                      collections.OrderedDict([("h.0.weight", torch.randn(3, 3)), ("shared", torch.arange(4.0))])]
        self.save()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def save(self):
        for rank, part in enumerate(self.parts):
            torch.save(part, self.path("model-%d.pt" % rank))

    def test_files_of_ranks(self):
        status, _, errors = tool("merge", "--pattern", "model-*.pt", "--num", "2", folder=self.folder.name)
        self.assertEqual(status, 0, errors)
        merged = torch.load(self.path("model-merged.pt"))
        whole = {**self.parts[0], **self.parts[1]}
        self.assertEqual(set(merged), set(whole))
        for name, tensor in whole.items():
            self.assertTrue(torch.equal(merged[name], tensor), name)

    def test_a_file_is_missing(self):
        status, _, errors = tool("merge", "--pattern", "model-*.pt", "--num", "3", folder=self.folder.name)
        self.assertNotEqual(status, 0)
        self.assertIn("model-2.pt", errors)

    def test_ranks_that_differ(self):
        self.parts[1]["shared"][0] = 5
        self.save()
        status, _, errors = tool("merge", "--pattern", "model-*.pt", "--num", "2", folder=self.folder.name)
        self.assertNotEqual(status, 0)
        self.assertIn("shared", errors)
        self.assertFalse(os.path.exists(self.path("model-merged.pt")))


class Library(unittest.TestCase):
    def test_one_that_cannot_be_loaded_names_what_it_needs(self):
        with tempfile.NamedTemporaryFile("w", suffix=".so") as file:
            done = subprocess.run([sys.executable, "-c", "import patrickstar"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=dict(os.environ, PATRICKSTAR_LIBRARY=file.name))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ImportError: %s cannot be loaded: " % file.name, done.stdout)
        self.assertIn("libjansson4 libpcre2-8-0 liburing2 libutf8proc2 libxxhash0 libzstd1 zlib1g", done.stdout)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib (Debian: python3-matplotlib)")
class Visualize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.profile = os.path.join(cls.folder.name, "profile.json")
        config = {
            "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW"},
            "model": {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
            "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2"},
            "memory": {"device": "20MB", "host": "30MB", "disk": 0, "disk_path": cls.folder.name},
            "train": {"steps": 3, "output_dir": os.path.join(cls.folder.name, "run")},
            "profile": {"path": cls.profile, "steps": [1, 3]}}
        path = os.path.join(cls.folder.name, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        subprocess.run([_program.find(), "train", path], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def figure(self, *arguments):
        output = os.path.join(self.folder.name, "figure.svg")
        status, said, errors = visualize_here(self.profile, "-o", output, *arguments)
        self.assertEqual((status, said.strip()), (0, output), errors)
        with open(output) as file:
            return file.read()

    def refused(self, *arguments):
        status, _, errors = visualize_here(*arguments)
        self.assertEqual(status, 2)
        return errors

    def test_name_of_the_figure(self):
        for figure in ("memory", "access"):
            status, said, errors = tool("visualize", self.profile, "--fig_type=" + figure)
            self.assertEqual(status, 0, errors)
            self.assertEqual(said.strip(), os.path.join(self.folder.name, "profile-%s.svg" % figure))

    def test_kinds(self):
        memory, access = self.figure("--fig_type", "memory"), self.figure("--fig_type", "access")
        for text in ("total", "chunks", "non-model data", "forward", "time (s)"):
            self.assertIn(">%s<" % text, memory)
        for text in ("PARAM16", "VARIANCE", "host", "time (s)"):
            self.assertIn(">%s<" % text, access)

    def test_formats(self):
        for name, beginning in (("figure.png", b"\x89PNG"), ("figure.pdf", b"%PDF")):
            output = os.path.join(self.folder.name, name)
            self.assertEqual(visualize_here(self.profile, "-o", output)[0], 0)
            with open(output, "rb") as file:
                self.assertEqual(file.read(4), beginning)

    def test_memory_type(self):
        for kind, kept, dropped in (("GPU", "device (", "host ("), ("CPU", "host (", "device (")):
            figure = self.figure("--memory_type", kind)
            self.assertIn(kept, figure)
            self.assertNotIn(dropped, figure)

    def test_rm_warmup(self):
        figure = self.figure("--rm_warmup")
        self.assertIn("step 2", figure)
        self.assertNotIn("step 1", figure)
        self.assertIn("step 1", self.figure())

    def without_steps(self, *steps):
        with open(self.profile) as file:
            profile = json.load(file)
        profile["traceEvents"] = [event for event in profile["traceEvents"]
                                  if event.get("cat") != "step" or event["args"]["step"] not in steps]
        path = os.path.join(self.folder.name, "fewer.json")
        with open(path, "w") as file:
            json.dump(profile, file)
        return path

    def test_profile_without_the_first_step(self):
        status, _, errors = visualize_here(self.without_steps(1), "--rm_warmup")
        self.assertEqual(status, 0)
        self.assertIn("begins at step 2", errors)

    def test_log_of_a_run(self):
        run = os.path.join(self.folder.name, "run")
        self.assertIn("is the log of a run, expected a profile", self.refused(run))

    def test_refused_by_name(self):
        self.assertIn("--memory_type", self.refused(self.profile, "--fig_type", "access", "--memory_type", "GPU"))
        self.assertIn("figure.none", self.refused(self.profile, "-o", "figure.none"))
        self.assertIn("the first step of the training only",
                      self.refused(self.without_steps(2, 3), "--rm_warmup"))

    def test_no_profile(self):
        pickled = os.path.join(self.folder.name, "profile.pkl")  # PatrickStar's own profiles are
        torch.save({"start_time": 1.0}, pickled)
        status, _, errors = tool("visualize", pickled)
        self.assertEqual(status, 1)
        self.assertIn(pickled, errors)


class VisualizeAlone(unittest.TestCase):
    def test_without_matplotlib(self):
        with unittest.mock.patch.dict(sys.modules, {"matplotlib": None}):
            status, _, errors = visualize_here("profile.json")
        self.assertEqual(status, 2)
        self.assertIn("pip install matplotlib", errors)
        self.assertIn("pstar report profile.json -o report.html", errors)


class Command(unittest.TestCase):
    """patrickstar, as python -m patrickstar."""

    def run_it(self, *arguments, without_torch=True):
        """(status, output, errors); where PyTorch cannot be imported"""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "torch.py"), "w") as file:
                file.write("raise ImportError('PyTorch is imported')\n")
            path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
            done = subprocess.run([sys.executable, "-m", "patrickstar"] + list(arguments), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=dict(os.environ, PYTHONPATH=path))
        return done.returncode, done.stdout, done.stderr

    def test_options(self):
        status, all_options, errors = self.run_it("--help-config")
        self.assertEqual((status, errors), (0, ""))
        done = subprocess.run([_program.find(), "train", "--help-config"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(all_options, done.stdout)
        status, memory, errors = self.run_it("--help-config", "memory")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("\n  memory.total=", memory)
        self.assertIn("\n  memory.disk=", memory)
        self.assertNotIn("\n  train.steps=", memory)
        status, total, errors = self.run_it("--help-config", "memory.total")
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(total.count("\n\n"), 1)
        self.assertIn(total[total.index("\n  memory.total="):], memory)

    def test_an_option_that_there_is_not(self):
        status, said, errors = self.run_it("--help-config", "memory.totl")
        self.assertEqual((status, said), (2, ""))
        self.assertIn("did you mean 'memory.total'?", errors)
        status, said, errors = self.run_it("--help-config", "")
        self.assertEqual(status, 2)
        self.assertIn("'' is no option", errors)

    def test_version(self):
        status, said, _ = self.run_it("--version")
        self.assertEqual((status, said), (0, "patrickstar %s (%s)\n" % (_library.version, _library.path())))

    def test_errors_name_it(self):
        for given in ({"xyzzy": 1}, {"memory": {"qqqqqq": 1}}):
            with self.assertRaises(_library.PatrickStarError) as caught:
                initialize_engine(lambda: torch.nn.Linear(1, 1), 0, given)
            self.assertIn("; `patrickstar --help-config` lists the keys", str(caught.exception))
            self.assertNotIn("doc/", str(caught.exception))


class Program(unittest.TestCase):
    def test_next_to_the_library(self):
        self.assertEqual(os.path.dirname(_program.find()), os.path.dirname(os.path.realpath(_library.path())))

    def test_none(self):
        """Not this package's own command, which would start itself again and again."""
        with tempfile.TemporaryDirectory() as folder:
            own = os.path.join(folder, "pstar")
            with open(own, "w") as file:
                file.write("#!/bin/sh\nexec python3 -c 'from patrickstar._program import main; main()'\n")
            os.chmod(own, 0o755)
            code = ("from patrickstar import _library, _program; _library.path = lambda: 'libpatrickstar.so.0.2'\n"
                    "print(_program.find())")
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=dict(os.environ, PATH=folder),
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("there is no program pstar, nor in PATH", done.stderr)


if __name__ == "__main__":
    unittest.main()
