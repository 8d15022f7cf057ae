"""Configurations of PatrickStar's guide and examples, as they stand there."""
import json
import os
import tempfile
import unittest

import torch

from patrickstar.runtime import initialize_engine
from support import can_multiply_halves, model_of_tokens, train_on_tokens

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Configurations(unittest.TestCase):
    def losses_with(self, path):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        if not can_multiply_halves():
            with open(path) as file:
                config = json.load(file)
            del config["fp16"]
            config["bf16"] = {"enabled": True}
            path = os.path.join(folder.name, "config.json")
            with open(path, "w") as file:
                json.dump(config, file)
        torch.manual_seed(0)
        model, optimizer = initialize_engine(model_func=model_of_tokens, local_rank=0, config=path)
        self.addCleanup(model.close)
        return train_on_tokens(model, optimizer, 6)

    def test_as_they_stand(self):
        """Loss scales, chunk sizes, where updates run and whether copies overlap are another; the bits are the same."""
        losses = [self.losses_with(os.path.join(ROOT, "test", "data", "config", "patrickstar_%s.json" % name))
                  for name in ("readme", "example")]
        self.assertEqual(losses[0], losses[1])
        self.assertLess(losses[0][-1], losses[0][0] - 0.2)

    def test_chunk_size(self):
        """Its name in the guide."""
        model, _ = initialize_engine(model_func=model_of_tokens, local_rank=0, config={"chunk_size": 16384})
        self.addCleanup(model.close)
        self.assertEqual(model.client.info.chunk_elements, 16384)

    def test_without_one(self):
        """PatrickStar's own fails then."""
        model, optimizer = initialize_engine(model_func=model_of_tokens, local_rank=0)
        self.addCleanup(model.close)
        losses = train_on_tokens(model, optimizer, 6)
        self.assertLess(losses[-1], losses[0] - 0.2)


if __name__ == "__main__":
    unittest.main()
