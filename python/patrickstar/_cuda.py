"""All calls of this package to torch.cuda. Each has the sentence of PyTorch's documentation that it relies on, from
https://pytorch.org/docs/stable/cuda.html and the page of the function.

Tests have no GPU: they replace functions of this module. python/test/gpu_check.py runs them on one."""
from typing import Any, List, Optional

import torch

# The library uses cuBLASLt of CUDA 13, which such a PyTorch brings. Its first wheels for CUDA 13.0 (cu130) are of 2.9.
NEEDED = "a PyTorch for CUDA 13 (2.9 or later, a wheel cu130 of https://pytorch.org/get-started/locally)"


def count() -> int:
    """GPUs that PyTorch can use.

    torch.cuda.is_available: "Return a bool indicating if CUDA is currently available."
    torch.cuda.device_count: "Return the number of GPUs available." """
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def why_none() -> str:
    """Why PyTorch can use no GPU, in its words; "": it can.

    torch.cuda.init: "Initialize PyTorch's CUDA state. You may need to call this explicitly if you are interacting with
    PyTorch via its C API [...]. Ordinary users should not need this." It raises what is missing."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error).strip().split("\n")[0]
    return "" if count() else "it finds none"


def names() -> List[str]:
    """torch.cuda.get_device_name: "Get the name of a device." """
    return [torch.cuda.get_device_name(number) for number in range(count())]


def current() -> int:
    """torch.cuda.current_device: "Return the index of a currently selected device." """
    return torch.cuda.current_device()


def select(number: int) -> None:
    """torch.cuda.set_device: "Set the current device." """
    torch.cuda.set_device(number)


def new_stream() -> Any:
    """A stream of the current device, besides the default one.

    torch.cuda.Stream: "Wrapper around a CUDA stream." Its `cuda_stream` is the handle of the driver (CUstream)."""
    return torch.cuda.Stream()


def work_on(stream: Any) -> None:
    """PyTorch issues the calling thread's work to the stream from now on; the backward pass, too.

    torch.cuda.set_stream: "Set the current stream. This is a wrapper API to set the stream."
    Notes, CUDA semantics, "Stream semantics of backward passes": an operator's backward runs on the stream of its
    forward."""
    torch.cuda.set_stream(stream)


def allocated_bytes(device: Optional[torch.device] = None) -> int:
    """What tensors occupy, without what the caching allocator keeps for later ones.

    torch.cuda.memory_allocated: "Return the current GPU memory occupied by tensors in bytes for a given device." """
    return torch.cuda.memory_allocated(device)


def counted_bytes(device: torch.device, reserved_ratio: float) -> int:
    """What counts in memory.device: what tensors occupy, and a share of what the caching allocator keeps.

    torch.cuda.memory_reserved: see below. With expandable_segments it is what is mapped, as Notes, CUDA semantics,
    "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF" describe them."""
    allocated = allocated_bytes(device)
    if reserved_ratio == 0:
        return allocated
    return allocated + int(reserved_ratio * (torch.cuda.memory_reserved(device) - allocated))


def allocator_bytes() -> List[int]:
    """Of the current device: allocated, at most so far; reserved by the caching allocator, at most so far.

    torch.cuda.memory_reserved: "Return the current GPU memory managed by the caching allocator in bytes for a given
    device." """
    return [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(),
            torch.cuda.max_memory_reserved()]


def get_generator(device: torch.device) -> torch.Tensor:
    """torch.cuda.get_rng_state: "Return the random number generator state of the specified GPU as a ByteTensor." """
    return torch.cuda.get_rng_state(device)


def set_generator(state: torch.Tensor, device: torch.device) -> None:
    """torch.cuda.set_rng_state: "Set the random number generator state of the specified GPU." """
    torch.cuda.set_rng_state(state, device)


def get_generators() -> List[torch.Tensor]:
    """torch.cuda.get_rng_state_all: "Return a list of ByteTensor representing the random number states of all devices."
    """
    return torch.cuda.get_rng_state_all() if count() else []


def set_generators(states: List[torch.Tensor]) -> None:
    """torch.cuda.set_rng_state_all: "Set the random number generator state of all devices." """
    if states:
        torch.cuda.set_rng_state_all(states)
