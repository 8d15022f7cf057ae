"""patrickstar.profiler: what is recorded, and when."""
import json
import os
import subprocess
import tempfile
import unittest

import torch

from patrickstar import PatrickStarError, _program
from patrickstar.profiler import profiler
from patrickstar.runtime import initialize_engine
from support import model_of_tokens, train_on_tokens


class Profiler(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "profile.json")

    def begin(self):
        model, optimizer = initialize_engine(model_func=model_of_tokens, local_rank=0, config={
            "bf16": {"enabled": True}, "default_chunk_size": 16384,
            "memory": {"device": "60MB", "host": 0, "disk": "10MB", "disk_path": self.folder.name}})
        self.addCleanup(model.close)
        return model, optimizer

    def saved(self):
        profiler.save(self.path)
        with open(self.path) as file:
            return json.load(file)

    def steps_of(self, profile):
        return [event["args"]["step"] for event in profile["traceEvents"] if event.get("cat") == "step"]

    def test_steps_that_were_recorded(self):
        model, optimizer = self.begin()
        train_on_tokens(model, optimizer, 2)
        profiler.start()
        train_on_tokens(model, optimizer, 3)
        profiler.end()
        train_on_tokens(model, optimizer, 1)
        profile = self.saved()
        self.assertEqual(self.steps_of(profile), [3, 4, 5])
        names = {event["name"].split()[0] for event in profile["traceEvents"] if event.get("cat") == "op"}
        self.assertTrue({"0", "1", "3"} <= names, names)  # modules of model_func
        done = subprocess.run([_program.find(), "report", self.path, "-o", self.folder.name + "/page.html"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_started_before_there_is_an_engine(self):
        profiler.start()
        model, optimizer = self.begin()
        train_on_tokens(model, optimizer, 2)
        profiler.end()
        self.assertEqual(self.steps_of(self.saved()), [1, 2])

    def test_an_engine_that_begins_meanwhile_is_recorded_from_then_on(self):
        older, _ = self.begin()
        profiler.start()
        model, optimizer = self.begin()
        train_on_tokens(model, optimizer, 2)
        profiler.end()
        self.assertEqual(self.steps_of(self.saved()), [1, 2])
        older.close()

    def test_bits_are_the_same(self):
        def losses(is_recorded):
            torch.manual_seed(0)
            model, optimizer = self.begin()
            if is_recorded:
                profiler.start()
            found = train_on_tokens(model, optimizer, 4)
            if is_recorded:
                profiler.end()
            return found
        self.assertEqual(losses(False), losses(True))

    def test_wrong_order(self):
        model, optimizer = self.begin()
        for call, why in ((profiler.end, "it is not recording"), (lambda: profiler.save(self.path), "nothing was recorded")):
            with self.assertRaisesRegex(PatrickStarError, why):
                call()
        profiler.start()
        train_on_tokens(model, optimizer, 1)
        with self.assertRaisesRegex(PatrickStarError, "it is recording already"):
            profiler.start()
        with self.assertRaisesRegex(PatrickStarError, "still recording"):
            profiler.save(self.path)
        profiler.end()
        model.close()
        with self.assertRaisesRegex(PatrickStarError, "save while it lives"):
            profiler.save(self.path)
        self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
