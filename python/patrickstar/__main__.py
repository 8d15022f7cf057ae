"""The command `patrickstar`, and python -m patrickstar: lists the options of a configuration, and prints the version.

It does not import PyTorch."""
import argparse
import sys
from ctypes import byref, c_void_p, string_at
from typing import List, Optional

from . import __version__
from ._library import PatrickStarError, check, library, path

_ALL = object()


def help_config(name: Optional[str] = None) -> str:
    """The options of a configuration with default, range and meaning, as the library lists them: those of a section,
    one option, or without a name all. PatrickStarError for an unknown name."""
    text = c_void_p()
    if name is None:
        check(library.ps_config_help(byref(text)))
    else:
        check(library.ps_config_help_of(name.encode(), byref(text)))
    try:
        return string_at(text).decode()
    finally:
        library.ps_free(text)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="patrickstar", description="PyTorch modules trained in chunks: the options "
                                     "of initialize_engine's config.",
                                     epilog="Tools: python -m patrickstar.merge joins files of ranks, "
                                     "patrickstar.to_dcp writes a checkpoint for torch.distributed.checkpoint, "
                                     "patrickstar.visualize draws a profile. The program pstar, which trains its "
                                     "own models, is another command.")
    parser.add_argument("--help-config", nargs="?", const=_ALL, metavar="NAME",
                        help="list every option with its default, range and meaning; NAME: that option, or those of "
                        "that section (memory.total, memory)")
    parser.add_argument("--version", action="version", version="patrickstar %s (%s)" % (__version__, path()))
    a = parser.parse_args(arguments)
    if a.help_config is None:
        parser.print_help()
        return 0
    try:
        sys.stdout.write(help_config(None if a.help_config is _ALL else a.help_config))
        sys.stdout.flush()
    except PatrickStarError as error:
        print("patrickstar: --help-config: %s" % error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # the pager has been closed
        sys.stdout = None
    return 0


if __name__ == "__main__":
    sys.exit(main())
