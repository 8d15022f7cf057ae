"""Write doc/scale.md: the largest models that fit some machines, and predicted speed beside published figures.

usage: python3 tool/scale.py BUILD_FOLDER        (some minutes; from the root of the repository)

The text is tool/scale.md, with the tables put where it says so; doc/scale.md is written when all of it is there.

Every number of ours is what `pstar plan` says. Published figures: PatrickStar's README and charts (doc/mgpu_scalability.png,
doc/one_node_perf_a100.png, doc/m_node_superpod.png) and its paper, Fang et al., arXiv:2108.05818.
"""
import io
import json
import os
import subprocess
import sys

PSTAR = os.path.join(sys.argv[1], "pstar")
HARDWARE = "examples/hardware/"
SYSTEMS = ["pstar", "PatrickStar", "ZeRO-3 offload", "ZeRO-Offload", "data parallel"]


def plan(hardware, *arguments, check=True):
    command = [PSTAR, "plan", "examples/scale.json", "--hardware", HARDWARE + hardware, "--json", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 2) or (check and not result.stdout):
        sys.exit("%s: %s" % (" ".join(command), result.stderr))
    return json.loads(result.stdout)


def preset(hardware, name, *arguments):
    return plan(hardware, "--no-advice", "model.preset=" + name, *arguments)


def gb(n):
    return "%.1f" % (n / 1e9)


def billions(n):
    return "%.1f B" % (n / 1e9) if n else "none"


PAGE = io.StringIO()


def table(head, rows):
    PAGE.write("| " + " | ".join(head) + " |\n")
    PAGE.write("|" + "---|" * len(head) + "\n")
    for row in rows:
        PAGE.write("| " + " | ".join(row) + " |\n")
    PAGE.write("\n")


BEDS = [  # title, file, changes, published
    ("8 x V100 32 GB, 240 GB", "v100-32gb-x8.json", [], "PatrickStar 18 B, DeepSpeed 4 B (8 B with model parallelism), PyTorch 1 B"),
    ("1 x V100 32 GB, 240 GB", "v100-32gb-x8.json", ["hardware.gpus_per_node=1", "hardware.link.shared_by=1"], "PatrickStar 12 B, DeepSpeed 4 B"),
    ("8 x A100 40 GB, 1 TB", "a100-40gb-x8.json", [], "PatrickStar 68 B, DeepSpeed 30 B"),
    ("32 x A100 40 GB, 4 x 1 TB", "a100-40gb-x8.json", ["hardware.n_nodes=4", "train_micro_batch_size_per_gpu=4"], "PatrickStar 175 B"),
    ("1 x RTX 4090 24 GB, 64 GB", "rtx4090-64gb.json", [], ""),
    ("1 x RTX 4090, 64 GB and disk", "rtx4090-64gb.json", ["memory.disk=auto"], ""),
    ("1 x H200 141 GB, 128 GB", "h200-128gb.json", [], ""),
    ("1 x H200, 128 GB and disk", "h200-128gb.json", ["memory.disk=auto"], ""),
]


def largest():
    rows, reasons = [], []
    for title, hardware, changes, published in BEDS:
        models = {m["system"]: m for m in plan(hardware, "--max-model", "gpt2", "--compare", *changes)}
        ours = models["pstar"]
        rows.append([title] + [billions(models[s]["parameters"]) for s in SYSTEMS] + [published])
        p = ours["plan"]
        device, host, disk = (p["tiers"][t] for t in ("device", "host", "disk"))
        at = device["at_peak"]
        chunks = sum(v for k, v in at.items() if k.isupper() or k == "PARAM16")
        reasons.append([title, "%d x %d" % (ours["hidden_size"], ours["layers"]), gb(p["model_data_bytes"]),
                        "%s of %s" % (gb(device["peak_bytes"]), gb(device["budget_bytes"])), gb(chunks),
                        gb(at["activations_and_workspace"]), "%s of %s" % (gb(host["peak_bytes"]), gb(host["budget_bytes"])),
                        gb(disk["peak_bytes"]), "%.1f" % p["step"]["seconds"], p["step"]["critical"]])
    table(["machine"] + SYSTEMS + ["published"], rows)
    PAGE.write("What ours are, in GB of one rank (model data: of all ranks):\n\n")
    table(["machine", "width x layers", "model data", "device", "chunks there", "activations", "host", "disk", "s a step", "bound by"],
          reasons)


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


def speed():
    rows = []
    for title, hardware, changes, n, models in SPEED:
        for name, published, deepspeed in models:
            p = preset(hardware, name, *changes)
            if not p["fits"]:
                rows.append([title, name, "does not fit", "%g" % published, "", "%g" % deepspeed if deepspeed else "", "", "", ""])
                continue
            total = p["step"]["flops_8N_per_second"] * n * 1e-12
            waits = 1 - (p["step"]["compute_seconds"] + p["step"]["lost_to_copies_seconds"]) / p["step"]["seconds"]
            rows.append([title, name, "%.0f" % total, "%g" % published, "%.2f" % (total / published), "%g" % deepspeed if deepspeed else "",
                         "%.1f" % p["step"]["seconds"], "%.0f %%" % (100 * waits),
                         "%d of %d" % (p["chunks"]["of_a_rank"] - p["chunks"]["updated_on_host"], p["chunks"]["of_a_rank"])])
    table(["machine", "model", "predicted TFLOP/s", "PatrickStar", "ratio", "DeepSpeed", "predicted s a step", "of it waits", "updates on the device"],
          rows)


TEXT = open("tool/scale.md").read().split("<!-- table -->\n")
PAGE.write(TEXT[0])
largest()
PAGE.write(TEXT[1])
speed()
PAGE.write(TEXT[2])
with open("doc/scale.md", "w") as out:
    out.write(PAGE.getvalue())
