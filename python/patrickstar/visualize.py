"""A profile as a figure: python -m patrickstar.visualize profile.json --fig_type memory --memory_type GPU --rm_warmup

memory    bytes over time: chunks, the framework's own memory, their total and the budget
access    the tier of each chunk, a row a chunk

Drawn by matplotlib from the data of `pstar report`, which has more: `pstar report profile.json -o report.html` is a
page with all figures, and needs no other package.
"""
import argparse
import bisect
import json
import os
import re
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import _program

_TIERS = {"GPU": 0, "CPU": 1}
_PHASES = ("#e6f2fa", "#dfe6ee", "#f7e8f0")  # colours of forward, backward, update, as on the page
_PLACES = {"device": "#0072b2", "host": "#e69f00", "disk": "#009e73"}


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.visualize", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="a file of profiler.save()")
    parser.add_argument("--fig_type", choices=("access", "memory"), default="memory")
    parser.add_argument("--memory_type", choices=sorted(_TIERS),
                        help="of the figure memory: only the device (GPU; without a GPU, its budget "
                             "for that), or only the host (CPU); without it both")
    parser.add_argument("--rm_warmup", action="store_true", help="leave the first step of the training out")
    parser.add_argument("-o", "--output", help="figure to write, in a format of matplotlib's (.svg, .png, .pdf); "
                                               "without it the profile's name with -FIG_TYPE.svg")
    a = parser.parse_args(arguments)
    if a.memory_type is not None and a.fig_type != "memory":
        parser.error("--memory_type is for --fig_type memory: the figure access shows all tiers of a chunk at once")
    try:
        import matplotlib
        from matplotlib.figure import Figure  # without pyplot: no display is needed
    except ImportError as error:
        parser.error("figures are drawn by matplotlib (pip install matplotlib): %s; pstar report %s -o report.html "
                     "needs no other package" % (error, a.profile))
    data = _read(a.profile)
    if data is None:
        return 1
    if "memory" not in data:
        parser.error("%s is the log of a run, expected a profile (profiler.save(), profile.path); pstar report %s -o "
                     "report.html draws the log" % (a.profile, a.profile))
    begin = _begin(parser, data, a.rm_warmup)
    output = a.output or "%s-%s.svg" % (os.path.splitext(a.profile)[0], a.fig_type)
    figure = Figure(figsize=(11, 6), constrained_layout=True)
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        if a.fig_type == "memory":
            _draw_memory(figure, data, begin, a.memory_type)
        else:
            _draw_access(figure, data, begin)
        try:
            figure.savefig(output)
        except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
            parser.error("-o %s: %s" % (output, error))
    print(output)
    return 0


def _read(profile: str) -> Optional[Dict[str, Any]]:
    """The data of the report's page; None after pstar has printed an error of the profile."""
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "report.html")
        if _program.run_quietly(["report", profile, "-o", page]) != 0:
            return None
        with open(page, encoding="utf-8") as file:
            text = file.read()
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def _begin(parser: argparse.ArgumentParser, data: Dict[str, Any], is_without_first: bool) -> float:
    """Where the time axis begins."""
    if not is_without_first or not data["steps"]:
        return data["begin"]
    first = data["steps"][0][2]
    if first != "step 1":
        print("--rm_warmup: the profile begins at %s, without the first step of the training" % first, file=sys.stderr)
        return data["begin"]
    if len(data["steps"]) == 1:
        parser.error("--rm_warmup: the profile has the first step of the training only")
    return data["steps"][1][0]


def _finish(axes: Any, data: Dict[str, Any], begin: float) -> None:
    axes.set_xlim(0, data["end"] - begin)
    axes.set_xlabel("time (s)")
    for step_begin, step_end, name in data["steps"]:
        if step_begin >= begin:
            axes.axvline(step_begin - begin, color="#59636e", linewidth=0.8, linestyle=":")
            axes.text((step_begin + step_end) / 2 - begin, 1.01, name, ha="center", fontsize="small",
                      transform=axes.get_xaxis_transform())


def _draw_memory(figure: Any, data: Dict[str, Any], begin: float, memory_type: Optional[str]) -> None:
    tiers = [_TIERS[memory_type]] if memory_type else [i for i in (0, 1) if any(data["memory"][i]["chunks"])] or [0]
    panels = figure.subplots(len(tiers), squeeze=False)[:, 0]
    for axes, tier in zip(panels, tiers):
        memory = data["memory"][tier]
        first = max(bisect.bisect_right(memory["t"], begin) - 1, 0)  # the value at the beginning
        times = [max(t - begin, 0) for t in memory["t"][first:]] + [data["end"] - begin]
        chunks, non_model, other = (([b / 1e6 for b in memory[key][first:]] or [0]) for key in
                                    ("chunks", "non_model", "other"))
        total = [sum(parts) for parts in zip(chunks, non_model, other)]
        budget = data["budgets"][tier] / 1e6
        for phase, (name, color) in enumerate(zip(("forward", "backward", "update"), _PHASES)):
            spans = [(b - begin, e - b) for b, e, p in data["phases"] if p == phase and b >= begin]
            axes.broken_barh(spans, (0, 1), transform=axes.get_xaxis_transform(), color=color, linewidth=0, label=name)
        axes.fill_between(times, chunks + chunks[-1:], step="post", color="#0072b2", alpha=0.4, label="chunks")
        if tier == 0:
            axes.step(times, non_model + non_model[-1:], where="post", color="#d55e00", linewidth=1,
                      label="non-model data")
        axes.step(times, total + total[-1:], where="post", color="#1b1f24", linewidth=1, label="total")
        if 0 < budget < 4 * max(total):  # a budget far above would flatten all else
            axes.axhline(budget, color="#b3123a", linestyle="--", label="budget")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("%s (MB)" % data["tiers"][tier])
        _finish(axes, data, begin)
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0, -0.2), ncol=7,
                      frameon=False)


def _draw_access(figure: Any, data: Dict[str, Any], begin: float) -> None:
    from matplotlib.patches import Patch
    axes = figure.subplots()
    stays = {chunk: [] for chunk in data["rows"]}  # type: Dict[int, List[Any]]
    for chunk, stay_begin, stay_end, tiers in data["stays"]:
        if stay_end > begin:
            fastest = next(name for i, name in enumerate(data["tiers"]) if tiers >> i & 1)
            stays[chunk].append((max(stay_begin, begin) - begin, stay_end - max(stay_begin, begin), _PLACES[fastest]))
    rows = {}  # type: Dict[str, List[int]]
    for row, chunk in enumerate(data["rows"]):
        rows.setdefault(data["lists"][data["chunks"][chunk]["list"]], []).append(row)
        axes.broken_barh([stay[:2] for stay in stays[chunk]], (row, 1), linewidth=0,
                         facecolors=[stay[2] for stay in stays[chunk]])
    axes.set_yticks([(of[0] + of[-1] + 1) / 2 for of in rows.values()])
    axes.set_yticklabels(rows)
    for of in rows.values():
        axes.axhline(of[0], color="#59636e", linewidth=0.8)
    axes.set_ylim(len(data["rows"]), 0)
    _finish(axes, data, begin)
    axes.legend(handles=[Patch(color=color, label=name) for name, color in _PLACES.items()], loc="upper left",
                bbox_to_anchor=(0, -0.08), ncol=3, frameon=False)


if __name__ == "__main__":
    sys.exit(main())
