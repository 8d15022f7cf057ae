"""NVIDIA's libraries that pip has installed, as a PyTorch for CUDA brings them: the packages below `nvidia`.

In a Python process PyTorch has loaded them before this package asks for them, so the loader finds them by name. The
program pstar gets their folders in LD_LIBRARY_PATH, after those that the user has there and before the system's."""
import importlib.util
import os
from typing import Dict, List

# What the plug-in for GPUs loads: GEMMs, attention, collectives (doc/gpu.md).
LIBRARIES = ("libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2")


def find() -> Dict[str, str]:
    """By the library's name its path, of those that are there."""
    spec = importlib.util.find_spec("nvidia")
    found: Dict[str, str] = {}
    for package in list(spec.submodule_search_locations or []) if spec is not None else []:
        for part in sorted(os.listdir(package)) if os.path.isdir(package) else []:
            for name in LIBRARIES:
                path = os.path.join(package, part, "lib", name)
                if os.path.exists(path):
                    found.setdefault(name, path)
    return found


def _folders() -> List[str]:
    return sorted({os.path.dirname(path) for path in find().values()})


def environment() -> Dict[str, str]:
    """os.environ for pstar."""
    given = os.environ.get("LD_LIBRARY_PATH", "")
    folders = ([given] if given else []) + _folders()
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)} if folders else dict(os.environ)


if __name__ == "__main__":  # for scripts (tool/gpu_lib.sh)
    print(":".join(_folders()))
