"""A training step of GPT-2 124M through the package `patrickstar` and in plain PyTorch: `make bench-pytorch`.

usage: python bench/pytorch_step.py [--turns N] [--steps N] [--batch B] [--length T] [--threads N] [--disk FOLDER]
                                    [--format bf16 fp32]

The interpreter needs torch 2, transformers and accelerate; PATRICKSTAR_LIBRARY names the library. The contestants, each a process
of its own that lives through the whole run, take turns: in each turn one of them makes a step that is not counted, so
that copies of the others have ended, and N steps that are. The model is transformers' GPT2LMHeadModel with random
weights, without dropout, on random tokens.

plain      fp32 parameters, torch.optim.AdamW(fused=True); in bf16 under torch.autocast(bfloat16)
package    initialize_engine, in bf16 with bf16.enabled: parameters, fp32 values and states in chunks, all of them in
           memory
trainer-plain, trainer
           a step of transformers' Trainer, plain, and of patrickstar.Trainer with all in memory: the data loader,
           forward, backward, clipping, update, schedule and log of one step
third      the same as package in a third of the memory that chunks would take, plus what PyTorch itself has in use; the rest on
           disk

A step with disk takes at least what plain PyTorch takes, and what the disk takes for the bytes that a step moves: the
larger one is given as its bound, with the disk's rate as `pstar info --measure` has it, half reading and half writing.

The table has medians of all counted steps; the time of processors that a step took, which other processes on the
machine change less; and what of each process was in memory at most (resident, as the system counts it): when all was
imported, while the model was built, and in steps. Kept in bench/results/.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"plain": "PyTorch, fused AdamW", "package": "patrickstar, all in memory",
         "trainer-plain": "transformers' Trainer, plain PyTorch", "trainer": "patrickstar.Trainer, all in memory",
         "third": "patrickstar, a third of the memory, rest on disk"}


# ---- a contestant's process -----------------------------------------------------------------------------------------

def peak_bytes():
    """The most that was resident since the last call."""
    with open("/proc/self/status") as file:
        most = int(re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.M)[1]) * 1024
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:  # then it is the most of all time
        pass
    return most


def contestant(task):
    """Answers each line on the standard input, a number of steps, by a line of JSON."""
    if task["kind"].startswith("trainer"):
        contestant_trainer(task)
        return
    kind, is_bf16 = task["kind"], task["format"] == "bf16"
    import torch
    import transformers
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    model_class, config_class = transformers.GPT2LMHeadModel, transformers.GPT2Config  # imported when named
    imported = peak_bytes()

    def build():
        return model_class(config_class(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    if kind == "plain":
        model = build()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    else:
        from patrickstar.runtime import initialize_engine
        config = {"bf16": {"enabled": is_bf16}, "train": {"threads": task["threads"]},
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
                  "memory": {"device": task["device_bytes"], "host": 0, "disk": "auto" if kind == "third" else 0,
                             "disk_path": task["disk"]}}
        model, optimizer = initialize_engine(model_func=build, local_rank=0, config=config)
    model.train()
    say({"imported": imported, "peak": peak_bytes(), "version": torch.__version__,
         "transformers": transformers.__version__})

    def step(tokens):
        if kind == "plain":
            with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
                loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            loss.backward()
        else:
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            model.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()
    generator = torch.Generator().manual_seed(1)
    for line in sys.stdin:
        seconds, busy, losses = [], [], []
        for _ in range(int(line)):
            tokens = torch.randint(0, 50257, (task["batch"], task["length"]), generator=generator)
            begin, begin_busy = time.perf_counter(), time.process_time()
            losses.append(step(tokens))
            seconds.append(time.perf_counter() - begin)
            busy.append(time.process_time() - begin_busy)
        answer = {"seconds": seconds, "busy": busy, "losses": losses, "peak": peak_bytes()}
        if kind != "plain":
            info = model.client.get_info()
            answer.update(model_data=info.model_data_bytes, framework=info.framework_peak_bytes,
                          device_peak=info.peak_bytes[0], moved=list(info.moved_bytes), watched=info.n_recorded_steps)
        say(answer)


def contestant_trainer(task):
    """The same of a Trainer: a callback waits for the lines."""
    is_bf16 = task["format"] == "bf16"
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    torch.set_num_threads(task["threads"])
    given = {}
    if task["kind"] == "trainer":
        from patrickstar import Trainer
        given["patrickstar_config"] = {"train": {"threads": task["threads"]}, "memory": {
            "device": task["device_bytes"], "host": 0, "disk": 0}}
    imported = peak_bytes()

    class Tokens(torch.utils.data.IterableDataset):
        def __iter__(self):
            generator = torch.Generator().manual_seed(1)
            while True:
                tokens = torch.randint(0, 50257, (task["length"],), generator=generator)
                yield {"input_ids": tokens, "labels": tokens}

    class Turns(transformers.TrainerCallback):
        left, seconds, busy, losses = 0, [], [], []

        def on_step_begin(self, args, state, control, **kwargs):
            if self.left == 0:
                self.left = int(sys.stdin.readline() or 0)
                self.seconds, self.busy, self.losses = [], [], []
            if self.left == 0:  # the run is over
                sys.exit()
            self.begin, self.begin_busy = time.perf_counter(), time.process_time()

        def on_step_end(self, args, state, control, **kwargs):
            control.should_log = True

        def on_log(self, args, state, control, logs=None, **kwargs):
            self.seconds.append(time.perf_counter() - self.begin)
            self.busy.append(time.process_time() - self.begin_busy)
            self.losses.append(logs["loss"])
            self.left -= 1
            if self.left == 0:
                say({"seconds": self.seconds, "busy": self.busy, "losses": self.losses, "peak": peak_bytes()})

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model_init=lambda: GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
            args=TrainingArguments(folder, use_cpu=True, bf16=is_bf16, report_to=[], disable_tqdm=True, max_steps=10**6,
                                   per_device_train_batch_size=task["batch"], learning_rate=1e-4, weight_decay=.1,
                                   optim="adamw_torch_fused", save_strategy="no", logging_strategy="no"),
            train_dataset=Tokens(), callbacks=[Turns()], **given)
        trainer.remove_callback(transformers.PrinterCallback)
        say({"imported": imported, "peak": peak_bytes(), "version": torch.__version__,
             "transformers": transformers.__version__})
        trainer.train()


def say(answer):
    print("answer " + json.dumps(answer), flush=True)


# ---- the run --------------------------------------------------------------------------------------------------------

class Contestant:
    def __init__(self, number_format, kind, given, device_bytes=8 << 30):
        task = {"format": number_format, "kind": kind, "batch": given.batch, "length": given.length,
                "threads": given.threads, "device_bytes": device_bytes, "disk": given.disk}
        command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--contestant", json.dumps(task)]
        environment = dict(os.environ, TRANSFORMERS_OFFLINE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
        package = os.path.join(HERE, "..", "python")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
        self.name = KINDS[kind] + (" and autocast" if "plain" in kind and number_format == "bf16" else "")
        self.kind, self.seconds, self.busy, self.losses, self.step_peak = kind, [], [], [], 0
        self.budget = device_bytes
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.built = self.hear()

    def hear(self):
        for line in self.process.stdout:
            if line.startswith("answer "):
                return json.loads(line[len("answer "):])
        sys.exit("%s: ended with status %s" % (self.name, self.process.wait()))

    def steps(self, n, are_counted=True):
        self.process.stdin.write("%d\n" % (n + 1))
        self.process.stdin.flush()
        self.last = self.hear()
        if are_counted:
            self.seconds += self.last["seconds"][1:]
            self.busy += self.last["busy"][1:]
        self.losses += self.last["losses"]
        self.step_peak = max(self.step_peak, self.last["peak"])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def disk_bytes_per_s(folder):
    """Of reading and writing at the same time, both together."""
    pstar = os.path.join(os.path.dirname(os.path.abspath(os.environ["PATRICKSTAR_LIBRARY"])), "pstar")
    with tempfile.TemporaryDirectory() as measured:
        path = os.path.join(measured, "hardware.json")
        subprocess.run([pstar, "info", "--measure", path, "--disk-path", folder], check=True, capture_output=True)
        with open(path) as file:
            disk = json.load(file)["disk"]
    return disk["read_both_ways_bytes_per_s"] + disk["write_both_ways_bytes_per_s"]


def table(number_format, contestants, disk_rate):
    plain, plain_busy = statistics.median(contestants[0].seconds), statistics.median(contestants[0].busy)
    third = contestants[-1].last
    lines = [
        "## %s" % number_format, "",
        "| | median s a step | least .. largest | of plain | processor s a step | of plain "
        "| resident at most: imported | built | in steps |",
        "|---|---|---|---|---|---|---|---|---|"]
    for c in contestants:
        median, busy = statistics.median(c.seconds), statistics.median(c.busy)
        lines.append("| %s | %.3f | %.3f .. %.3f | %.2f | %.3f | %.2f | %.0f MB | %.0f MB | %.0f MB |" % (
            c.name, median, min(c.seconds), max(c.seconds), median / plain, busy, busy / plain_busy,
            c.built["imported"] / 1e6, c.built["peak"] / 1e6, c.step_peak / 1e6))
    lines += [
        "", "Model data: %.0f MB. In a third of it, beside PyTorch's own %.0f MB, the device's budget was %.0f MB, of "
        "which %.0f MB were used at most; %.0f MB were read from disk and %.0f MB written, in all %d steps." % (
            third["model_data"] / 1e6, third["framework"] / 1e6, contestants[-1].budget / 1e6,
            third["device_peak"] / 1e6, third["moved"][2] / 1e6, third["moved"][3] / 1e6, len(contestants[-1].losses)),
        bound_text(contestants, disk_rate), trainer_text(contestants),
        "Losses, first and last: %s." % "; ".join("%s %.4f, %.4f" % (c.kind, c.losses[0], c.losses[-1])
                                                  for c in contestants), ""]
    return lines


def trainer_text(contestants):
    plain, ours = (next(c for c in contestants if c.kind == kind) for kind in ("trainer-plain", "trainer"))
    return "A step of patrickstar.Trainer takes %.2f of the plain Trainer's, and %.2f of its processor time." % (
        statistics.median(ours.seconds) / statistics.median(plain.seconds),
        statistics.median(ours.busy) / statistics.median(plain.busy))


def bound_text(contestants, disk_rate):
    plain, third = contestants[0], contestants[-1]
    bytes_a_step = (third.last["moved"][2] + third.last["moved"][3]) / len(third.losses)
    plain_seconds, disk_seconds = statistics.median(plain.seconds), bytes_a_step / disk_rate
    bound = max(plain_seconds, disk_seconds)
    return ("Disk: %.0f MB/s half reading, half writing; the %.0f MB of a step take %.2f s there. The bound is %.2f s, "
            "by the %s; the third takes %.2f of it." % (
                disk_rate / 1e6, bytes_a_step / 1e6, disk_seconds, bound,
                "disk" if disk_seconds > plain_seconds else "time of plain PyTorch",
                statistics.median(third.seconds) / bound))


def run(number_format, given, disk_rate):
    contestants = [Contestant(number_format, kind, given) for kind in KINDS if kind != "third"]
    for c in contestants:
        c.steps(2, are_counted=False)  # the package watches its first step
    # What chunks may take is a third of what they would; PyTorch's own was seen in memory.
    seen = contestants[1].last
    budget = seen["model_data"] // 3 + seen["framework"]
    contestants.append(Contestant(number_format, "third", given, budget))
    contestants[-1].steps(2, are_counted=False)
    for turn in range(given.turns):
        for c in contestants:
            c.steps(given.steps)
            print("%s turn %d  %-50s %s" % (number_format, turn + 1, c.name,
                                           " ".join("%.3f" % s for s in c.last["seconds"][1:])), file=sys.stderr)
    lines = table(number_format, contestants, disk_rate)
    for c in contestants:
        c.end()
    return lines, contestants[0].built


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="folder for chunks on disk")
    parser.add_argument("--format", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    given = parser.parse_args()
    load = os.getloadavg()
    lines, disk_rate = [], disk_bytes_per_s(given.disk)
    for number_format in given.format:
        more, versions = run(number_format, given, disk_rate)
        lines += more
    with open("/proc/cpuinfo") as file:
        processor = re.search(r"^model name\s*: (.*)", file.read(), re.M)[1]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True,
                            text=True).stdout.strip()
    text = "\n".join([
        "# The package for PyTorch beside plain PyTorch, %s" % time.strftime("%Y-%m-%d", time.gmtime()), "",
        "%s, %d threads, Linux %s, commit %s; load before the run %.2f %.2f %.2f." % (
            (processor, given.threads, platform.release(), commit or "unknown") + load), "",
        "`make bench-pytorch`: GPT-2 124M of transformers %s, B = %d, T = %d, PyTorch %s; %d turns of %d counted steps."
        % (versions["transformers"], given.batch, given.length, versions["version"], given.turns, given.steps), ""]
        + lines)
    path = os.path.join(HERE, "results", time.strftime("%Y-%m-%d", time.gmtime()) + "-pytorch.md")
    with open(path, "w") as file:
        file.write(text)
    print(text)
    print("kept in %s" % path, file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--contestant"]:
        contestant(json.loads(sys.argv[2]))
    else:
        main()
