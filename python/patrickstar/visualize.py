"""A profile as a figure: python -m patrickstar.visualize profile.json --fig_type memory --memory_type GPU --rm_warmup

memory    bytes over time: chunks, what the framework itself has in use, their total and the budget
access    where each chunk is, a row a chunk

A thin way to `pstar report`, which has more: `pstar report profile.json -o report.html` is a page with all figures.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import _program

_FIGURES = {"memory": "memory.svg", "access": "chunks.svg"}  # the names that `pstar report --svg` gives
_COUNTERS = {"GPU": "device bytes", "CPU": "host bytes"}  # of doc/profile.md


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.visualize", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="a file of profiler.save()")
    parser.add_argument("--fig_type", choices=sorted(_FIGURES), default="memory")
    parser.add_argument("--memory_type", choices=sorted(_COUNTERS),
                        help="of the figure memory: only the device (GPU; where the processor computes, its budget "
                             "for that), or only the host (CPU); without it both")
    parser.add_argument("--rm_warmup", action="store_true", help="leave the first step of the training out")
    parser.add_argument("-o", "--output", help="figure to write; without it the profile's name with -FIG_TYPE.svg")
    a = parser.parse_args(arguments)
    if a.memory_type is not None and a.fig_type != "memory":
        parser.error("--memory_type is of --fig_type memory: the figure access shows all tiers of a chunk at once")
    output = a.output or "%s-%s.svg" % (os.path.splitext(a.profile)[0], a.fig_type)
    if not output.endswith(".svg"):
        parser.error("-o %s: figures are SVG; give it a name that ends in .svg" % output)
    with tempfile.TemporaryDirectory() as folder:
        profile = a.profile
        if a.memory_type is not None or a.rm_warmup:
            facts = _read(parser, a.profile)
            if a.memory_type is not None:
                _keep_memory_type(facts, _COUNTERS[a.memory_type])
            if a.rm_warmup:
                _remove_first_step(parser, facts)
            profile = os.path.join(folder, os.path.basename(a.profile))
            with open(profile, "w") as file:
                json.dump(facts, file)
        status = _program.run_quietly(["report", profile, "--svg", os.path.join(folder, "figures")])
        if status == 0:
            shutil.move(os.path.join(folder, "figures", _FIGURES[a.fig_type]), output)
            print(output)
    return status


def _read(parser: argparse.ArgumentParser, path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            profile = json.load(file)
        if "traceEvents" in profile and "patrickstar" in profile:
            return profile
    except OSError as error:
        parser.error("%s: %s" % (path, error.strerror))
    except (ValueError, TypeError):  # PatrickStar's own profiles are pickles
        pass
    parser.error("%s is no profile of this package: profiler.save() writes JSON, with \"traceEvents\" and "
                 "\"patrickstar\"" % path)


def _keep_memory_type(profile: Dict[str, Any], kept: str) -> None:
    dropped = set(_COUNTERS.values()) - {kept}
    profile["traceEvents"] = [event for event in profile["traceEvents"] if event.get("name") not in dropped]


def _remove_first_step(parser: argparse.ArgumentParser, profile: Dict[str, Any]) -> None:
    """Without its event figures begin at the next step; where chunks were then comes from what happened before."""
    first, last = profile["patrickstar"]["steps"]
    if first > 1:
        print("--rm_warmup: the profile begins at step %d, without the first step of the training" % first,
              file=sys.stderr)
        return
    if last == first:
        parser.error("--rm_warmup: the profile has the first step of the training only")
    profile["traceEvents"] = [event for event in profile["traceEvents"]
                              if not (event.get("cat") == "step" and event.get("args", {}).get("step") == first)]
    profile["patrickstar"]["steps"][0] = first + 1


if __name__ == "__main__":
    sys.exit(main())
