"""Memory of the process: a model whose data is three times the budgets is built, trained, and refused by name."""
import unittest

import torch
import torch.nn as nn

from support import WIDTH, Case, engine, named_bytes, run_worker, values

DEVICE, HOST = 52 << 20, 12 << 20
MARGIN = 40 << 20  # what PyTorch and Python take in addition to chunks: activations are 0.25 MB a layer


class Memory(Case):
    def test_a_third_of_the_model_data(self):
        took = run_worker("memory_worker.py", DEVICE, HOST, 64)
        self.assertGreater(took["model_data_bytes"], 2.8 * (DEVICE + HOST))
        self.assertLess(took["built_bytes"], DEVICE + HOST + MARGIN)
        self.assertLess(took["trained_bytes"], DEVICE + HOST + MARGIN)
        for peak, budget in zip(took["peak_bytes"], took["budget_bytes"]):
            self.assertLessEqual(peak, budget)
        self.assertGreater(took["framework_bytes"], 0)  # what PyTorch takes itself is measured

    def test_activations_that_leave_no_room_are_refused_by_name(self):
        took = run_worker("memory_worker.py", DEVICE, HOST, 3000)  # 12 MB a layer
        self.assertIn("the framework itself", took.get("refused", str(took)))

    def test_a_named_budget_is_above_the_one_given(self):
        """Where there is no other tier chunks can be nowhere else, whatever a moment uses of them. In the first step
        what activations will take is an estimate: the second or third budget is enough."""
        given = 230 * 10**6
        for _ in range(4):
            took = run_worker("memory_worker.py", given, 0, 3000, 0)
            if "refused" not in took:
                return
            named = named_bytes(took["refused"], "memory.device")
            self.assertGreater(named, given)
            given = named
        self.fail("%d bytes are not enough either" % given)

    def test_what_the_model_gives_counts(self):
        class Wide(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                return self.a(x).sum(), torch.ones(16 << 20)
        model, optimizer = engine(Wide, torch.float32, memory__device="400MB")
        loss, wide = model(values(dtype=torch.float32))
        self.assertGreater(model.client.get_info().framework_bytes, 60 << 20)
        del wide  # no module runs before backward
        model.backward(loss)
        optimizer.step()
        self.assertGreater(model.client.get_info().framework_peak_bytes, 60 << 20)


if __name__ == "__main__":
    unittest.main()
