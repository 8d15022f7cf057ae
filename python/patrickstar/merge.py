"""The files of all ranks as one: python -m patrickstar.merge --pattern 'model-*.pt' --num 4

The '*' of the pattern stands for 0 to num - 1; the result is the pattern with "merged" in its place, here
model-merged.pt, or the file that is named last. A tensor that several ranks have must be the same in all of them. Files
are of one kind: of the model, model.state_dict(whole=False), which `pstar merge` joins, or of the optimizer,
optimizer.state_dict(whole=False). The result is that of torch.save of a whole state_dict: torch.load reads it without
this package.
"""
import argparse
import os
import sys
from typing import List, Optional

from . import _program
from ._library import Refused
from ._torch_file import read_structure


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.merge", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pattern", required=True, help="files of the ranks, with one '*' for the rank's number")
    parser.add_argument("--num", type=int, required=True, help="number of ranks")
    parser.add_argument("out", nargs="?", help="file to write; for models .safetensors is a format too")
    a = parser.parse_args(arguments)
    status = _merge_optimizer(a.pattern, a.num, a.out)
    if status is not None:
        return status
    return _program.run(["merge", "--pattern", a.pattern, "--num", str(a.num)] + ([a.out] if a.out else []))


def _merge_optimizer(pattern: str, num: int, out: Optional[str]) -> Optional[int]:
    """The exit status; None if the first file is not of an optimizer."""
    if pattern.count("*") != 1 or num < 1:
        return None
    try:
        first = read_structure(pattern.replace("*", "0"))
    except Exception:  # `pstar merge` reports any error of it
        return None
    if not isinstance(first, dict) or not {"state", "param_groups"} <= set(first):
        return None
    from . import _optimizer_files  # importing PyTorch takes a while
    paths = [pattern.replace("*", str(rank)) for rank in range(num)]
    beyond = pattern.replace("*", str(num))
    try:
        if os.path.exists(beyond):
            raise Refused("%s is there too, but --num says %d files" % (beyond, num))
        said = _optimizer_files.join(paths, out or pattern.replace("*", "merged"))
    except (OSError, RuntimeError) as error:
        print("merge: %s" % error, file=sys.stderr)
        return 2
    print("\n".join("from " + path for path in paths) + "\n" + said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
