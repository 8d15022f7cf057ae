"""python -m patrickstar.merge of optimizer files (test_tools.py has those of models)."""
import contextlib
import io
import os
import tempfile
import unittest

import torch

from support import Case, flat, load_of, path_of, same_states
from patrickstar import merge


def merge_here(*arguments):
    """(status, output, errors) of python -m patrickstar.merge, without starting Python again"""
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        status = merge.main([str(argument) for argument in arguments])
    return status, said.getvalue(), errors.getvalue()


class Harm:
    def __reduce__(self):
        return exec, ("raise SystemExit('harm')",)


def state(*numbers):
    return {number: {"step": torch.tensor(3.), "exp_avg": torch.full((2, 3), float(number))} for number in numbers}


class Optimizer(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.names = {0: "a.weight", 1: "a.bias", 2: "b.weight"}
        self.parts = [self.part(0, 0, 1), self.part(1, 1, 2)]

    def part(self, rank, *numbers):
        groups = [{"lr": .1, "betas": (.9, .99), "weight_decay": 0., "params": [0, 1, 2]}]
        return {"state": state(*numbers), "param_groups": groups, "patrickstar": {
            "steps": 3, "scaler": {"loss_scale": 1.}, "tensor_steps": {0: 3, 1: 3, 2: 3},
            "part": {"rank": rank, "ranks": 2, "chunk_elements": 8, "names": self.names}}}

    def merge(self, num=2, *out):
        for rank, part in enumerate(self.parts):
            torch.save(part, path_of(self.folder.name, "optimizer", rank))
        return merge_here("--pattern", path_of(self.folder.name, "optimizer", "*"), "--num", num, *out)

    def refuses(self, *texts, num=2, out=()):
        status, _, errors = self.merge(num, *out)
        self.assertEqual(status, 2, errors)
        for text in texts:
            self.assertIn(text, errors)
        left = sorted(os.listdir(self.folder.name))
        self.assertEqual([name for name in left if "merged" in name or "tmp" in name], [])

    def test_is_the_whole(self):
        status, said, errors = self.merge()
        self.assertEqual((status, errors), (0, ""))
        merged = load_of(self.folder.name, "optimizer", "merged")
        self.assertEqual(list(merged["state"]), [0, 1, 2])
        expected = self.part(0, 0, 1, 2)
        del expected["patrickstar"]["part"]
        same_states(merged, expected)
        lines = said.splitlines()
        self.assertEqual(lines[0], "from " + path_of(self.folder.name, "optimizer", 0))
        self.assertRegex(lines[-1], "optimizer-merged.pt: states of 3 parameters, ")

    def test_another_name(self):
        out = os.path.join(self.folder.name, "all.bin")
        self.assertEqual(self.merge(2, out)[0], 0)
        self.assertEqual(len(flat(torch.load(out)["state"])), 6)
        self.refuses("optimizer states are written as torch.save does it", out=(
            os.path.join(self.folder.name, "merged.safetensors"),))

    def test_states_that_differ(self):
        self.parts[1]["state"][1]["exp_avg"][1, 2] = 5
        self.refuses("exp_avg of a.bias differs between ", "optimizer-0.pt", "optimizer-1.pt")

    def test_states_of_another_kind(self):
        del self.parts[1]["state"][1]["exp_avg"]
        self.refuses("exp_avg of a.bias differs between ")

    def test_not_a_number_is_itself(self):
        for part in self.parts:
            part["state"][1]["exp_avg"][0, 0] = float("nan")
        self.assertEqual(self.merge()[0], 0)

    def test_numbers_that_differ(self):
        self.parts[1]["param_groups"][0]["betas"] = (.9, .999)
        self.refuses("param_groups[0]['betas'][1] is 0.99 in ", "and 0.999 in ")
        self.parts[1]["param_groups"][0]["betas"] = (.9, .99)
        self.parts[1]["patrickstar"]["tensor_steps"][2] = 4
        self.refuses("patrickstar['tensor_steps'][2] is 3 in ", "and 4 in ")

    def test_ranks(self):
        self.parts[1]["patrickstar"]["part"]["rank"] = 0
        self.refuses("it is of rank 0, as is", "expected one file of each rank")
        self.parts[1]["patrickstar"]["part"]["rank"] = 1
        self.parts.append(self.part(2, 2))
        self.refuses("it is of one of 2 ranks, but there are 3 files (--num)", num=3)
        self.refuses("optimizer-2.pt is there too, but --num says 2 files")

    def test_a_file_is_missing(self):
        self.refuses("optimizer-2.pt", num=3)

    def test_a_state_is_missing(self):
        del self.parts[1]["state"][2]
        self.refuses("the state of b.weight, and of 0 other parameters, is in none of the files")

    def test_whole_files(self):
        for rank in range(2):
            self.parts[rank] = self.part(rank, 0, 1, 2)
            del self.parts[rank]["patrickstar"]["part"]
        self.assertEqual(self.merge()[0], 0)
        os.remove(path_of(self.folder.name, "optimizer", "merged"))
        self.parts[0] = self.part(0, 0, 1)
        self.refuses("optimizer-1.pt: it is whole, and ", "is of one rank")

    def test_what_pickle_would_run(self):
        self.parts[1]["param_groups"][0]["lr"] = Harm()
        self.refuses("optimizer-1.pt: no file of torch.save with nothing but tensors, numbers and texts: ")

    def test_what_checkpoints_may_have_too(self):
        for part in self.parts:
            part["param_groups"][0].update(shape=torch.Size([2, 3]), device=torch.device("cpu"))
        self.assertEqual(self.merge()[0], 0)
        merged = load_of(self.folder.name, "optimizer", "merged")["param_groups"][0]
        self.assertEqual((merged["shape"], merged["device"]), (torch.Size([2, 3]), torch.device("cpu")))

    def test_another_file(self):
        self.parts[1] = {"a.weight": torch.ones(2)}
        self.refuses("optimizer-1.pt: it has no 'state' and 'param_groups'")


if __name__ == "__main__":
    unittest.main()
