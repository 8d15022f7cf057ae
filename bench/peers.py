"""A training step of ours and of PyTorch's, in turns within one run: `make bench-peers`.

usage: python3 bench/peers.py BUILD_FOLDER [--rounds N] [--seconds S] [--case NAME ...] [--kind KIND ...] [--python PYTHON ...]

In each round all run once, one after the other, each in a process of its own: two steps that are not counted, then steps
for about S seconds (12), 3 at least. What a round gives is the median of its steps; the table has the median of the rounds and, as
their spread, the least and the largest. Ratios are of medians. PYTHON are interpreters whose PyTorch takes part (/usr/bin/python3,
Debian's, and build/torch/bin/python, `make torch-peer`; those without PyTorch are left out).

The peer is the fastest PyTorch that keeps fp32 parameters (as we do); pure bf16, which loses small updates, is a column of its own.
A combination that fails is named with its error, and does not end the run. Kept in bench/results/.
"""
import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time

CASES = {
    "gpt2-short": ("GPT-2 124M, B = 4, T = 64", "gpt2", 4, 64, []),
    "gpt2-long": ("GPT-2 124M, B = 1, T = 1024", "gpt2", 1, 1024, []),
    "llama": ("Llama-shaped 150M, B = 1, T = 512", "llama", 1, 512,
              ["model.preset=none", "model.type=llama", "model.hidden_size=768", "model.num_hidden_layers=16",
               "model.num_attention_heads=12", "model.num_key_value_heads=4", "model.intermediate_size=2048",
               "model.vocab_size=32000", "model.tie_word_embeddings=false", "model.hidden_act=silu"]),
}
MASTERS = ["autocast", "autocast+compile", "fp32", "fp32+compile"]
PURE = ["bf16", "bf16+compile"]
HERE = os.path.dirname(os.path.abspath(__file__))


def clean_environment():
    """Without what slows a peer, or us."""
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def output_of(command, environment, limit_s=1200):
    """(text, None), or (None, why it failed)"""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None, "more than %d s" % limit_s
    if done.returncode == 0:
        return done.stdout, None
    if done.returncode < 0:
        return None, signal.Signals(-done.returncode).name
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return None, lines[-1][:160] if lines else "status %d" % done.returncode


class Ours:
    label, column = "ours, bf16 with fp32 masters", "ours"

    def __init__(self, build, threads):
        self.program, self.threads = os.path.join(build, "bench", "bench_step"), threads

    def run(self, case, n_steps):
        _, _, B, T, options = case
        text, error = output_of([self.program, str(n_steps), "train_micro_batch_size_per_gpu=%d" % B, "data.sequence_length=%d" % T,
                                 "train.threads=%d" % self.threads] + options, clean_environment())
        if error:
            return None, error
        return float(re.search(r"^step +([0-9.]+)", text, re.M).group(1)), None


class Torch:
    def __init__(self, python, version, kind, environment, threads):
        self.python, self.kind, self.environment, self.threads = python, kind, environment, threads
        self.label = "PyTorch %s, %s" % (version, kind)
        self.column = "masters" if kind in MASTERS else "pure"

    def run(self, case, n_steps):
        _, model, B, T, _ = case
        text, error = output_of([self.python, os.path.join(HERE, "peer_torch.py"), model, str(B), str(T), str(self.threads),
                                 str(n_steps), self.kind], self.environment)
        if error:
            return None, error
        return statistics.median(json.loads(text.splitlines()[-1])["seconds"]), None


TRY = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); print(torch.__version__, float((x @ x).sum()))"


def torch_of(python):
    """(version, environment) of an interpreter's PyTorch, or None. Where its oneDNN dies in products of tiles, it is set to do
    without them."""
    environment = clean_environment()
    environment["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("build/torchinductor")
    for cap in (None, "AVX512_CORE_BF16"):
        if cap:
            environment["ONEDNN_MAX_CPU_ISA"] = cap
        text, error = output_of([python, "-c", TRY], environment, 120) if os.path.exists(python) else (None, "is not there")
        if text:
            return text.split()[0], environment
        if error != "SIGILL":
            break
    print("%s takes no part: %s" % (python, error), file=sys.stderr)
    return None


def contestants(build, pythons, threads, wanted):
    found = [Ours(build, threads)]
    for python in pythons:
        torch = torch_of(python)
        if not torch:
            continue
        version, environment = torch
        compiles = int(version.split(".")[0]) >= 2
        found += [Torch(python, version, kind, environment, threads) for kind in wanted if compiles or "+" not in kind]
    return found


def run_case(case, everybody, n_rounds, seconds):
    """{contestant: [median of each round]} and {contestant: error}"""
    medians, errors, n_steps = {c: [] for c in everybody}, {}, {}
    for round_number in range(n_rounds):
        for c in everybody:
            if c in errors:
                continue
            step_s, error = c.run(case, n_steps.get(c, 3))
            print("  round %d  %-40s %s" % (round_number + 1, c.label, error or "%.4f s" % step_s), file=sys.stderr)
            if error:
                errors[c] = error
                continue
            medians[c].append(step_s)
            n_steps[c] = max(3, min(200, round(seconds / step_s)))
    return medians, errors


def table(case, medians, errors):
    lines = ["## %s" % case[0], "", "| | median s a step | least .. largest round | ours is faster by |", "|---|---|---|---|"]
    mine = next(c for c in medians if c.column == "ours")
    if mine in errors:
        return "\n".join(lines + ["| %s | failed: %s | | |" % (mine.label, errors[mine])]), None
    ours = statistics.median(medians[mine])
    best = {}
    for c, got in medians.items():
        if c in errors:
            lines.append("| %s | failed: %s | | |" % (c.label, errors[c]))
            continue
        median = statistics.median(got)
        lines.append("| %s | %.4f | %.4f .. %.4f | %s |"
                     % (c.label, median, min(got), max(got), "" if c is mine else "%.2f x" % (median / ours)))
        if c.column not in best or median < best[c.column][0]:
            best[c.column] = (median, c)
    row = "| %s | %.3f s |" % (case[0], ours)
    for column in ("masters", "pure"):
        row += " %.2f x (%s) |" % (best[column][0] / ours, best[column][1].label) if column in best else " not measured |"
    return "\n".join(lines), row


def processor():
    with open("/proc/cpuinfo") as f:
        return re.search(r"^model name\s*: (.*)", f.read(), re.M).group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--kind", nargs="+", choices=MASTERS + PURE, default=MASTERS + PURE)
    parser.add_argument("--python", nargs="+", default=["/usr/bin/python3", "build/torch/bin/python"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    everybody = contestants(given.build, given.python, given.threads, given.kind)
    load = os.getloadavg()
    tables, rows = [], []
    for name in given.case:
        print(CASES[name][0], file=sys.stderr)
        text, row = table(CASES[name], *run_case(CASES[name], everybody, given.rounds, given.seconds))
        tables.append(text)
        rows += [row] if row else []
    commit = output_of(["git", "describe", "--always", "--dirty"], None)[0] or "unknown"
    report = "\n".join(
        ["# Ours beside PyTorch, %s" % time.strftime("%Y-%m-%d", time.gmtime()), "",
         "%s, %d threads, Linux %s, commit %s; load before the run %.2f %.2f %.2f." % ((processor(), given.threads, platform.release(), commit.strip()) + load),
         "`make bench-peers`: %d rounds, everybody in turn in each." % given.rounds, "",
         "| | ours | best PyTorch with fp32 masters | best pure bf16 |", "|---|---|---|---|"] + rows +
        [""] + ["\n\n".join(tables), ""])
    slug = re.sub("[^A-Za-z0-9]+", "-", processor()).strip("-")
    path = "bench/results/%s-%s-peers.md" % (time.strftime("%Y-%m-%d", time.gmtime()), slug)
    os.makedirs("bench/results", exist_ok=True)
    with open(path, "w") as f:
        f.write(report)
    print(report)
    print("kept in %s" % path, file=sys.stderr)


main()
