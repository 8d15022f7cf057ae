"""How long ranks under PyTorch wait for messages of a set latency:

usage: python bench/pytorch_ranks.py [--delay MS ...] [--steps N] [--layers N] [--width N] [--rows N] [--ranks N]

PATRICKSTAR_LIBRARY names the library, PYTHONPATH its package. The ranks are processes of this machine with one thread
each, which compute layers of Linear and GELU with AdamW in fp32, one chunk a layer. Each collective of the gloo group
that carries the library's messages ends so many milliseconds later than it would. For each delay, with groups gathered
when they are asked for (memory.prefetch = 0) and prefetched: the median of the steps' time, and the
share of it in which rank 0's program stood still for messages (waits of the profile). Kept in bench/results/.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HEADER_BYTES = 64  # at most, of a round's first call, which says how much follows (chunk/comm/rounds.h)
WARMUP = 5  # steps: two are recorded, with what is prefetched one more


def rank_main(task):
    import torch
    import torch.distributed as dist
    from patrickstar import _ranks
    from patrickstar.profiler import profiler
    from patrickstar.runtime import initialize_engine

    torch.set_num_threads(1)
    carry = _ranks._GlooGroup._on_all_to_all

    def carry_late(self, user, send, send_bytes, receive, receive_bytes, error):
        done = carry(self, user, send, send_bytes, receive, receive_bytes, error)
        if sum(receive_bytes[:self.size]) > HEADER_BYTES * self.size:
            time.sleep(task["delay"])
        return done

    _ranks._GlooGroup._on_all_to_all = carry_late
    dist.init_process_group("gloo")
    width = task["width"]

    def build():
        layers = []
        for _ in range(task["layers"]):
            layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
        return torch.nn.Sequential(*layers)

    torch.manual_seed(0)
    model, optimizer = initialize_engine(build, dist.get_rank(), {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "default_chunk_size": width * width + width,
        "memory": {"device": "2GB", "host": "0", "disk": "0", "prefetch": 4 if task["ahead"] else 0},
        "train": {"threads": 1}})
    x = torch.randn(task["rows"], width)
    seconds = []
    for step in range(WARMUP + task["steps"]):
        if step == WARMUP:
            profiler.start()
        begin = time.perf_counter()
        optimizer.zero_grad()
        model.backward(model(x).square().mean())
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    profiler.end()
    profiler.save(task["profile"])
    dist.barrier()
    print(json.dumps(seconds[WARMUP:]), flush=True)
    model.close()


def waited_s(path):
    """All chunks are on the device: what is waited for is messages."""
    with open(path) as file:
        profile = json.load(file)
    events = profile["traceEvents"] if isinstance(profile, dict) else profile
    return sum(event["dur"] for event in events if event.get("ph") == "X" and event.get("cat") == "wait") * 1e-6


def measure(options, delay_ms, ahead):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.json")
        task = dict(vars(options), delay=delay_ms * 1e-3, ahead=ahead, profile=profile)
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--task", json.dumps(task)],
                                  stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                                           LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks)))
                 for rank in range(options.ranks)]
        printed = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit("pytorch_ranks.py: a rank failed")
        seconds = json.loads(printed[0].splitlines()[-1])
        return statistics.median(seconds), waited_s(profile + ".rank-0") / sum(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--delay", type=float, nargs="+", default=[0, 5, 20])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        rank_main(json.loads(options.task))
        return
    print("| delay | gathered | s a step | share of it spent waiting |\n|---|---|---|---|")
    for delay in options.delay:
        for ahead in (False, True):
            step, share = measure(options, delay, ahead)
            print("| %g ms | %s | %.3f | %.0f %% |" % (delay, "ahead" if ahead else "when asked for", step, share * 100),
                  flush=True)


if __name__ == "__main__":
    main()
