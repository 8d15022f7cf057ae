"""Files of the ranks (state_dict(whole=False) of model and optimizer): loaded by the same rank again, refused by
others, joined to what any number of them loads."""
import os
import tempfile
import unittest

import torch.distributed as dist

from support import IS_LONG, Case, load_of, path_of, same_states, start_ranks
from test_merge import merge_here

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parts_worker.py")


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Parts(Case):
    def go_well(self, *arguments, n_ranks=2):
        for rank, (status, text) in enumerate(start_ranks(WORKER, *arguments, n_ranks=n_ranks)):
            self.assertEqual(status, 0, text)
            self.assertIn("rank %d: done" % rank, text)

    def saved_by(self, n_ranks):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.go_well("save", folder.name, n_ranks=n_ranks)
        for kind in ("model", "optimizer"):
            status, _, errors = merge_here("--pattern", path_of(folder.name, kind, "*"), "--num", n_ranks)
            self.assertEqual((status, errors), (0, ""))
        return folder.name

    def test_two_ranks(self):
        folder = self.saved_by(2)
        self.joined_optimizer_is_the_whole(folder, 2)
        for n_ranks in (1, 2, 3):
            self.go_well("load_elsewhere", folder, "2", n_ranks=n_ranks)

    @unittest.skipUnless(IS_LONG, "long: PS_TEST_LONG=1")
    def test_three_ranks(self):
        folder = self.saved_by(3)
        self.joined_optimizer_is_the_whole(folder, 3)
        for n_ranks in (1, 2, 3):
            self.go_well("load_elsewhere", folder, "3", n_ranks=n_ranks)

    def joined_optimizer_is_the_whole(self, folder, n_ranks):
        merged = load_of(folder, "optimizer", "merged")
        for rank in range(n_ranks):
            whole = load_of(folder, "whole-optimizer", rank)
            same_states(merged, whole)
            self.assertEqual(list(merged), list(whole))
            part = load_of(folder, "optimizer", rank)
            self.assertLess(0, len(part["state"]))
            self.assertLess(len(part["state"]), len(whole["state"]))


if __name__ == "__main__":
    unittest.main()
