"""The files of all ranks as one: python -m patrickstar.merge --pattern 'model-*.pt' --num 4

A thin way to `pstar merge`. The '*' of the pattern stands for 0 to num - 1; what is written is the pattern with
"merged" in its place, here model-merged.pt, or the file that is named last. A tensor that several ranks have must be
the same in all of them. The result is what torch.save makes of a whole state_dict: torch.load reads it without this
package.
"""
import argparse
import sys
from typing import List, Optional

from . import _program


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.merge", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pattern", required=True, help="files of the ranks, with one '*' for the rank's number")
    parser.add_argument("--num", type=int, required=True, help="how many ranks there were")
    parser.add_argument("out", nargs="?", help="file to write; .safetensors is a format too")
    a = parser.parse_args(arguments)
    return _program.run(["merge", "--pattern", a.pattern, "--num", str(a.num)] + ([a.out] if a.out else []))


if __name__ == "__main__":
    sys.exit(main())
