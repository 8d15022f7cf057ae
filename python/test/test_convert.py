"""python -m patrickstar.convert: tables of pyarrow and of datasets as JSON Lines, on which pstar trains."""
import datetime
import decimal
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

from patrickstar import _program, convert

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    raise unittest.SkipTest("pyarrow (pip install pyarrow)")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
has_datasets = unittest.skipUnless(importlib.util.find_spec("datasets"), "datasets (pip install datasets)")
ROWS = [{"text": "Line %d: ä\n\u2028 end" % i, "label": i % 2} for i in range(3000)]


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def convert(self, *arguments):
        done = subprocess.run([sys.executable, "-m", "patrickstar.convert", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def lines(self, name="out.jsonl"):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]

    def converted(self, *inputs, out="out.jsonl"):
        status, said, errors = self.convert(*inputs, out)
        self.assertEqual(status, 0, errors)
        return said

    def refused(self, *arguments):
        status, _, errors = self.convert(*arguments)
        self.assertEqual(status, 2, errors)
        self.assertEqual([name for name in os.listdir(self.folder) if ".tmp-" in name], [])
        return errors

    def parquet(self, name, rows=None, **options):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        table = pyarrow.Table.from_pylist(ROWS if rows is None else rows, **options)
        pyarrow.parquet.write_table(table, self.path(name))
        return name

    def arrow(self, name, kind):
        table = pyarrow.Table.from_pylist(ROWS)
        with kind(self.path(name), table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
        return name

    def test_formats(self):
        for name in (self.parquet("a.parquet"), self.arrow("stream.arrow", pyarrow.ipc.new_stream),
                     self.arrow("file.arrow", pyarrow.ipc.new_file)):
            said = self.converted(name, out=name + ".jsonl")
            self.assertIn("%s.jsonl: 3000 lines of text, label, from 1 file" % name, said)
            self.assertEqual(self.lines(name + ".jsonl"), ROWS)

    def test_several_inputs_and_columns(self):
        self.converted(self.parquet("a.parquet", ROWS[:2]), self.parquet("b.parquet", ROWS[2:5]), "--columns", "label")
        self.assertEqual(self.lines(), [{"label": row["label"]} for row in ROWS[:5]])

    def test_compressed_output(self):
        self.parquet("a.parquet")
        self.converted("a.parquet", out="out.jsonl.gz")
        with gzip.open(self.path("out.jsonl.gz"), "rt", encoding="utf-8") as file:
            self.assertEqual([json.loads(line) for line in file.read().split("\n")[:-1]], ROWS)
        self.converted("a.parquet", out="out.jsonl.zst")
        with open(self.path("out.jsonl.zst"), "rb") as file:
            self.assertEqual(file.read(4), b"\x28\xb5\x2f\xfd")

    def test_folder_of_the_hub(self):
        for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
            self.parquet("set/data/%s.parquet" % name, [{"text": name}])
        self.assertIn("it has several splits; choose one by --split: test, train", self.refused("set", "out.jsonl"))
        self.assertIn("no split is called dev", self.refused("set", "out.jsonl", "--split", "dev"))
        self.converted("set", "--split", "train")
        self.assertEqual([row["text"][:11] for row in self.lines()], ["train-00000", "train-00001"])

    def test_splits_that_are_folders(self):
        for split in ("train", "test"):
            self.parquet("set/default/%s/0000.parquet" % split, [{"text": split}])
        self.assertIn("choose one by --split: test, train", self.refused("set", "out.jsonl"))
        self.converted("set", "--split", "train")
        self.assertEqual(self.lines(), [{"text": "train"}])

    def test_configurations_are_not_mixed(self):
        for name in ("cola", "sst2"):
            self.parquet("glue/%s/train-00000-of-00001.parquet" % name, [{"text": name}])
        said = self.refused("glue", "out.jsonl", "--split", "train")
        self.assertIn("several configurations", said)
        self.assertIn(os.path.join("glue", "sst2"), said)
        self.converted(os.path.join("glue", "sst2"), "--split", "train")
        self.assertEqual(self.lines(), [{"text": "sst2"}])

    def test_types(self):
        moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
        rows = [{"when": moment, "day": moment.date(), "price": decimal.Decimal("1.25"), "none": None,
                 "messages": [{"role": "user", "content": "x"}], "numbers": [1, 2]}]
        self.converted(self.parquet("a.parquet", rows))
        self.assertEqual(self.lines(), [{"when": "2026-01-02T03:04:05", "day": "2026-01-02", "price": 1.25,
                                         "none": None, "messages": [{"role": "user", "content": "x"}], "numbers": [1, 2]}])

    def test_refused(self):
        self.parquet("a.parquet", [{"text": "x", "image": b"\x00"}])
        self.assertIn("the column image has bytes, and no text: leave it out by --columns text",
                      self.refused("a.parquet", "out.jsonl"))
        self.assertIn("no column is called other; it has text, image",
                      self.refused("a.parquet", "out.jsonl", "--columns", "other"))
        self.converted("a.parquet", "--columns", "text")
        self.assertIn("out.jsonl exists", self.refused("a.parquet", "out.jsonl", "--columns", "text"))
        self.converted("a.parquet", "--columns", "text", "--force")
        self.assertIn("there is no row", self.refused(
            self.parquet("empty.parquet", [], schema=pyarrow.schema([("text", pyarrow.string())])), "none.jsonl"))
        with open(self.path("text.txt"), "w") as file:
            file.write("some text")
        self.assertIn("neither a Parquet file nor an Arrow file", self.refused("text.txt", "none.jsonl"))
        with open(self.path("a.parquet"), "rb") as file, open(self.path("cut.parquet"), "wb") as cut:
            cut.write(file.read()[:-20])
        self.assertIn("convert: ", self.refused("cut.parquet", "none.jsonl"))
        os.mkdir(self.path("nothing"))
        self.assertIn("no Parquet file is in this folder", self.refused("nothing", "none.jsonl"))
        self.assertIn("absent.parquet", self.refused("absent.parquet", "none.jsonl"))
        self.assertFalse(os.path.exists(self.path("none.jsonl")))

    def test_without_pyarrow(self):
        done = subprocess.run([sys.executable, "-c", "import sys; sys.modules['pyarrow'] = None\n"
                               "from patrickstar import convert; convert.main(['a', 'b'])"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        self.assertIn("pip install pyarrow", done.stdout)

    @has_datasets
    def test_datasets(self):
        import datasets
        features = datasets.Features({"text": datasets.Value("string"),
                                      "label": datasets.ClassLabel(names=["no", "yes"])})
        one = datasets.Dataset.from_list(ROWS, features=features)
        one.save_to_disk(self.path("one"), num_shards=3)
        said = self.converted("one")
        self.assertIn("from 3 files", said)
        self.assertIn('label has numbers of classes; data.labels=["no", "yes"] names them', said)
        self.assertEqual(self.lines(), ROWS)
        one.shuffle(seed=1).select(range(10)).save_to_disk(self.path("chosen"))
        self.converted("chosen", out="chosen.jsonl")
        self.assertEqual(self.lines("chosen.jsonl"), list(one.shuffle(seed=1).select(range(10))))
        datasets.DatasetDict({"train": one, "test": one.select(range(2))}).save_to_disk(self.path("both"))
        self.assertIn("choose one by --split: train, test", self.refused("both", "none.jsonl"))
        self.converted("both", "--split", "test", out="test.jsonl")
        self.assertEqual(self.lines("test.jsonl"), ROWS[:2])
        one.to_parquet(self.path("p.parquet"))
        self.converted("p.parquet", out="p.jsonl")
        self.assertEqual(self.lines("p.jsonl"), ROWS)

    def test_what_pstar_says_is_what_helps(self):
        """The command in the message makes a file that is trained on, compressed or not, with the same weights."""
        self.parquet("train.parquet")
        config = {"train_micro_batch_size_per_gpu": 1, "data": {"tokenizer": ROOT + "/data/gpt2"},
                  "model": {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16},
                  "train": {"steps": 2, "save": False}}
        with open(self.path("config.json"), "w") as file:
            json.dump(config, file)

        def train(data):
            done = subprocess.run([_program.find(), "train", "config.json", "data.train=" + data,
                                   "train.output_dir=run-" + data], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, cwd=self.folder)
            if done.returncode:
                return done.stderr
            with open(self.path("run-" + data, "summary.json")) as file:
                return json.load(file)["weights_xxh3"]

        said = train("train.parquet")
        self.assertIn("train.parquet is a Parquet file, which pstar does not read: "
                      "`python -m patrickstar.convert train.parquet train.jsonl` makes JSON Lines of it", said)
        command = said.split("`")[1].split()
        self.assertEqual(command[:3], ["python", "-m", "patrickstar.convert"])
        self.converted(command[3], out=command[4])
        weights = train("train.jsonl")
        self.assertEqual(len(weights), 16, weights)
        for name in ("train.jsonl.gz", "train.jsonl.zst"):
            self.converted("train.parquet", out=name)
            self.assertEqual(train(name), weights)

    def test_batches_are_bounded(self):
        self.assertTrue(all(batch.num_rows <= convert.BATCH_ROWS
                            for name in (self.parquet("a.parquet"), self.arrow("s.arrow", pyarrow.ipc.new_stream))
                            for batch in list(convert._batches(self.path(name)))[1:]))


if __name__ == "__main__":
    unittest.main()
