"""python -m patrickstar.info: what the package finds on this machine: processor, memory, disk, GPU and libraries, as
`pstar info` says them, and Python, PyTorch and the libraries that work with the package.

PyTorch is imported, as its own words say what it can use; where it cannot be, that is said, and the rest is shown."""
import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
from typing import Any, Dict, List, Optional

from . import __version__, _library, _nvidia, _program

COMPANIONS = ("numpy", "transformers", "accelerate", "datasets", "trl", "peft", "safetensors", "tensorboard")


def _torch() -> Dict[str, Any]:
    try:
        import torch

        from . import _cuda
    except Exception as error:  # a broken installation fails in many ways
        return {"error": "%s: %s" % (type(error).__name__, error)}
    found = {"version": str(torch.__version__), "cuda": torch.version.cuda, "threads": torch.get_num_threads()}
    found["gpus"] = _cuda.names()
    if not found["gpus"]:
        found["why_no_gpu"] = _cuda.why_none()
    if not (found["cuda"] or "").startswith("13."):
        found["needed"] = _cuda.NEEDED
    return found


def _companions() -> Dict[str, str]:
    found = {}
    for name in COMPANIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def _pstar(arguments: List[str]) -> str:
    """What `pstar info` prints; SystemExit with its status when it fails, after its own message."""
    done = subprocess.run([_program.find(), "info"] + arguments, stdout=subprocess.PIPE, universal_newlines=True,
                          env=_nvidia.environment())
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def gather(disk_path: Optional[str] = None) -> Dict[str, Any]:
    """Everything as one dictionary, sizes in bytes: that of `pstar info --json`, and `python`, `torch`, `packages`,
    `nvidia` (paths of NVIDIA's libraries that pip has installed, by name).

    disk_path: the folder of the disk tier; by default that of temporary files."""
    found = json.loads(_pstar(["--json"] + _disk_option(disk_path)))
    found["patrickstar"] = {"version": __version__, "library": _library.path(), "program": _program.find()}
    found["python"] = {"version": platform.python_version(), "executable": sys.executable,
                       "libc": " ".join(platform.libc_ver()), "system": platform.platform()}
    found["torch"] = _torch()
    found["packages"] = _companions()
    found["nvidia"] = _nvidia.find()
    return found


def _disk_option(disk_path: Optional[str]) -> List[str]:
    return [] if disk_path is None else ["--disk-path=" + disk_path]


def _text(disk_path: Optional[str]) -> str:
    torch = _torch()
    if "error" in torch:
        described = "cannot be imported: " + torch["error"]
    else:
        described = "%s, %s, %d threads%s" % (
            torch["version"], "for CUDA " + torch["cuda"] if torch["cuda"] else "without CUDA", torch["threads"],
            "; GPUs: " + ", ".join(torch["gpus"]) if torch["gpus"] else "; no GPU: " + torch["why_no_gpu"])
        if "needed" in torch:
            described += "; training on a GPU needs " + torch["needed"]
    packages = ", ".join("%s %s" % item for item in _companions().items()) or "none"
    nvidia = ", ".join(_nvidia.find().values()) or "none from pip"
    return "%-20s%s (%s)\n%-20s%s, %s (%s)\n%-20s%s\n%-20s%s\n%-20s%s\n" % (
        "patrickstar", __version__, _library.path(), "Python", platform.python_version(), " ".join(platform.libc_ver()),
        sys.executable, "PyTorch", described, "packages", packages, "NVIDIA's libraries", nvidia) + _pstar(_disk_option(disk_path))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.info",
                                     description="Show what the package finds on this machine: processor, memory, "
                                     "disk, GPU, libraries, PyTorch.")
    parser.add_argument("--json", action="store_true", help="as JSON, sizes in bytes")
    parser.add_argument("--disk-path", metavar="FOLDER", help="the disk tier (TMPDIR or /tmp when not given), "
                        "'' leaves the disk out")
    a = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(gather(a.disk_path), indent=2) + "\n" if a.json else _text(a.disk_path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
