"""ColossalAI's names of ZeRO with chunks, for programs that have them from colossalai.zero (doc/migrating.md).

    model = build()                                              # in place of ZeroInitContext
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)   # which kind, and its numbers
    model, optimizer = convert_to_zero_v2(model, optimizer, model_config, optimizer_config)
    optimizer.zero_grad()
    optimizer.backward(loss_of(model))
    optimizer.step()

They are the engine and the optimizer of initialize_engine. What ColossalAI's constructors take becomes keys of its
configuration; further keys of that may be given beside them (memory={"device": "8GB"})."""
import glob
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn as nn

from ._library import PatrickStarError, Refused
from ._original import describe_memory, refuse_names
from .runtime import Engine, Optimizer
from .runtime._start import start
from .runtime.optimizer import KINDS, as_params

__all__ = ["ShardedModelV2", "ShardedOptimizerV2", "convert_to_zero_v2"]

_ZERO = ("reduce_scatter_bucket_size_mb", "fp32_reduce_scatter", "tensor_placement_policy", "gradient_predivide_factor",
         "reuse_fp16_shard", "warmup_non_model_data_ratio")
_FP16 = ("initial_scale", "min_scale", "max_scale", "growth_factor", "backoff_factor", "growth_interval", "hysteresis")


class ShardedModelV2(Engine):
    """A module that is to lie in chunks. ShardedOptimizerV2 puts it there; until then it cannot run."""

    def __init__(self, module: nn.Module, shard_strategy: Any = None, process_group: Any = None,
                 reduce_scatter_process_group: Any = None, bf16: bool = False, **config: Any) -> None:
        """shard_strategy: any; chunks hold whole tensors, whatever it is."""
        nn.Module.__init__(self)
        if reduce_scatter_process_group not in (None, process_group):
            raise Refused("reduce_scatter_process_group: one process group does all; leave it out")
        self._given: Dict[str, Any] = {
            "zero": {key: config.pop(key) for key in _ZERO if config.get(key) is not None},
            "bf16" if bf16 else "fp16": {"enabled": True}, **config}
        self._process_group = process_group
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if "front" not in self.__dict__:
            raise PatrickStarError("ESTATE", "ShardedModelV2 is not in chunks yet: ShardedOptimizerV2(model, optimizer)"
                                             " puts it there")
        return super().forward(*args, **kwargs)

    def begin(self, given: Dict[str, Any], process_group: Any) -> None:
        """From the optimizer, with what it adds to the configuration."""
        super().__init__(*start(self.module, None, {**self._given, **given}, process_group or self._process_group))

    def dump_memory_stats(self, filename: str = "dump_mem_stats.log") -> None:
        """Write, on rank 0, what memory is in use: by tier, and by chunk list."""
        if self.ranks.rank == 0:
            with open(filename, "w") as file:
                file.write("\n".join(describe_memory() + [repr(use) for use in self.client.get_memory_use()]) + "\n")


class ShardedOptimizerV2(Optimizer):
    """The optimizer of a ShardedModelV2, of the kind and with the numbers of one of PyTorch's, or of HybridAdam,
    CPUAdam, FusedAdam. That one shares param_groups with this, so that schedulers over either act."""

    def __init__(self, sharded_model: ShardedModelV2, optimizer: torch.optim.Optimizer,
                 gpu_margin_mem_ratio: Optional[float] = None, dp_process_group: Any = None,
                 mp_process_group: Any = None, verbose: bool = False, **scaler: Any) -> None:
        unknown = [key for key in scaler if key not in _FP16]
        if unknown:
            raise TypeError("ShardedOptimizerV2: unexpected argument %s; expected one of %s"
                            % (unknown[0], ", ".join(_FP16)))
        if mp_process_group is not None:
            raise Refused("mp_process_group: ranks share neither operators nor layers; leave it out")
        if optimizer.state:
            raise Refused("%s has made steps, whose states would be lost: load them by load_state_dict of this "
                          "optimizer" % type(optimizer).__name__)
        given: Dict[str, Any] = {"optimizer": _describe(optimizer, sharded_model.module)}
        model_config = sharded_model._given
        if gpu_margin_mem_ratio:
            given["zero"] = {**model_config["zero"], "gpu_margin_mem_ratio": gpu_margin_mem_ratio}
        if "fp16" in model_config:
            given["fp16"] = {**model_config["fp16"], **scaler}
        sharded_model.begin(given, dp_process_group)
        super().__init__(sharded_model)
        optimizer.param_groups = self.param_groups

    @property
    def loss_scale(self) -> float:
        return self.client.get_loss_scale()

    def backward(self, loss: torch.Tensor) -> None:
        self.engine.backward(loss)

    def clip_grad_norm(self, model: nn.Module, max_norm: float) -> None:
        raise Refused("clip_grad_norm: gradient_clipping=%g beside the model's arguments clips by the norm of all "
                      "gradients in step()" % max_norm)

    def get_memory_usage(self) -> Tuple[int, int]:
        """Bytes of fp32 values and states on the GPU and in RAM."""
        uses = [use for use in self.client.get_memory_use() if use.name in (b"MASTER", b"MOMENTUM", b"MEAN", b"VARIANCE")]
        device, host = sum(use.device_bytes for use in uses), sum(use.host_bytes for use in uses)
        return (device, host) if self.client.info.gpu >= 0 else (0, device + host)


def _describe(optimizer: torch.optim.Optimizer, module: nn.Module) -> Dict[str, Any]:
    """As the section `optimizer` of a configuration."""
    kind = type(optimizer).__name__
    is_decoupled = getattr(optimizer, "adamw_mode", getattr(optimizer, "adam_w_mode", None))  # ColossalAI's
    if is_decoupled is not None:
        kind = "AdamW" if is_decoupled else "Adam"
    if kind not in KINDS:
        raise Refused("%s: expected Adam, AdamW or SGD of torch.optim, HybridAdam, CPUAdam or FusedAdam, or Lion"
                      % kind)
    for key in ("amsgrad", "maximize"):
        if any(group.get(key) for group in optimizer.param_groups):
            raise Refused("%s of %s: the library's does not do that; leave it out" % (key, kind))
    names = {id(param): name for name, param in module.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            if id(param) not in names:
                raise Refused("param_groups[%d] of %s has a parameter of shape %s that the module does not have: "
                              "create the optimizer of the parameters of this module"
                              % (number, kind, tuple(param.shape)))
    known = {id(param) for group in optimizer.param_groups for param in group["params"]}
    trained = [param for param in module.parameters() if param.requires_grad]
    missing = [names[id(param)] for param in trained if id(param) not in known]
    if missing:  # the first group of a configuration has all parameters that no pattern matches
        raise Refused("%s lacks %d of %d parameters with requires_grad, the first of which are %s: add them to a "
                      "group, or freeze them by requires_grad_(False)"
                      % (kind, len(missing), len(trained), ", ".join(missing[:3])))
    first, *others = [as_params(kind, group) for group in optimizer.param_groups]
    return {"type": kind, "params": first, "param_groups": [
        {"params": [glob.escape(names[id(param)]).replace(",", "?") for param in group["params"]], **numbers}
        for group, numbers in zip(optimizer.param_groups[1:], others)]}


def convert_to_zero_v2(model: nn.Module, optimizer: torch.optim.Optimizer,
                       model_config: Optional[Dict[str, Any]] = None, optimizer_config: Optional[Dict[str, Any]] = None
                       ) -> Tuple[ShardedModelV2, ShardedOptimizerV2]:
    """model_config: arguments of ShardedModelV2; optimizer_config: of ShardedOptimizerV2."""
    zero_model = ShardedModelV2(model, **(model_config or {}))
    return zero_model, ShardedOptimizerV2(zero_model, optimizer, **(optimizer_config or {}))


__getattr__ = refuse_names(__name__, {
    "ZeroInitContext": "build the model without a context, and give it to convert_to_zero_v2; or in `with "
                       "patrickstar.init(config):`, and initialize_engine(model=model), and it never exists twice",
    "no_shard_zero_context": "patrickstar.torch_scope keeps parameters out of chunks, within a model_func"})


def __dir__() -> List[str]:
    return sorted(__all__)
