"""Write doc/scale.md: the largest models that fit some machines, and predicted speed next to published figures.

usage: python3 tool/scale.py BUILD_FOLDER                 (some minutes; from the root of the repository)
       python3 tool/scale.py BUILD_FOLDER --check [PAGE]  (seconds: is the page what would be written now?)

The text is tool/scale.md, with the tables put where it says so; doc/scale.md is written when all of it is there. The check
compares the text, a hash of all that goes in but the planner, and the rows that are planned fast.

Every number of ours is what `pstar plan` says. Published figures: PatrickStar's README and charts (doc/mgpu_scalability.png,
doc/one_node_perf_a100.png, doc/m_node_superpod.png) and its paper, Fang et al., arXiv:2108.05818.
"""
import functools
import glob
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PSTAR = os.path.join(sys.argv[1], "pstar")
HARDWARE = "examples/hardware/"
INPUTS = ["tool/scale.py", "tool/scale.md", "examples/scale.json"] + sorted(glob.glob(HARDWARE + "*.json"))


def plan(hardware, *arguments, check=True):
    command = [PSTAR, "plan", "examples/scale.json", "--hardware", HARDWARE + hardware, "--json", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 2) or (check and not result.stdout):
        sys.exit("%s: %s" % (" ".join(command), result.stderr))
    return json.loads(result.stdout)


def preset(hardware, name, *arguments):
    return plan(hardware, "--no-advice", "model.preset=" + name, *arguments)


# ---- the rules of other systems, as published: bytes of one device and of a node's host for N parameters on p devices, with
# what activations take; None where it cannot fit. All have the budgets that ours has.

PATRICKSTAR_WASTE = 1.05  # its chunks waste 3 to 9 %
PATRICKSTAR_CHUNK = 88 * 2**20  # elements, the least that its search tries


def patrickstar(s, N, p, nodes, device, activations):
    """14 B a parameter in chunks over device and host memory, less activations and two groups of chunks (its README)."""
    groups = 2 * p * 2 * min(N / p, PATRICKSTAR_CHUNK)
    margin = device - activations - groups
    if margin < 0:
        return None
    return groups, 14 * N * PATRICKSTAR_WASTE / nodes - s["ranks_per_node"] * margin


RULES = {
    "PatrickStar": patrickstar,
    # 2 B a parameter over all devices, 18 B over all hosts (PatrickStar's issues 26 and 69 for 16 to 18 B)
    "ZeRO-3 offload": lambda s, N, p, nodes, *_: (2 * N / p, 18 * N / nodes),
    # 2 B a parameter on every device, 16 B on the host of each node (Ren et al. 2021)
    "ZeRO-Offload": lambda s, N, p, nodes, *_: (2 * N, 16 * N),
    # PyTorch's DistributedDataParallel: 16 B a parameter on every device (Rajbhandari et al. 2020)
    "data parallel": lambda s, N, *_: (16 * N, 0),
}
SYSTEMS = ["pstar", *RULES]


def fits(system, s):
    N, p, per_node, activations = s["parameters"], s["ranks"], s["ranks_per_node"], s["activations_and_workspace_bytes"]
    device, host = s["budget_bytes"]["device"], s["budget_bytes"]["host"] * per_node
    need = RULES[system](s, N, p, p / per_node, device, activations)
    return need is not None and activations + need[0] <= device and need[1] <= host


# ---- the largest by rule, of the shapes that `pstar plan --max-model gpt2` tries

WIDTHS = [256, 384, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 9216, 10240, 12288,
          14336, 16384, 20480]


def shape_of(width, layers):
    # --max-model takes shapes of the family with its own defaults, dropout among them
    return ["model.%s_pdrop=0.1" % where for where in ("embd", "resid", "attn")] + [
        "model.hidden_size=%d" % width, "model.num_hidden_layers=%d" % layers,
        "model.num_attention_heads=%d" % max(1, width // 128)]


@functools.lru_cache(None)
def sizes(hardware, changes, width, layers):
    return plan(hardware, "--sizes", *shape_of(width, layers), *changes)


def largest_by_rule(system, hardware, changes):
    """Parameters; from wide to narrow, and of each width the most layers between 400 and 24 columns a layer."""
    best, area = 0, 0
    for width in reversed(WIDTHS):
        low, high = max(1, width // 400, area // (width * width)), max(1, width // 24)
        if low > high or not fits(system, sizes(hardware, changes, width, low)):
            continue
        while low < high:
            middle = (low + high + 1) // 2
            if fits(system, sizes(hardware, changes, width, middle)):
                low = middle
            else:
                high = middle - 1
        if sizes(hardware, changes, width, low)["parameters"] > best:
            best, area = sizes(hardware, changes, width, low)["parameters"], low * width * width
    return best


def gb(n):
    return "%.1f" % (n / 1e9)


def billions(n):
    return "%.1f B" % (n / 1e9) if n else "none"


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def table(head, rows):
    return line(head) + "|" + "---|" * len(head) + "\n" + "".join(map(line, rows)) + "\n"


BEDS = [  # title, file, changes, published, what PatrickStar trained of it, in billions
    ("8 x V100 32 GB, 240 GB", "v100-32gb-x8.json", [], "PatrickStar 18 B, DeepSpeed 4 B (8 B with model parallelism), PyTorch 1 B", 18),
    ("1 x V100 32 GB, 240 GB", "v100-32gb-x8.json", ["hardware.gpus_per_node=1", "hardware.link.shared_by=1"], "PatrickStar 12 B, DeepSpeed 4 B", 12),
    ("8 x A100 40 GB, 1 TB", "a100-40gb-x8.json", [], "PatrickStar 68 B, DeepSpeed 30 B", 68),
    ("32 x A100 40 GB, 4 x 1 TB", "a100-40gb-x8.json", ["hardware.n_nodes=4", "train_micro_batch_size_per_gpu=4"], "PatrickStar 175 B", 175),
    ("1 x RTX 4090 24 GB, 64 GB", "rtx4090-64gb.json", ["memory.disk=0"], "", 0),
    ("1 x RTX 4090, 64 GB and disk", "rtx4090-64gb.json", ["memory.disk=auto"], "", 0),
    ("1 x H200 141 GB, 128 GB", "h200-128gb.json", ["memory.disk=0"], "", 0),
    ("1 x H200, 128 GB and disk", "h200-128gb.json", ["memory.disk=auto"], "", 0),
    ("1 x GH200 96 GB, 480 GB", "gh200-480gb.json", ["memory.disk=0"], "", 0),
    ("1 x GB10, 128 GB shared", "gb10-128gb.json", ["memory.disk=0"], "", 0),
]


def bed_largest(bed, ours):
    """The row of parameters; ours: those of the largest that pstar plans."""
    title, hardware, changes, published, trained = bed
    models = {system: largest_by_rule(system, hardware, tuple(changes)) for system in RULES}
    if models["PatrickStar"] < trained * 1e9:
        sys.exit("%s: the rule gives PatrickStar less than the %d B that it trained: the rule is wrong" % (title, trained))
    return [title, billions(ours)] + [billions(n) for n in models.values()] + [published]


def bed_row(bed):
    ours = plan(bed[1], "--max-model", "gpt2", *bed[2])
    return bed_largest(bed, ours["parameters"]), bed_reasons(bed[0], ours)


def bed_reasons(title, ours):
    p = ours["plan"]
    device, host, disk = (p["tiers"][t] for t in ("device", "host", "disk"))
    at = device["at_peak"]
    chunks = sum(v for k, v in at.items() if k.isupper() or k == "PARAM16")
    return [title, "%d x %d" % (ours["hidden_size"], ours["layers"]), gb(p["model_data_bytes"]),
            "%s of %s" % (gb(device["peak_bytes"]), gb(device["budget_bytes"])), gb(chunks),
            gb(at["activations_and_workspace"]), "%s of %s" % (gb(host["peak_bytes"]), gb(host["budget_bytes"])),
            gb(disk["peak_bytes"]), "%.1f" % p["step"]["seconds"], p["step"]["critical"]]


def largest(pool):
    rows = list(pool.map(bed_row, BEDS))
    heads = [s if s == "pstar" else s + " by rule" for s in SYSTEMS]
    return (table(["machine"] + heads + ["published"], [row for row, _ in rows])
            + "What ours are, in GB of one rank (model data: of all ranks):\n\n"
            + table(["machine", "width x layers", "model data", "device", "chunks there", "activations", "host", "disk",
                     "s a step", "waits most for"], [reasons for _, reasons in rows]))


SPEED = [  # title, file, changes, [(preset, published total TFLOPS of PatrickStar, of DeepSpeed)]
    ("8 x V100", "v100-32gb-x8.json", [], 8,
     [("GPT2_1B", 444, 341), ("GPT2_2B", 425, 350), ("GPT2_4B", 426, 363), ("GPT3_6B", 482, None), ("GPT3_8B", 467, None),
      ("GPT3_10B", 494, None), ("GPT3_12B", 482, None), ("GPT3_15B", 465, None), ("GPT3_18B", 419, None)]),
    ("1 x V100", "v100-32gb-x8.json", ["hardware.gpus_per_node=1", "hardware.link.shared_by=1"], 1,
     [("GPT2_1B", 54.6, 42.8), ("GPT2_2B", 50.57, 38.6), ("GPT2_4B", 48.39, 32.9), ("GPT3_6B", 46.31, None),
      ("GPT3_8B", 42.24, None), ("GPT3_10B", 45.69, None), ("GPT3_12B", 33.78, None)]),
    ("8 x A100", "a100-40gb-x8.json", [], 8,
     [("GPT3_6B", 1180, 728), ("GPT3_10B", 1218, 728), ("GPT3_15B", 1134, 773), ("GPT_DS_20B", 1231, 865),
      ("GPT_DS_40B", 1109, None), ("GPT_DS_50B", 952, None), ("GPT_DS_60B", 920, None), ("GPT_DS_68B", 857, None)]),
    ("1 x A100", "a100-40gb-x8.json", ["hardware.gpus_per_node=1", "hardware.link.shared_by=1"], 1,
     [("GPT3_6B", 114, 83.6), ("GPT3_10B", 118, 87.6), ("GPT3_15B", 113, 80.7), ("GPT_DS_20B", 93, None),
      ("GPT_DS_40B", 56, None), ("GPT_DS_50B", 67, None)]),
    ("32 x A100", "a100-40gb-x8.json", ["hardware.n_nodes=4", "train_micro_batch_size_per_gpu=4"], 32,
     [("GPT_DS_20B", 6050, None), ("GPT_DS_40B", 6050, None), ("GPT_DS_60B", 4100, None), ("GPT_175B", 3500, None)]),
]


def speed_row(title, hardware, changes, n, name, published, deepspeed):
    p = preset(hardware, name, *changes)
    theirs = "%g" % deepspeed if deepspeed else ""
    if not p["fits"]:
        return [title, name, "does not fit", "%g" % published, "", theirs, "", "", ""]
    total = p["step"]["flops_8N_per_second"] * n * 1e-12
    waits = 1 - (p["step"]["compute_seconds"] + p["step"]["lost_to_copies_seconds"]) / p["step"]["seconds"]
    return [title, name, "%.0f" % total, "%g" % published, "%.2f" % (total / published), theirs,
            "%.1f" % p["step"]["seconds"], "%.0f %%" % (100 * waits),
            "%d of %d" % (p["chunks"]["of_a_rank"] - p["chunks"]["updated_on_host"], p["chunks"]["of_a_rank"])]


def speed(pool, only=None):
    wanted = [(title, hardware, changes, n) + model for title, hardware, changes, n, models in SPEED for model in models
              if only is None or (title, model[0]) in only]
    return list(pool.map(lambda w: speed_row(*w), wanted))


SPEED_HEAD = ["machine", "model", "predicted TFLOP/s", "PatrickStar", "ratio", "DeepSpeed", "predicted s a step",
              "of it waits", "updates on the device"]


def text():
    return open("tool/scale.md").read().split("<!-- table -->\n")


def end():
    """A hash of what goes in, which is seen to have changed without planning anything."""
    h = hashlib.sha256()
    for path in INPUTS:
        h.update(open(path, "rb").read())
    return "\n<!-- made of: %s -->\n" % h.hexdigest()[:16]


def write(pool):
    parts = text()
    page = parts[0] + largest(pool) + parts[1] + table(SPEED_HEAD, speed(pool)) + parts[2] + end()
    with open("doc/scale.md", "w") as out:
        out.write(page)


CHECKED_SPEED = [("8 x V100", "GPT2_1B"), ("1 x V100", "GPT2_1B"), ("8 x A100", "GPT3_6B")]
CHECKED_BED = "1 x RTX 4090 24 GB, 64 GB"


def shape(page):
    """The rows of the largest model on CHECKED_BED, planned anew."""
    bed = next(b for b in BEDS if b[0] == CHECKED_BED)
    row = next((r for r in page.split("\n") if r.startswith("| %s | " % CHECKED_BED) and " x " in r.split(" | ")[1]), None)
    if row is None:
        return ["| %s |" % CHECKED_BED]
    width, layers = (int(x) for x in row.split(" | ")[1].split(" x "))
    p = plan(bed[1], "--no-advice", *shape_of(width, layers), *bed[2])
    return [line(bed_largest(bed, p["parameters"])),
            line(bed_reasons(CHECKED_BED, {"plan": p, "hidden_size": width, "layers": layers}))]


def wanted(pool, page):
    """What has to be in the page, what is had soonest first."""
    yield from text() + [end()]
    yield from map(line, speed(pool, CHECKED_SPEED))
    yield from shape(page)


def check(pool, path):
    page = open(path).read()
    for part in wanted(pool, page):
        if part not in page:
            sys.exit("%s is stale: `python3 tool/scale.py build/gcc-d0` writes it anew. Not in it:\n%s" % (path, part))


with ThreadPoolExecutor(os.cpu_count()) as workers:
    if sys.argv[2:3] == ["--check"]:
        check(workers, sys.argv[3] if len(sys.argv) > 3 else "doc/scale.md")
    else:
        write(workers)
