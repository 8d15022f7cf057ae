"""Number formats of modules with 16-bit parameters.

Most operators of PyTorch refuse to mix number formats, and buffers keep the format of their modules, mostly fp32. So
    PyTorch's own modules         floating-point inputs are cast to the type of their parameters; also for classes
    with parameters               that are derived from them
    BatchNorm, InstanceNorm       with running statistics in fp32: weight and bias stay fp32 too, out of chunks, and an
                                  output has the type of its input, as under autocast
    losses with weights in fp32   inputs are cast to fp32, as under autocast
    spectral_norm                 its power iteration is in fp32; the resulting weight has the type of the
                                  parameter

All other modules mix formats as their code does."""
import functools
from typing import Any, Callable, Optional

import torch
import torch.nn as nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.loss import _Loss
from torch.nn.utils.parametrizations import _SpectralNorm

from ._torch import not_compiled

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def keeps_fp32(module: nn.Module, dtype: torch.dtype) -> bool:
    """Do its parameters stay fp32 where others are of this type?"""
    return dtype != torch.float32 and isinstance(module, _NormBase) and _has_fp32_buffers(module)


def input_dtype(module: nn.Module, dtype: torch.dtype) -> Optional[torch.dtype]:
    """The type to which floating-point inputs of a module with parameters are cast; None: not cast."""
    if dtype == torch.float32 or keeps_fp32(module, dtype):
        return None
    bases = (base for base in type(module).__mro__ if base is not nn.Module and base not in _CONTAINERS)
    return dtype if any(base.__module__.startswith("torch.nn.modules.") for base in bases) else None


def compute_in_fp32(module: nn.Module, dtype: torch.dtype) -> None:
    """Have the forward of modules of PyTorch without parameters, but with fp32 buffers, compute in fp32."""
    if dtype == torch.float32 or not isinstance(module, (_Loss, _SpectralNorm)) or not _has_fp32_buffers(module):
        return
    forward: Callable[..., Any] = module.forward
    is_weight = isinstance(module, _SpectralNorm)

    @functools.wraps(forward)
    def in_fp32(*args: Any, **kwargs: Any) -> Any:
        out = forward(*cast(args, torch.float32), **{key: cast(value, torch.float32) for key, value in kwargs.items()})
        return cast(out, dtype) if is_weight else out

    module.forward = not_compiled(in_fp32)  # type: ignore[method-assign]


def cast(value: Any, dtype: torch.dtype) -> Any:
    """The value with its floating-point tensors cast to that type, also in tuples."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != dtype else value
    if type(value) is tuple:
        return tuple(cast(part, dtype) for part in value)
    return value


def _has_fp32_buffers(module: nn.Module) -> bool:
    return any(buffer is not None and buffer.dtype == torch.float32 for buffer in module._buffers.values())
