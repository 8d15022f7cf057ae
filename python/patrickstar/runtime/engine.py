"""The engine: a module of PyTorch whose parameters are in chunks."""
import atexit
import collections
import contextlib
import functools
import os
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

import torch
import torch.nn as nn

from .. import _parts
from .._build import _Parameters
from .._client import Config
from .._front import Front
from .._library import OUTSIDE_STEP, BACKWARD, FORWARD, Refused, raised
from .._parked import Parked
from .._ranks import report_failure_to_ranks
from .._state import names_of
from .._torch import exclude_from_compile, not_compiled
from .._weights import config_of
from .._weights import save as save_weights
from ._checkpoint import Checkpoints


class Engine(nn.Module):
    """The result of initialize_engine: called as the module that model_func built, which is its attribute `module`.
    Other attributes are that module's, to read (engine.generate(...), engine.config) and to write (engine.scale =
    2); `device` is the engine's, to read only."""

    def __init__(self, module: nn.Module, front: Front, config: Config, ranks: Any, lock: Any) -> None:
        super().__init__()
        self.front, self.client, self.ranks = front, front.client, ranks
        self.output_lock = lock  # OutputLock, or None
        self.ps_config = config
        self.checkpoints = Checkpoints(module, front, config, ranks)
        front.accumulation_steps = config.get_int("gradient_accumulation_steps")
        self._updates_early = config.to_dict()["memory"]["update_in_backward"] in ("always", "speculate")
        module.zero_grad = front.zero_grad  # type: ignore[method-assign]
        # Before PyTorch 2.1 the collector cannot trace the references from gradient hooks back to parameters.
        weakref.finalize(self, front.unwatch).atexit = False
        if ranks.size > 1:
            atexit.register(self._close_at_exit)
        _empty_autograd_at_exit()
        exclude_from_compile(Parked)
        self.module = module  # the last own attribute: __setattr__

    @property
    def device(self) -> torch.device:
        """Where the parameters are while a module runs, and where batches belong, as of DeepSpeed's engine: the GPU of
        this rank (torch.device("cuda", 0)), or torch.device("cpu")."""
        return self.client.device

    @property
    def why_not_gpu(self) -> Optional[str]:
        """Why the processor computes on a machine with a GPU, unless the configuration asked for it; None: no such."""
        return (self.client.get_info().why_not_gpu or b"").decode() or None

    # ---- calls of PatrickStar's guide

    @not_compiled
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result. With gradients, and in training mode, it is part of a step; otherwise it is an
        evaluation, which is not recorded for the schedule."""
        exclude_from_compile(Parked)
        front, before = self.front, self.front.phase
        front.copy_exported_gradients()
        front.phase = FORWARD if torch.is_grad_enabled() and self.training else OUTSIDE_STEP
        try:
            out = self.module(*args, **kwargs)
            if front.phase == FORWARD:  # graphs of the loss are still alive
                self.client.moment(FORWARD, "(output)")
            return out
        finally:
            front.phase = before

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True) -> None:
        """Gradients of the loss, times the loss scale of fp16, are stored in chunks, added to those since the last
        step. With gradient_accumulation_steps in the configuration the loss counts divided by it, and the
        optimizer steps in every so-many-th call of step(), as DeepSpeed's engine does. scale_wrt_gas=False, as there:
        the loss is not divided, for one that is a share of the step's loss already (doc/pytorch.md, accumulation)."""
        self.backward_of(loss, 1 / (self.front.accumulation_steps if scale_wrt_gas else 1),
                         self.front.completes_micro_batches(), retain_graph)

    def backward_of(self, loss: torch.Tensor, share: float, is_last: bool, retain_graph: bool = False) -> None:
        """backward of loss * share, where the caller knows whether it is the last one before the step."""
        self.front.check_exported_gradients()
        scale = self.client.get_loss_scale() * share
        if is_last:
            self._begin_last_backward()
        with self._in_backward():
            self.client.moment(BACKWARD, "(loss)")
            (loss if scale == 1 else loss.float() * scale).backward(retain_graph=retain_graph)
        self.front.n_backward += 1

    def _begin_last_backward(self) -> None:
        """Updates within it use the numbers that the program has written to the groups so far."""
        optimizer = self.checkpoints.get_optimizer() if self._updates_early else None
        if optimizer is not None:
            optimizer.apply_groups()
        self.client.begin_last_backward()

    @contextlib.contextmanager
    def _in_backward(self) -> Iterator[None]:
        self.front.is_in_backward = True
        raised.clear()
        try:
            yield
        except RuntimeError as error:
            # Before PyTorch 2 exceptions in saved-tensor hooks come out as a RuntimeError with their text.
            if type(error) is RuntimeError and raised and str(raised[0]) in str(error):
                raise raised[0] from None
            raise
        finally:
            self.front.is_in_backward, self.front.last_site = False, None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients since the last step. Between the micro-batches of gradient_accumulation_steps they stay,
        so that a loop may call it before each backward pass. The same as optimizer.zero_grad()."""
        self.front.zero_grad()

    # ---- state

    def state_dict(self, *args: Any, whole: bool = True, **kwargs: Any) -> Dict[str, Any]:
        """fp32 values of the parameters, and buffers, by the names of the module. whole=False: of the parameters only
        those that this rank keeps, or a part of: for one file a rank, which the same rank of as many loads again, and
        python -m patrickstar.merge joins to a whole. Several ranks: all call."""
        is_part = not whole and self.ranks.size > 1
        self.front.saves_part = is_part
        try:
            state = self.module.state_dict(*args, **kwargs)
        finally:
            self.front.saves_part = False
        if is_part:
            _parts.mark_model(state, self.client)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Values of parameters, fp32 or other types, and buffers. Several ranks: all call, with all values, or each
        with its result of state_dict(whole=False). If one refuses, nothing is loaded on any."""
        if assign:
            raise Refused("load_state_dict(assign=True): parameters keep their places in chunks, and values are copied "
                          "there; leave assign out")
        filled = self.agree(lambda: self._fill_part(state_dict, strict), "load_state_dict of the model")
        return self.module.load_state_dict(filled, strict=strict)

    def agree(self, check: Callable[[], Any], what: str) -> Any:
        """The result of check, if it raises on no rank. All call."""
        failure, result = None, None
        if self.ranks.size > 1:
            self.client.announce(next(slot.number for slot in self.front.slots if not slot.is_unmanaged))
        try:
            result = check()
        except Exception as error:
            failure = error
        self.ranks.agree(failure, what)
        return result

    def _fill_part(self, state: Mapping[str, Any], strict: bool) -> Mapping[str, Any]:
        """state_dict(whole=False) of this rank, with placeholders of the right shape for parameters of others: each
        rank uses only its own. Anything else is returned unchanged. Refused if it is of another rank."""
        mark = _parts.mark_of_model(state)
        if mark is None:
            return state
        names = names_of(self.module)
        missing = {name: slot for slot in names for name in names[slot] if name not in state}
        if not missing:
            return state
        try:
            _parts.check_rank(mark, self.client, "model state")
        except Refused:
            if strict:
                raise
            return state  # with its missing entries, as PyTorch does
        kept = [slot for slot in names if self.client.keeps(slot.number)]
        if strict:
            _parts.check_kept(mark, self.client, "model state",
                              [name for name, slot in missing.items() if slot in kept], len(kept))
        filled = collections.OrderedDict(state)
        filled._metadata = getattr(state, "_metadata", None)  # type: ignore[attr-defined]
        filled.update((name, torch.full((), float("nan")).expand(slot.shape)) for name, slot in missing.items()
                      if slot not in kept)
        return filled

    # ---- checkpoints

    def save_checkpoint(self, save_dir: str, tag: Optional[str] = None,
                        client_state: Optional[Dict[str, Any]] = None) -> str:
        """Write a checkpoint: fp32 values, optimizer states, counts, loss scale, buffers, torch's random generators,
        and client_state, a dictionary that load_checkpoint returns (the position in the data, a scheduler's
        state_dict()). Returns its folder, save_dir/tag, by default save_dir/step-000100. It is streamed from chunks:
        memory for one piece of a tensor, whatever the model's size. A checkpoint is complete or not there at all,
        whenever the process is killed. Between step() and the next backward pass. Several ranks: all call."""
        return self.checkpoints.save(os.fspath(save_dir), tag, client_state)

    def load_checkpoint(self, load_dir: str, tag: Optional[str] = None) -> Tuple[Optional[str], Dict[str, Any]]:
        """Continue from a checkpoint: the newest in load_dir, that of the tag, or load_dir itself. Returns its folder,
        and the client_state of this rank; (None, {}) if load_dir has none. Training continues with the bits of a run
        that was never stopped; budgets, chunk sizes and the number of ranks may differ (random generators are not
        restored then). A checkpoint of pstar is read too, without client_state. Several ranks: all call."""
        return self.checkpoints.load(os.fspath(load_dir), tag)

    def save_weights(self, path: str, max_shard_size: Union[int, str] = "5GB",
                     dtype: Optional[torch.dtype] = None) -> None:
        """Write parameters and persistent buffers as safetensors: path, or where that would be larger than
        max_shard_size path's stem with -00001-of-00003, and an index. Values are fp32, or rounded to dtype. Streamed:
        memory for a piece of a tensor. Several ranks: all call."""
        save_weights(self.front, self.module, os.fspath(path), max_shard_size, dtype, self.ranks.rank == 0)

    def save_pretrained(self, save_directory: str, max_shard_size: Union[int, str] = "5GB", **options: Any) -> Any:
        """As the module's own, which transformers' from_pretrained reads; streamed as save_weights does, unless there
        are other options, or the module is none of transformers' models. Several ranks: all call."""
        config = config_of(self.module)
        if options or config is None or not hasattr(type(self.module), "base_model_prefix"):  # not peft's
            if not hasattr(self.module, "save_pretrained"):
                raise Refused("save_pretrained: %s has none; model.save_weights(path) writes safetensors, and "
                              "model.save_checkpoint(folder) all that resuming needs" % type(self.module).__name__)
            return self.module.save_pretrained(save_directory, max_shard_size=max_shard_size, **options)
        folder = os.fspath(save_directory)
        if self.ranks.rank == 0:
            os.makedirs(folder, exist_ok=True)
            config.save_pretrained(folder)
            if getattr(self.module, "generation_config", None) is not None:
                self.module.generation_config.save_pretrained(folder)
        self.save_weights(os.path.join(folder, "model.safetensors"), max_shard_size)
        return None

    def client_state_from(self, function: Callable[[], Optional[Dict[str, Any]]]) -> None:
        """Have the checkpoints of train.save_interval hold the client_state that this function returns."""
        self.checkpoints.take_client_state_from(function)

    def close(self) -> None:
        """Free memory and files; the model is unusable afterwards. Several ranks: all call. An engine without
        references is closed automatically, those of several ranks at the end of the program."""
        self.checkpoints.finish()
        self.client.close()
        if self.output_lock is not None:
            self.output_lock.release()
        self.ranks.close()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        report_failure_to_ranks()
        self.close()

    def check_modules(self) -> None:
        """Refuse modules that were added after initialize_engine: they would not be trained."""
        for name, module in self.module.named_modules():
            if module._parameters and type(module._parameters) is not _Parameters:
                raise Refused("module %s was added after initialize_engine; create it in model_func, adapters too "
                              "(get_peft_model)" % name)

    # ---- as the module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """With the names of the module, as in state_dict."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_buffers(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_is_accelerate_prepared" and name not in self.__dict__:
            raise Refused("accelerate.prepare of an engine (Trainer calls it): use "
                          "patrickstar.integrations.Accelerator(patrickstar_plugin=PatrickStarPlugin(config)), or "
                          "patrickstar.Trainer (doc/trainer.md)")
        if "module" not in self.__dict__.get("_modules", {}) or name in self.__dict__ or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)

    def register_parameter(self, name: str, param: Any) -> None:
        self.module.register_parameter(name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        self.module.register_buffer(name, tensor, persistent)

    def add_module(self, name: str, module: Any) -> None:
        self.module.add_module(name, module)

    def _replicate_for_data_parallel(self) -> Any:
        raise Refused("data_parallel of an engine: " + ONE_PROCESS_A_GPU)

    def __deepcopy__(self, memo: Any) -> Any:
        raise Refused("deepcopy of an engine: copy its state_dict()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Refused("pickle of an engine: save its state_dict()")


@functools.lru_cache(maxsize=None)  # once a process
def _empty_autograd_at_exit() -> None:
    """A backward pass that ends by an exception leaves the remaining nodes in a queue of its thread, with hooks of
    saved tensors. PyTorch clears that queue in the thread's next backward pass; or when the thread ends, which for the
    main thread is after the interpreter, while these hooks are Python objects: a finished program would crash (PyTorch
    2.15, also with plain hooks)."""
    process = os.getpid()

    def empty() -> None:
        if os.getpid() == process:
            with torch.inference_mode(False), torch.enable_grad():
                torch.zeros((), device="cpu", requires_grad=True).mul(1).backward()

    atexit.register(empty)


ONE_PROCESS_A_GPU = "have a process for each GPU, by torchrun; initialize_engine shares chunks between them"
