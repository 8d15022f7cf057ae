"""Write a profile as doc/profile.md describes it: two steps of a model of 18 chunks in each of four lists, 120 moments a step.

usage: make_profile.py FILE [small]    ("small": 2 chunks a list, 8 moments a step, for the fuzzer's corpus)

The times come from a sum of small integers, so the file is the same everywhere.
"""
import json
import sys

LISTS = ["PARAM16", "MASTER", "MOMENTUM", "VARIANCE"]
BYTES = {"PARAM16": 1978368, "MASTER": 3956736, "MOMENTUM": 3956736, "VARIANCE": 3956736}
ROWS = ["steps", "phases", "compute", "waits", "host->device", "device->host", "disk read", "disk write", "collectives", "chunks"]


class Writer:
    def __init__(self, n_chunks):
        self.n_chunks = n_chunks
        self.events = [{"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": r}} for i, r in enumerate(ROWS)]
        self.device = {}
        self.host = {}

    def span(self, tid, cat, begin, end, name, **args):
        self.events.append({"ph": "X", "pid": 0, "tid": tid, "cat": cat, "ts": begin, "dur": round(end - begin, 3), "name": name,
                            "args": args})

    def change(self, at, name, chunk, tier, reason):
        self.events.append({"ph": "i", "s": "t", "pid": 0, "tid": 9, "cat": "chunk", "ts": at, "name": name,
                            "args": {"chunk": chunk, "tier": tier, "reason": reason}})

    def sample(self, at, non_model):
        used = sum(BYTES[LISTS[c // self.n_chunks]] for c in self.device if self.device[c])
        self.events.append({"ph": "C", "pid": 0, "ts": at, "name": "device bytes",
                            "args": {"chunks": used, "non_model": non_model, "other": 0}})
        kept = sum(BYTES[LISTS[c // self.n_chunks]] for c in self.host if self.host[c])
        self.events.append({"ph": "C", "pid": 0, "ts": at, "name": "host bytes", "args": {"chunks": kept, "other": 0}})

    def copy(self, tid, begin, end, chunk, source, target, reason):
        kind = LISTS[chunk // self.n_chunks]
        index = chunk % self.n_chunks
        self.span(tid, "copy", begin, end, f"{kind} {index}", chunk=chunk, list=kind, index=index, bytes=BYTES[kind], **{
            "from": source, "to": target, "reason": reason})


def main(path, n_chunks, n_moments):
    w = Writer(n_chunks)
    for c in range(len(LISTS) * n_chunks):
        tier = "device" if c < n_chunks else "host" if c % n_chunks < n_chunks // 4 else "disk"
        w.change(0, "place", c, tier, "start")
        (w.device if tier == "device" else w.host)[c] = tier != "disk"
    now, moment = 0, 0
    for step in (2, 3):
        begin = now
        for phase, label in (("forward", "forward"), ("backward", "backward")):
            start = now
            for i in range(n_moments * 3 // 8):
                took = 900 + 37 * (i * 7 % 11) + (600 if phase == "backward" else 0)
                grown = (i if phase == "forward" else n_moments * 3 // 8 - i) * 300000
                w.sample(now, grown)
                w.span(2, "op", now, now + took, f"transformer.h.{i // 8}.attn.c_attn {label}", moment=moment, phase=phase,
                       step=step, non_model_bytes=grown)
                now, moment = now + took, moment + 1
            w.span(1, "phase", start, now, phase)
        start = now
        for i in range(n_moments // 4):
            index = i % n_chunks
            chunks = [(k + 1) * n_chunks + index for k in range(3)]
            for k, c in enumerate(chunks): # side by side on the disk; the first is waited for
                w.copy(6, now + 50 * k, now + 700 + 300 * k, c, "disk", "device", "wanted" if k == 0 else "prefetch")
                w.change(now + 50 * k, "place", c, "device", "load")
                w.device[c] = True
            w.span(3, "wait", now, now + 700, f"wait for MASTER {index}", chunk=chunks[0], link="disk read")
            w.sample(now + 200, 0)
            now += 700
            w.span(2, "op", now, now + 450, "update", moment=moment, phase="adam", step=step, non_model_bytes=0, chunk=index)
            now, moment = now + 450, moment + 1
            for k, c in enumerate(chunks):
                w.copy(7, now + 20 * k, now + 800 + 40 * k, c, "device", "disk", "write back")
                w.change(now + 800 + 40 * k, "leave", c, "device", "evict")
                w.device[c] = False
            if index % 5 == 0:
                w.copy(5, now, now + 200, index, "device", "host", "write back")
                w.copy(4, now + 300, now + 500, index, "host", "device", "prefetch")
            w.sample(now + 900, 0)
        w.span(1, "phase", start, now, "adam")
        w.span(0, "step", begin, now, f"step {step}", step=step)
    per_step = now / 2e6
    facts = {
        "version": 1, "simulated": False, "rank": 0, "n_ranks": 1, "title": "made.json", "begin_ns": 0, "steps": [2, 3],
        "budgets": {"device": 90000000, "host": 60000000, "disk": 1000000000}, "chunk_elements": 989184, "n_chunks": n_chunks,
        "waste": 0.0094,
        "chunks": [{"id": k * n_chunks + i, "list": name, "index": i, "bytes": BYTES[name],
                    "tensors": [f"transformer.h.{i}.attn.c_attn.weight", f"transformer.h.{i}.ln_1.bias"]}
                   for k, name in enumerate(LISTS) for i in range(n_chunks)],
        "predicted": {"step_seconds": round(per_step * 0.9, 6), "critical": "compute",
                      "busy_seconds": {"compute": round(per_step * 0.8, 6), "disk read": 0.03, "disk write": 0.02},
                      "moved_bytes": {"disk read": 300000000, "disk write": 300000000}},
        "measured": {"step_seconds": round(per_step, 6), "critical": "compute",
                     "busy_seconds": {"compute": round(per_step * 0.85, 6), "disk read": 0.04, "disk write": 0.024},
                     "peak_bytes": {"device": 88000000, "host": 47000000, "disk": 200000000},
                     "moved_bytes": {"disk read": 300000000, "disk write": 356000000}},
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"displayTimeUnit": "ms", "traceEvents": w.events, "patrickstar": facts}, file, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1], *((2, 8) if sys.argv[2:] == ["small"] else (18, 120)))
