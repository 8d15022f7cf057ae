"""transformers' Trainer: patrickstar.Trainer trains as the plain one; and a plain one over an engine's module does."""
import json
import logging
import os
import shutil
import tempfile
import unittest
import unittest.mock

import torch

from hugging_face import HAS_CPU_RANKS, MEMORY, LogCase, is_installed, quietly, rows
from support import BF16, F32, engine, start_ranks, without_dropout

if not is_installed("transformers", "accelerate"):
    raise unittest.SkipTest("transformers and accelerate are not installed")

from test_transformers import gpt2, transformers  # noqa: E402

try:
    from transformers import Trainer as Plain  # noqa: E402
except ImportError as error:
    raise unittest.SkipTest("this transformers has no Trainer for this PyTorch (%s)" % error) from None

import patrickstar  # noqa: E402
from patrickstar import PatrickStarError, Refused  # noqa: E402
from patrickstar.integrations import PatrickStarTrainerMixin  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LR, DECAY, STEPS = 1e-3, .1, 6
OPTIMIZER = {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}}
CONFIG = {"memory": MEMORY, "default_chunk_size": 1 << 13}


class Seen(transformers.TrainerCallback):
    """The events that a callback gets, and whether it gets the objects with them."""

    def __init__(self):
        self.events = []

    def on_step_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **kwargs):
        self.events.append(("step", model is not None, optimizer is not None, lr_scheduler is not None))

    def on_save(self, args, state, control, **kwargs):
        self.events.append(("save", state.global_step))

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.events.append(("evaluate", sorted(key for key in metrics if key == "eval_loss")))


class Of(LogCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def arguments(self, name, **changed):
        given = dict(use_cpu=True, report_to=[], max_steps=STEPS, per_device_train_batch_size=2, learning_rate=LR,
                     gradient_accumulation_steps=2, max_grad_norm=.5, logging_steps=1, disable_tqdm=True,
                     save_steps=3, weight_decay=DECAY)
        given.update(changed)
        return transformers.TrainingArguments(output_dir=os.path.join(self.folder, name), **given)

    def trainer(self, kind, name, given=None, **changed):
        """given: of the constructor."""
        options = dict(model_init=gpt2, train_dataset=rows(), eval_dataset=rows(8))
        if issubclass(kind, PatrickStarTrainerMixin):
            options["patrickstar_config"] = CONFIG
        options.update(given or {})
        return kind(args=self.arguments(name, **changed), **options)

    def train(self, kind, name, resume=None, given=None, **changed):
        """The trainer, and what it logged."""
        trainer = quietly(self.trainer, kind, name, given, **changed)
        quietly(trainer.train, resume_from_checkpoint=resume)
        return trainer, trainer.state.log_history

    def at(self, *names):
        return os.path.join(self.folder, *names)


class AsPlain(Of):
    def both(self, within=1e-5, given=None, **changed):
        """Ours, after comparing with a plain one."""
        ours, logged = self.train(patrickstar.Trainer, "ours", given=given, **changed)
        _, expected = self.train(Plain, "plain", given=given, **changed)
        self.same_logs(logged, expected, within)
        self.same_weights(self.at("ours", "checkpoint-%d" % STEPS), self.at("plain", "checkpoint-%d" % STEPS))
        return ours, logged

    def test_losses_norms_and_evaluations(self):
        """With dropout, shuffling, accumulation of batches with different numbers of targets, clipping, warm-up."""
        seen = Seen()
        ours, logged = self.both(given={"callbacks": [seen]}, warmup_steps=2, lr_scheduler_type="cosine",
                                 eval_strategy="steps", eval_steps=3)
        self.assertGreater(max(float(entry.get("grad_norm", 0)) for entry in logged), .5)  # clipped
        self.assertEqual(len([entry for entry in logged if "eval_loss" in entry]), 2)
        self.assertEqual(ours.engine.client.get_info().n_steps, STEPS)
        self.assertEqual(len(ours.optimizer.param_groups), 2)
        self.assertEqual([group["weight_decay"] for group in ours.optimizer.param_groups], [DECAY, 0.])
        n = len(seen.events) // 2  # each Trainer's
        self.assertEqual(seen.events[:n], seen.events[n:])
        self.assertIn(("save", 3), seen.events)
        self.assertIn(("evaluate", ["eval_loss"]), seen.events)
        self.assertIn(("step", True, True, True), seen.events)

    def test_gradient_checkpointing_without_clipping(self):
        self.both(gradient_checkpointing=True, max_grad_norm=0.)

    def test_sgd(self):
        self.both(optim="sgd", learning_rate=.1)

    def test_an_incomplete_group_at_the_end_of_an_epoch(self):
        self.both(given={"train_dataset": rows(14)}, max_steps=STEPS)

    def test_a_model_and_an_optimizer_of_the_program(self):
        def given():
            torch.manual_seed(0)
            model = without_dropout(gpt2)()
            decays = [param for param in model.parameters() if param.dim() > 1]
            others = [param for param in model.parameters() if param.dim() < 2]
            optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": .2}, {"params": others, "lr": 1e-4}],
                                          lr=LR, betas=(.8, .9))
            scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
            return {"model": model, "model_init": None, "optimizers": (optimizer, scheduler)}

        ours, logged = self.train(patrickstar.Trainer, "ours", given=given())
        _, expected = self.train(Plain, "plain", given=given())
        self.same_logs(logged, expected)
        groups = ours.optimizer.param_groups
        self.assertEqual([(group["weight_decay"], tuple(group["betas"])) for group in groups],
                         [(.2, (.8, .9)), (.01, (.8, .9))])

    def test_best_model(self):
        """The weights of another step than the last, from the file of that step."""
        changed = dict(eval_strategy="steps", eval_steps=2, save_steps=2, load_best_model_at_end=True,
                       metric_for_best_model="loss", greater_is_better=True, save_total_limit=1, learning_rate=1e-2)
        ours, _ = self.train(patrickstar.Trainer, "ours", **changed)
        plain, _ = self.train(Plain, "plain", **changed)
        best = os.path.basename(plain.state.best_model_checkpoint)
        self.assertEqual(os.path.basename(ours.state.best_model_checkpoint), best)
        self.assertNotEqual(best, "checkpoint-%d" % STEPS)
        quietly(ours.save_model, self.at("ours", "best"))
        self.same_weights(self.at("ours", "best"), self.at("ours", best), within=0.)
        self.assertEqual(sorted(name for name in os.listdir(self.at("ours")) if name.startswith("checkpoint")),
                         sorted(name for name in os.listdir(self.at("plain")) if name.startswith("checkpoint")))

    @unittest.skipUnless(is_installed("tensorboard"), "tensorboard is not installed")
    def test_report_to_tensorboard(self):
        folder = self.at("events")
        os.environ["TENSORBOARD_LOGGING_DIR"] = folder
        self.addCleanup(os.environ.pop, "TENSORBOARD_LOGGING_DIR")
        _, logged = self.train(patrickstar.Trainer, "ours", report_to=["tensorboard"])
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        paths = [os.path.join(at, name) for at, _, names in os.walk(self.folder) for name in names if "tfevents" in name]
        self.assertEqual(len(paths), 1)
        events = EventAccumulator(paths[0])
        events.Reload()
        found = [event.value for event in events.Scalars("train/loss")]
        self.assertEqual(len(found), STEPS)
        for value, entry in zip(found, logged):
            self.assertAlmostEqual(value, entry["loss"], places=5)


class Ours(Of):
    def test_resumes_with_the_same_bits(self):
        _, whole = self.train(patrickstar.Trainer, "ours")
        shutil.rmtree(self.at("ours", "checkpoint-%d" % STEPS))
        resumed, again = self.train(patrickstar.Trainer, "ours", resume=True)
        self.same_bits(again[:STEPS], whole[:STEPS])
        self.assertEqual(resumed.optimizer.last_step.step, STEPS)

    def test_resumes_a_plain_run(self):
        _, expected = self.train(Plain, "plain")
        _, logged = self.train(patrickstar.Trainer, "ours", resume=self.at("plain", "checkpoint-3"))
        self.same_logs(logged[:STEPS], expected[:STEPS])

    def test_leaves_out_a_checkpoint_that_is_not_complete(self):
        _, whole = self.train(patrickstar.Trainer, "ours", save_steps=2)
        for damage in (lambda path: os.remove(os.path.join(path, "patrickstar", "state.json")),
                       lambda path: open(os.path.join(path, "trainer_state.json"), "w").close()):
            damage(self.at("ours", "checkpoint-%d" % STEPS))
            with self.assertLogs("patrickstar", logging.WARNING) as caught:
                _, again = self.train(patrickstar.Trainer, "ours", resume=True, save_steps=2)
            self.assertIn("checkpoint-%d is not complete" % STEPS, caught.output[0])
            self.assertIn("checkpoint-%d" % (STEPS - 2), caught.output[0])
            self.same_bits(again[:STEPS], whole[:STEPS])
        for number in (2, 4, 6):
            os.remove(self.at("ours", "checkpoint-%d" % number, "patrickstar", "state.json"))
        self.refused(lambda: self.train(patrickstar.Trainer, "ours", resume=True), "is not a complete checkpoint")

    def test_a_save_that_is_interrupted(self):
        """Over a checkpoint of an earlier run, which is none any more."""
        _, whole = self.train(patrickstar.Trainer, "ours", save_steps=2)
        with unittest.mock.patch.object(patrickstar.runtime.Engine, "save_checkpoint", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, self.train, patrickstar.Trainer, "ours",
                              resume=self.at("ours", "checkpoint-4"), save_steps=2)
        self.assertEqual(self.damaged(), [6])
        with self.assertLogs("patrickstar", logging.WARNING) as caught:
            _, again = self.train(patrickstar.Trainer, "ours", resume=True, save_steps=2)
        self.assertIn("checkpoint-6 is not complete", caught.output[0])
        self.same_bits(again[:STEPS], whole[:STEPS])
        self.assertEqual(self.damaged(), [])

    def damaged(self):
        return [number for number in (2, 4, 6)
                if not os.path.exists(self.at("ours", "checkpoint-%d" % number, "trainer_state.json"))]

    def test_save_only_model_over_a_checkpoint(self):
        """The weights of the run that saved last."""
        self.train(patrickstar.Trainer, "ours")
        trainer, _ = self.train(patrickstar.Trainer, "ours", save_only_model=True, learning_rate=1e-2)
        self.assertNotIn("patrickstar", os.listdir(self.at("ours", "checkpoint-%d" % STEPS)))

    def test_a_scheduler_of_schedulers(self):
        """Resumed from scheduler.pt."""
        make = torch.optim.lr_scheduler

        def sequential(optimizer):
            return make.SequentialLR(optimizer, [
                make.LinearLR(optimizer, .1, 1., 2), make.OneCycleLR(optimizer, LR, total_steps=9)], [2])

        def given(schedule=sequential):
            torch.manual_seed(0)
            model = without_dropout(gpt2)()
            optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
            return {"model": model, "model_init": None, "optimizers": (optimizer, schedule(optimizer))}

        _, logged = self.train(patrickstar.Trainer, "ours", given=given())
        _, expected = self.train(Plain, "plain", given=given())
        self.same_logs(logged, expected)
        self.assertGreater(len({entry["learning_rate"] for entry in expected if "loss" in entry}), 3)
        _, resumed = self.train(patrickstar.Trainer, "ours", resume=self.at("ours", "checkpoint-3"), given=given())
        self.same_bits(resumed[:STEPS], logged[:STEPS])
        self.train(patrickstar.Trainer, "steps", given=given(lambda optimizer: make.MultiStepLR(optimizer, [2, 4])))
        self.train(patrickstar.Trainer, "steps", resume=True, given=given(
            lambda optimizer: make.MultiStepLR(optimizer, [2, 4])))

    def test_a_refused_optimizer_leaves_the_model(self):
        model = gpt2()
        given = {"model": model, "model_init": None, "optimizers": (torch.optim.AdamW(model.parameters(), amsgrad=True),
                                                                    None)}
        self.refused(lambda: self.trainer(patrickstar.Trainer, "ours", given), "amsgrad", Refused)
        self.assertFalse(any(hasattr(param, "_ps") for param in model.parameters()))
        given["optimizers"] = torch.optim.AdamW(model.parameters(), lr=LR), None
        self.train(patrickstar.Trainer, "ours", given=given)

    def test_train_begins_anew_each_time(self):
        """With model_init, as plain ones do; the first time with the model of the constructor."""
        trainer, first = self.train(patrickstar.Trainer, "ours", save_strategy="no")
        before = trainer.engine
        quietly(trainer.train)
        self.assertIsNot(trainer.engine, before)
        self.same_bits(trainer.state.log_history[:STEPS], first[:STEPS])
        fresh = quietly(self.trainer, patrickstar.Trainer, "ours", save_strategy="no")
        before = fresh.engine
        quietly(fresh.train)
        self.assertIs(fresh.engine, before)

    def test_in_bf16(self):
        trainer, logged = self.train(patrickstar.Trainer, "ours", bf16=True)
        self.assertEqual(trainer.engine.client.dtype, BF16)
        self.assertEqual(trainer.optimizer.last_step.step, STEPS)
        _, expected = self.train(patrickstar.Trainer, "fp32")
        self.same_logs(logged[:STEPS], expected[:STEPS], .05)

    def test_updates_in_backward(self):
        """The last of the micro-batches is known, so updates run within its backward pass, with the same bits."""
        early = dict(CONFIG, memory=dict(MEMORY, update_in_backward="always"), train={"max_nonfinite_steps": 1})
        trainer, logged = self.train(patrickstar.Trainer, "ours", max_grad_norm=0.,
                                     given={"patrickstar_config": early})
        self.assertGreater(trainer.optimizer.last_step.n_early, 0)
        _, expected = self.train(patrickstar.Trainer, "later", max_grad_norm=0.)
        for mine, other in zip(logged[:STEPS], expected):
            self.assertEqual(mine["loss"], other["loss"])

    def test_updates_in_backward_that_may_be_taken_back(self):
        """With clipping by max_grad_norm: the norm is known after them."""
        memory = dict(MEMORY, update_in_backward="speculate")
        trainer, logged = self.train(patrickstar.Trainer, "ours", max_grad_norm=.5,
                                     given={"patrickstar_config": dict(CONFIG, memory=memory)})
        info = trainer.optimizer.last_step
        self.assertGreater(info.n_speculated, 0)
        self.assertEqual(info.n_taken_back, info.n_speculated if info.grad_norm > .5 else 0)
        _, expected = self.train(patrickstar.Trainer, "later", max_grad_norm=.5)
        for mine, other in zip(logged[:STEPS], expected):
            self.assertEqual(mine["loss"], other["loss"])

    def test_an_engine(self):
        model, optimizer = engine(without_dropout(gpt2), F32, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        given = {"model": model, "model_init": None, "patrickstar_config": None}
        trainer, _ = self.train(patrickstar.Trainer, "ours", given=given)
        self.assertIs(trainer.engine, model)
        self.assertEqual(optimizer.last_step.step, STEPS)

    def test_an_engine_and_arguments_that_differ(self):
        model, _ = engine(without_dropout(gpt2), F32, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        given = {"model": model, "model_init": None, "patrickstar_config": None}
        for changed, message in (
                ({"learning_rate": 2e-3}, "differ: learning_rate is 0.002, and the engine's is 0.001;"),
                ({"adam_beta2": .95, "weight_decay": .2},
                 "differ: weight_decay is 0.2, and the engine's is 0.1; adam_beta2 is 0.95, and the engine's is 0.999"),
                ({"optim": "sgd"}, "differ: optim is 'sgd', and the engine's is AdamW")):
            with self.assertRaisesRegex(PatrickStarError, message):
                self.trainer(patrickstar.Trainer, "ours", given, **changed)
        for name in ("learning_rate", "weight_decay"):  # defaults, which the program has not asked for
            default = getattr(transformers.TrainingArguments(self.folder, use_cpu=True), name)
            self.assertIs(self.trainer(patrickstar.Trainer, "ours", given, **{name: default}).engine, model)
        scheduled, _ = engine(without_dropout(gpt2), F32, optimizer=OPTIMIZER, default_chunk_size=1 << 13,
                              scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 3}})
        with self.assertRaisesRegex(PatrickStarError, "lr_scheduler_type is 'linear', and the engine's configuration"):
            self.trainer(patrickstar.Trainer, "ours", dict(given, model=scheduled))

    def test_a_module_of_init(self):
        build = without_dropout(gpt2)
        _, expected = self.train(patrickstar.Trainer, "expected", given={"model_init": build}, weight_decay=0)
        with patrickstar.init(dict(CONFIG, optimizer={"type": "AdamW", "params": {"lr": LR}})):
            torch.manual_seed(42)  # the seed of TrainingArguments
            model = build()
        given = {"model": model, "model_init": None, "patrickstar_config": None}
        trainer, logged = self.train(patrickstar.Trainer, "ours", given=given, weight_decay=0)
        self.assertIs(trainer.engine.module, model)
        self.same_logs(logged, expected)

    def test_a_module_of_init_is_closed_when_construction_fails(self):
        with patrickstar.init(dict(CONFIG, optimizer=OPTIMIZER)):
            model = gpt2()
        given = {"model": model, "model_init": None}
        with self.assertRaisesRegex(PatrickStarError, "patrickstar_config beside a model that has one"):
            self.trainer(patrickstar.Trainer, "ours", given)
        message = "learning_rate is 0.002, and the engine's is 0.001"
        with self.assertLogs("patrickstar", "WARNING"), self.assertRaisesRegex(PatrickStarError, message):
            self.trainer(patrickstar.Trainer, "ours", dict(given, patrickstar_config=None), learning_rate=2e-3)

    def test_a_trainer_of_the_program(self):
        class Doubling(Plain):
            def compute_loss(self, *args, **kwargs):
                return 2 * super().compute_loss(*args, **kwargs)

        class Mine(PatrickStarTrainerMixin, Doubling):
            pass

        _, logged = self.train(Mine, "ours")
        _, expected = self.train(Doubling, "plain")
        self.same_logs(logged, expected)

    def test_the_configuration_and_the_arguments_agree(self):
        agreeing = dict(CONFIG, gradient_accumulation_steps=2, train_micro_batch_size_per_gpu="auto",
                        train_batch_size=4, gradient_clipping=.5, bf16={"enabled": "auto"}, fp16={"enabled": "auto"},
                        optimizer={"type": "AdamW", "params": {"lr": "auto", "weight_decay": DECAY}})
        self.train(patrickstar.Trainer, "ours", given={"patrickstar_config": agreeing})
        for changed, message in (
                ({"gradient_accumulation_steps": 3}, "gradient_accumulation_steps is 3"),
                ({"gradient_clipping": 1}, "TrainingArguments.max_grad_norm is 0.5"),
                ({"train_batch_size": 8}, "train_batch_size is 8"),
                ({"optimizer": {"params": {"lr": .5}}}, "optimizer.params.lr is 0.5"),
                ({"optimizer": {"type": "SGD"}}, "optimizer.type is 'SGD'"),
                ({"scheduler": {"type": "WarmupLR"}}, "lr_scheduler_type"),
                ({"optimizer": {"param_groups": [{"params": ["*bias"]}]}}, "groups are the Trainer's"),
                ({"memory": dict(MEMORY, update_in_backward="always")}, "give max_grad_norm=0")):
            self.refused(lambda: self.trainer(patrickstar.Trainer, "ours",
                                              {"patrickstar_config": dict(CONFIG, **changed)}), message)

    def test_what_is_refused(self):
        for changed, message in (({"optim": "adafactor"}, "optim='adafactor'"), ({"auto_find_batch_size": True}, "BudgetError"),
                                 ({"bf16_full_eval": True}, "bf16_full_eval")):
            self.refused(lambda: self.trainer(patrickstar.Trainer, "ours", **changed), message, Refused)
        for given in ("8GB", "none.json"):
            self.refused(lambda: self.trainer(patrickstar.Trainer, "ours", {"patrickstar_config": given}),
                         "expected a dictionary, or the path of a JSON file")
        two = [{"params": list(gpt2().parameters())}]
        self.refused(lambda: self.trainer(patrickstar.Trainer, "ours", {
            "model": gpt2(), "model_init": None, "optimizers": (torch.optim.AdamW(two), None)}),
            "is not in the model", Refused)

    def test_arguments_are_left_out(self):
        at = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, at)
        trainer = quietly(patrickstar.Trainer, model_init=gpt2, patrickstar_config=CONFIG)
        self.assertEqual(trainer.args.output_dir, "tmp_trainer")

    @unittest.skipUnless(HAS_CPU_RANKS, "accelerate starts several processes on the processor with PyTorch 2")
    def test_two_ranks(self):
        """As DistributedDataParallel of the plain one: losses, norms, evaluation, files, resuming."""
        for status, text in start_ranks(os.path.join(HERE, "trainer_worker.py"), self.folder):
            self.assertEqual(status, 0, text)
        logs = []
        for name in ("ours", "plain", "again"):
            with open(self.at(name + ".json")) as file:
                logs.append(json.load(file))
        self.same_logs(logs[0], logs[1])
        self.same_bits(logs[2][:STEPS], logs[0][:STEPS])
        self.same_weights(self.at("ours", "checkpoint-%d" % STEPS), self.at("plain", "checkpoint-%d" % STEPS))


class OverAModuleOfAnEngine(Of):
    """A plain Trainer, given engine.module and the engine's optimizer."""

    def train_module(self, name, module, optimizer):
        scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
        given = {"model": module, "model_init": None, "optimizers": (optimizer, scheduler)}
        trainer, logged = self.train(Plain, name, given=given)
        return trainer, [entry for entry in logged if "loss" in entry]

    def test_losses_are_those_of_plain_trainer(self):
        model, optimizer = engine(without_dropout(gpt2), F32, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        plain = without_dropout(gpt2)()
        plain.load_state_dict(model.state_dict())
        _, logged = self.train_module("ours", model.module, optimizer)
        _, expected = self.train_module("plain", plain, torch.optim.AdamW(plain.parameters(), lr=LR,
                                                                         weight_decay=DECAY))
        self.same_logs(logged, expected, 2e-4)
        self.assertEqual(optimizer.last_step.step, STEPS)
        self.same_weights(self.at("ours", "checkpoint-6"), self.at("plain", "checkpoint-6"), within=1e-4)

    def test_in_bf16(self):
        model, optimizer = engine(without_dropout(gpt2), BF16, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        self.train_module("ours", model.module, optimizer)
        self.assertEqual(optimizer.last_step.step, STEPS)


if __name__ == "__main__":
    unittest.main()
