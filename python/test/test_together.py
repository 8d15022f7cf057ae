"""What all ranks must do together: what one does alone ends all of them, at once and with the cause."""
import os
import unittest

import torch.distributed as dist

from support import Case, IS_LONG, start_ranks

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "together_worker.py")
SAME_CALLS = "all ranks must make the same calls (state_dict, save, evaluate, generate), not one rank alone"


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Together(Case):
    def ends(self, case, says, n_ranks=2, of_rank=0):
        """What rank `of_rank` prints has all of these."""
        done = start_ranks(WORKER, case, n_ranks=n_ranks)
        status, text = done[of_rank]
        self.assertNotEqual(status, 0, text)
        for what in ("rank %d heard: " % of_rank,) + says:
            self.assertIn(what, text)

    def goes_well(self, case, n_ranks=2):
        for rank, (status, text) in enumerate(start_ranks(WORKER, case, n_ranks=n_ranks)):
            self.assertEqual(status, 0, text)
            self.assertIn("rank %d: done" % rank, text)

    def test_saving_on_one(self):
        self.ends("save_on_one", ("rank 0 reads the value of first.weight", "rank 1 uses first.weight", SAME_CALLS))
        self.ends("save_on_one_at_the_end", ("rank 1 (", "it ended, or left before the others", SAME_CALLS))
        self.goes_well("save_on_all")

    def test_evaluating_on_one(self):
        self.ends("evaluate_on_one", ("rank 0 evaluates or generates", "rank 1 uses first.weight", SAME_CALLS))
        self.ends("evaluate_on_one_at_the_end", ("rank 1 (", "it ended, or left before the others", SAME_CALLS))

    def test_a_rank_that_raises(self):
        self.ends("raise_on_one", ("rank 1 (", "failed: ValueError: the batch is empty"))

    def test_experts_that_differ(self):
        for rank in range(2):
            self.ends("use_other_experts", ("experts.0.weight has got a gradient on rank 0 in this step, and none on "
                                            "rank 1", "with an input of no rows (x[:0])"), of_rank=rank)
        self.goes_well("call_all_experts")

    def test_a_rank_that_is_killed_is_named(self):
        for n_ranks in (2, 3) if IS_LONG else (2,):
            self.ends("be_killed", ("rank 1 (", "has ended without notice"), n_ranks=n_ranks)


if __name__ == "__main__":
    unittest.main()
