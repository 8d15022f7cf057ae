"""Memory of the process: a model whose data is three times the budgets is built, trained, and refused by name."""
import unittest

import torch
import torch.nn as nn

from support import WIDTH, Case, engine, run_worker, values

DEVICE, HOST = 52 << 20, 12 << 20
MARGIN = 40 << 20  # what PyTorch and Python take beside chunks: activations are 0.25 MB a layer


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
