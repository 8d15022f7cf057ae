"""memory: "300MB" is what the whole process may take: it does not take more, a refusal names a budget that is enough."""
import json
import unittest

from support import named_bytes, run_worker

LAYERS, MODEL_DATA = 16, 269e6  # of memory; the process without chunks takes some 250 MB by Debian's PyTorch
SLACK = 1.05
MODULE = 20 * 4 * 1024  # bytes of activations a sample of one module, with gradients under way


def run(memory, *steps):
    return run_worker("limit_worker.py", json.dumps(memory), LAYERS, *steps)


def named(refused, option):
    return named_bytes(refused, "memory." + option)


def least_total():
    """What a process with PyTorch in it must have at least, on this machine."""
    return named(run("20MB", 8)["refused"], "total")


class Dial(unittest.TestCase):
    def stays_within(self, took, total, samples):
        # what one module allocates is seen when the next one begins
        self.assertLess(took["peak_bytes"], total * SLACK + samples * MODULE, took)

    def until_it_works(self, memory, option, most_refusals, *steps):
        """(what it took, the budget that worked)"""
        for _ in range(most_refusals):
            took = run(memory, *steps)
            if "refused" not in took:
                break
            budget = named(took["refused"], option)
            memory = dict(memory, **{option: budget}) if isinstance(memory, dict) else budget
        took = run(memory, *steps) if "refused" in took else took
        self.assertNotIn("refused", took)
        return took, memory

    def test_the_process_stays_within_it(self):
        for total in (least_total() + (10 << 20), least_total() + (100 << 20)):
            took = run(total, 8, 8, 8)
            self.assertGreater(took["model_data_bytes"], 0.9 * MODEL_DATA)
            self.assertGreater(took["disk_bytes"], 0, took)  # memory.disk = auto
            said = [line for line in took["lines"] if line.startswith("memory.")]
            self.assertEqual(len(said), 2, took)
            self.assertRegex(said[0], "^memory.total .* for the process itself$")
            self.assertRegex(said[1], "^memory.disk auto: at most .* in /var/tmp, as model data does not fit in RAM")
            self.stays_within(took, total, 8)

    def test_what_is_named_is_enough(self):
        # the process alone; chunks; activations
        took, total = self.until_it_works("20MB", "total", 2, 8, 8)
        self.stays_within(took, total, 8)
        took, total = self.until_it_works(least_total(), "total", 2, 64, 64)
        self.stays_within(took, total, 64)

    def test_a_larger_step_than_before(self):
        total = least_total() + (8 << 20)
        self.assertEqual(run(total, 8, 8, 125)["n_steps"], 2)  # refused, and not before
        took, total = self.until_it_works(total, "total", 2, 8, 8, 125)
        self.stays_within(took, total, 125)

    def test_tiers_name_the_device(self):
        memory = {"device": "25MB", "host": 0, "disk": "1GB", "disk_path": "/var/tmp"}
        self.until_it_works(memory, "device", 2, 32, 32)


if __name__ == "__main__":
    unittest.main()
