"""Engines over groups of torch.distributed (process_group of initialize_engine): each has ranks of its own."""
import os
import tempfile
import types
import unittest
from unittest import mock

import torch
import torch.distributed as dist

from support import Case, Two, config, start_ranks
from patrickstar import PatrickStarError, Refused, _client
from patrickstar.runtime import initialize_engine

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "groups_worker.py")


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Groups(Case):
    def go_well(self, *arguments, n_ranks=4, but=()):
        for rank, (status, text) in enumerate(start_ranks(WORKER, *arguments, n_ranks=n_ranks)):
            if rank not in but:
                self.assertEqual(status, 0, text)
                self.assertIn("rank %d: done" % rank, text)

    def test_two_halves_have_the_bits_of_two_runs(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            self.go_well("halves", one)
            losses = []
            for half in range(2):
                self.go_well("alone", two, str(half), n_ranks=2)
                for rank in range(2):
                    name = "half-%d-rank-%d.pt" % (half, rank)
                    ours, alone = (torch.load(os.path.join(folder, name)) for folder in (one, two))
                    self.assertEqual(ours["losses"], alone["losses"])
                    losses.append(ours["losses"])
                    self.same(ours["values"], alone["values"])
                    for number, states in alone["optimizer"]["state"].items():
                        self.same(ours["optimizer"]["state"][number], states)
            self.assertEqual(len({tuple(of_rank) for of_rank in losses}), 4)  # no two had the same samples

    def same(self, ours, theirs):
        self.assertEqual(list(ours), list(theirs))
        for name, value in theirs.items():
            self.assertTrue(torch.equal(ours[name], value), name)

    def test_a_process_in_several(self):
        self.go_well("several_in_one_process")

    def test_ending_in_any_order(self):
        self.go_well("end_without_close")

    def test_a_process_in_several_that_raises(self):
        self.go_well("one_raises", but=(3,))

    def test_one_half_that_fails_leaves_the_other(self):
        self.go_well("one_half_fails", but=(3,))


class Refusals(Case):
    def test_what_is_no_group(self):
        def start(group):
            return initialize_engine(Two, 0, config(), process_group=group)
        self.refused(lambda: start(2), "torch.distributed has no process groups here", Refused)
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=0, world_size=1)
            try:
                for group in (0, [0, 1], "gloo"):
                    self.refused(lambda: start(group), "process_group is %s; it must be a result of torch.distributed."
                                 "new_group" % type(group).__name__, PatrickStarError)
                group = dist.new_group([0])
                model, _ = initialize_engine(Two, 1, config(), process_group=group)  # its number on the machine
                self.assertEqual((model.ranks.size, model.ranks.rank), (1, 0))
                model.close()
                dist.destroy_process_group(group)
                self.refused(lambda: start(group), "as it was destroyed", Refused)
            finally:
                dist.destroy_process_group()

    def test_another_gpu_than_the_library_takes(self):
        client = _client.Client(_client.Config(config()))
        with mock.patch.object(_client.Client, "get_info", lambda client: types.SimpleNamespace(gpu=1)), (
                mock.patch("patrickstar._cuda.current", lambda: 3)):
            self.refused(client.use_stream, "PyTorch computes on GPU 3 here (local_rank), but the ranks of an engine",
                         Refused)
        client.close()


if __name__ == "__main__":
    unittest.main()
