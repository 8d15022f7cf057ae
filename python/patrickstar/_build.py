"""Construction: parameters are created in memory of the library, so that a model larger than memory can be built.

While model_func, or the block of patrickstar.init, runs, parameters registered in a module's _parameters move into the
library's staging file, a file without a name whose pages may be written back (ps_client_add, ps_client_release), and
stay ordinary parameters that model_func may initialise, read, copy, tie, or fill from a checkpoint (from_pretrained).
Parameters on torch.device("meta"), also those of accelerate's init_empty_weights, need no memory until the end of
construction, when their modules initialise them (_meta.py). A model built elsewhere is adopted, one parameter after the
other. Buffers stay PyTorch's.

A module of patrickstar.init is pending between the end of the block and initialize_engine: an ordinary one in memory of
the staging file, whose new parameters go there, too. Nothing trains it meanwhile."""
import contextlib
import ctypes
import functools
import gc
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
import torch.nn as nn

from ._client import DTYPES, Client
from ._front import Front
from ._library import Refused
from ._meta import Unset, blank
from ._parked import Lost, Parked
from ._precision import keeps_fp32
from ._slot import Slot
from ._torch import ParametersDict, no_torch_function, storage_address

_RELEASE_BYTES = 32 << 20  # bytes of the staging file in memory before the least recently used parameters may be
# written back

_scopes: List[bool] = []  # of torch_scope: do_allreduce


@contextlib.contextmanager
def torch_scope(do_allreduce: bool = True) -> Iterator[None]:
    """Within model_func: parameters that are created here stay out of chunks, as fp32 in device memory; floating-point
    inputs of their modules are cast to fp32. The optimizer updates them as all others.

    do_allreduce=False, for parts that differ between ranks, is for one rank; with several it is refused."""
    _scopes.append(do_allreduce)
    try:
        yield
    finally:
        _scopes.pop()


class _Staged:
    """A tensor in the staging file, and its parameter."""

    def __init__(self, number: int, address: int, buffer: Any, tensor: torch.Tensor, is_unmanaged: bool) -> None:
        self.number, self.address, self.n_bytes = number, address, ctypes.sizeof(buffer)
        self.shape, self.dtype, self.is_unmanaged = tensor.shape, tensor.dtype, is_unmanaged
        self.buffer = weakref.ref(buffer)  # dead after the last tensor on that memory


class StagedParameter(nn.Parameter):
    """A parameter during construction: an ordinary one whose accesses are recorded."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in args:
            if type(value) is StagedParameter:
                value._ps_builder.touch(value)
        if getattr(func, "__name__", "") == "__set__" and func.__self__.__name__ == "data":
            return args[0]._ps_builder.set_data(args[0], args[1])
        with no_torch_function():
            return func(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> nn.Parameter:
        """A plain one; a module that is built now takes it."""
        with no_torch_function():
            copied = memo[id(self)] = nn.Parameter(self.data.clone(), self.requires_grad)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        with no_torch_function():
            return nn.Parameter(self.data, self.requires_grad).__reduce_ex__(protocol)


_n_patches = 0  # builders with staged parameters
_new_parameter = nn.Parameter.__new__


def _new_plain_parameter(cls: type, data: Any = None, *args: Any, **kwargs: Any) -> nn.Parameter:
    """Parametrizations, and type(parameter)(...), of a staged parameter create a plain one."""
    with no_torch_function():
        return _new_parameter(nn.Parameter if cls is StagedParameter else cls,
                              data.data if type(data) is StagedParameter else data, *args, **kwargs)


def _count_patches(change: int) -> None:
    global _n_patches, _new_parameter
    if _n_patches == 0:
        _new_parameter = nn.Parameter.__new__
        nn.Parameter.__new__ = _new_plain_parameter  # type: ignore[method-assign,assignment]
    _n_patches += change
    if _n_patches == 0:
        nn.Parameter.__new__ = _new_parameter  # type: ignore[method-assign]


class _Parameters(ParametersDict):
    """module._parameters."""

    def __init__(self, builder: "Builder") -> None:
        super().__init__()
        self.builder = builder

    def __setitem__(self, name: str, param: Optional[nn.Parameter]) -> None:
        if self.builder.is_open:
            self.builder.take(param)
        elif param is not None and type(param) is not Parked and getattr(param, "_ps", None) is None and (
                not self.builder.has_failed):
            raise Refused("parameter %s is registered or replaced after initialize_engine; create it in model_func, "
                          "and leave out what replaces parameters by tensors: FSDP, functional_call, "
                          "torch.export, load_state_dict(assign=True)" % name)
        super().__setitem__(name, param)

    def __deepcopy__(self, memo: Any) -> "_Parameters":
        import copy
        is_created = self.builder.is_creating or not self.builder.is_open
        new = memo[id(self)] = _Parameters(self.builder) if is_created else ParametersDict()
        for name, param in self.items():
            new[name] = copy.deepcopy(param, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.builder.is_open or self.builder.has_failed:
            return ParametersDict, (list(self.items()),)
        raise Refused("pickle of a model in chunks: save model.state_dict()")


_creating: "Optional[Builder]" = None  # whose create() is running


def refuse_nesting() -> None:
    if _creating is not None:
        raise Refused("patrickstar.init within the block of another one, or within a model_func: a block builds one "
                      "model; begin the next one after its end")


def _refuse_gradient(_: torch.Tensor) -> None:
    raise Refused("backward() of a module that was built by patrickstar.init and is not in chunks yet: "
                  "model, optimizer = initialize_engine(model=model) puts it there")


def builder_of(model: nn.Module) -> "Optional[Builder]":
    """That of a pending module, or of one that its block still builds."""
    found: "Optional[Builder]" = None
    for name, module in model.named_modules():
        builder = getattr(module._parameters, "builder", None)
        if builder is None or not builder.is_open:
            continue
        if found not in (None, builder):
            raise Refused("%s was built in another block of patrickstar.init than modules before it: build the model "
                          "in one block" % name)
        found = builder
    if found is not None and found.is_creating:
        raise Refused("initialize_engine within the block of patrickstar.init: call it after the end of the block")
    return found


class Builder:
    """For one model, until its front exists: then done(), or undo() after a failure."""

    def __init__(self, client: Client, n_ranks: int, owner: Any = None) -> None:
        """owner: what else the engine is made of, which lives as long as this (runtime/_start.py)."""
        self.client, self.n_ranks, self.owner = client, n_ranks, owner
        self.is_open = self.has_failed = False  # is_open: new parameters of modules are taken
        self.is_creating = False  # new modules, too
        self._staged: Dict[int, _Staged] = {}  # by number
        self._by_address: Dict[int, _Staged] = {}
        self._touched: Dict[int, _Staged] = {}  # since their last release; in the order of their last access
        self._touched_bytes = 0
        self._shared: List[Tuple[int, int]] = []  # id of a parameter; number of the one it shares memory with
        self._params: List["weakref.ref[nn.Parameter]"] = []  # parameters taken; after finish: those in the model
        self._adopted: List[Tuple[nn.Module, Dict[str, Any]]] = []  # modules, and their own _parameters
        self._replaced: List[Tuple[Dict[str, Any], str, torch.Tensor]] = []  # buffers on meta, by their dictionaries
        self._created: List["weakref.ref[nn.Module]"] = []
        self._pending: List[Any] = []  # handles of the hooks of wait()
        self._unpatch: Any = None

    @contextlib.contextmanager
    def create(self) -> Iterator[None]:
        """Parameters of modules built meanwhile are created in the staging file; and, until close(), parameters that
        these modules get."""
        global _creating
        init, outer, reference = nn.Module.__init__, _creating, weakref.ref(self)

        @functools.wraps(init)
        def patched_init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            init(module, *args, **kwargs)
            builder = reference()
            assert builder is not None
            module.__dict__["_parameters"] = _Parameters(builder)
            builder._created.append(weakref.ref(module))

        if self._unpatch is None:
            _count_patches(1)
            self._unpatch = weakref.finalize(self, _count_patches, -1)
            self._unpatch.atexit = False
        nn.Module.__init__, _creating = patched_init, self  # type: ignore[method-assign]
        self.is_open = self.is_creating = True
        try:
            yield
        finally:
            nn.Module.__init__, _creating = init, outer  # type: ignore[method-assign]
            self.is_creating = False

    def close(self) -> None:
        """The model is complete: modules get no further parameters."""
        self.is_open = False
        if self._unpatch is not None:
            self._unpatch()

    # ---- a module that is built, and not in chunks yet

    def wait(self) -> None:
        """Refuse gradients until resume()."""
        if not any(reference() is not None for reference in self._created):
            raise Refused("patrickstar.init: no module was built in its block; build the model there, and keep it in a "
                          "variable")
        for param in _alive(self._params):
            if param.requires_grad:
                self._pending.append(param.register_hook(_refuse_gradient))

    def resume(self, model: nn.Module) -> None:
        """The model is to be adopted. It must have all modules of the block that are still in use."""
        gc.collect()
        mine = {id(param) for param in model.parameters()}
        modules = set(model.modules())
        for module in [reference() for reference in self._created]:
            if module is None or module in modules:
                continue
            others = [param for param in module._parameters.values() if type(param) is StagedParameter]
            if any(id(param) not in mine for param in others):
                raise Refused("a %s that was built in the block of patrickstar.init is not part of the model, %s: give "
                              "each model a block of its own, build what stays PyTorch's outside of it, and delete "
                              "(del) modules that are not needed any more"
                              % (type(module).__name__, type(model).__name__))
        for handle in self._pending:
            handle.remove()
        self._pending.clear()

    # ---- parameters in the staging file

    def take(self, param: Optional[nn.Parameter]) -> None:
        """Move it into the staging file, unless it needs no memory there or stays PyTorch's."""
        if type(param) is Parked:
            raise Refused("parameter %s is in the chunks of an engine already: build the module again for each "
                          "initialize_engine; load_state_dict copies the values of another one" % param._ps.name)
        if type(param) is StagedParameter and param._ps_builder is not self:
            raise Refused("a parameter of shape %s was built in the block of patrickstar.init: give initialize_engine "
                          "that module itself (model=), not a function" % (tuple(param.shape),))
        if param is None or type(param) is StagedParameter or nn.parameter.is_lazy(param) or (
                param.device.type == "meta"):
            return
        if param.numel() == 0:
            return
        if type(param) is Lost:
            param.refuse()
        if param.is_complex():
            raise Refused("a parameter of complex numbers, %s: keep its parts in two parameters" % _describe(param))
        if not param.is_floating_point():
            return
        if type(param) is not nn.Parameter:
            raise Refused("a parameter of class %s: chunks hold plain torch.nn.Parameters" % type(param).__name__)
        if param.layout != torch.strided:
            raise Refused("a sparse parameter, %s: chunks are dense; call .to_dense()" % _describe(param))
        if param.device.type != "cpu":
            raise Refused("%s: model_func builds on the processor (or on meta); chunks move parameters to where they "
                          "are used" % _describe(param))
        if _scopes and not _scopes[-1] and self.n_ranks > 1:
            raise Refused("torch_scope(do_allreduce=False) with %d ranks: gradients are averaged over all of them"
                          % self.n_ranks)
        self._move(param, param.detach(), bool(_scopes))
        param.grad = None
        param.__class__ = StagedParameter
        param._ps_builder = self
        self._params.append(weakref.ref(param))

    def _move(self, param: nn.Parameter, values: torch.Tensor, is_unmanaged: bool) -> None:
        if values.dtype not in DTYPES:
            raise Refused("%s: chunks hold float32, bfloat16 and float16; call .float()" % _describe(values))
        number, address = self.client.add(tuple(values.shape), values.dtype, is_unmanaged)
        buffer = _memory(address, values.numel() * values.element_size())
        weakref.finalize(buffer, self._forget, number).atexit = False
        home = torch.frombuffer(buffer, dtype=values.dtype).view(values.shape)
        staged = _Staged(number, address, buffer, home, is_unmanaged)
        self._staged[number] = self._by_address[address] = staged
        home.copy_(values)
        param.data = home
        param.__dict__["_ps_staged"] = staged
        self.touch(param)

    def _forget(self, number: int) -> None:
        """The last tensor on its memory was freed: a head before it is tied, a layer that was copied."""
        staged = self._staged.get(number)
        if staged is not None:
            del self._staged[number], self._by_address[staged.address]
            if self._touched.pop(number, None):
                self._touched_bytes -= staged.n_bytes
            self.client.drop(number)

    def touch(self, param: nn.Parameter) -> None:
        staged = param.__dict__["_ps_staged"]
        if self._touched.pop(staged.number, None) is None:
            self._touched_bytes += staged.n_bytes
        self._touched[staged.number] = staged
        while self._touched_bytes > _RELEASE_BYTES and len(self._touched) > 1:
            oldest = self._touched.pop(next(iter(self._touched)))
            self._touched_bytes -= oldest.n_bytes
            self.client.release(oldest.number)

    def set_data(self, param: StagedParameter, values: torch.Tensor) -> None:
        """param.data = values, while the model is built."""
        staged = param.__dict__["_ps_staged"]
        if values is param:
            return
        with no_torch_function(), torch.no_grad():
            if values.device.type != "cpu" or (values.shape, values.dtype) != (staged.shape, staged.dtype) or (
                    not _lies_in(param, staged)):
                self._move_again(param, values)
                return
            self._note_sharing(param, values)
            torch.Tensor.copy_(param.data, values)

    def _move_again(self, param: StagedParameter, values: torch.Tensor) -> None:
        """Moves it to memory of another size, or back to the staging file after a change that bypassed set_data."""
        if values.device.type != "cpu":
            raise Refused("param.data = a tensor on %s: model_func builds on the processor" % values.device)
        self._note_sharing(param, values)
        is_unmanaged = param.__dict__["_ps_staged"].is_unmanaged
        param.__class__ = nn.Parameter
        self._move(param, values, is_unmanaged)
        param.__class__ = StagedParameter

    def _note_sharing(self, param: StagedParameter, values: torch.Tensor) -> None:
        other = self._by_address.get(storage_address(values))
        if other is not None and other is not param.__dict__["_ps_staged"]:
            self._shared.append((id(param), other.number))  # a copy suffices unless both are in the model at the end

    # ---- the end of construction

    @torch.no_grad()
    def adopt(self, model: nn.Module) -> None:
        """Take parameters built elsewhere, and materialise those on meta."""
        real: Dict[int, Tuple[nn.Parameter, nn.Parameter]] = {}  # by id of the one on meta, kept alive meanwhile
        unset = Unset()
        self._expect(model)
        for name, module in model.named_modules():
            if getattr(module._parameters, "builder", None) is not self:
                mine = _Parameters(self)
                self._adopted.append((module, module._parameters))
                for key, param in module._parameters.items():
                    mine[key] = param
                module.__dict__["_parameters"] = mine
            for key, param in list(module._parameters.items()):
                if nn.parameter.is_lazy(param):
                    raise Refused("%s has parameters without a shape (lazy modules): have model_func run a dummy batch"
                                  % (name or "the model"))
                self.take(param)  # a lazy one has its shape only now
                if param is not None and param.device.type == "meta":
                    if id(param) not in real:
                        real[id(param)] = param, nn.Parameter(blank(param), param.requires_grad)
                    setattr(module, key, real[id(param)][1])  # which nn.LSTM notices
                    unset.add(module, key, real[id(param)][1])
            for key, buffer in list(module._buffers.items()):
                if buffer is not None and buffer.device.type == "meta":
                    self._replaced.append((module._buffers, key, buffer))
                    module._buffers[key] = blank(buffer)
                    unset.add(module, key, module._buffers[key])
        if unset:
            unset.initialise(model)

    def _expect(self, model: nn.Module) -> None:
        """A lower bound of the model's chunks; parameters that may stay outside of chunks do not count."""
        elements = [0, 0]  # trained, frozen
        for param in model.parameters():
            if nn.parameter.is_lazy(param) or not param.is_floating_point():
                continue
            staged = param.__dict__.get("_ps_staged")
            may_be_unmanaged = param.dim() < 2 if staged is None else staged.is_unmanaged
            if not may_be_unmanaged:
                elements[not param.requires_grad] += param.numel()
        self.client.expect(*elements)

    @torch.no_grad()
    def finish(self, model: nn.Module, dtype: torch.dtype) -> Front:
        """Names, chunks, and the front: parameters are parked from now on."""
        fp32_norms = self._keep_fp32(model, dtype)
        names = _names(model)
        for param, _ in names:
            if not _lies_in(param, param.__dict__["_ps_staged"]):
                self._move_again(param, param.data)  # param.set_, and changes that bypass PyTorch's functions
        self._copy_unused_parameters(names)
        self._check_that_some_lie_in_chunks(names)
        self._check_that_none_share(names)
        places = []
        for param, name in names:
            staged = param.__dict__["_ps_staged"]
            param.__class__ = nn.Parameter
            self.client.name(staged.number, name, not param.requires_grad)
            del self._staged[staged.number]  # it stays when its memory is freed
            param.data = torch.full((), float("nan"), dtype=dtype).expand(param.shape)
            places.append((param, name, staged))
        self._check_that_no_views_remain(places)
        _give_freed_memory_back()
        self.client.begin()
        front = Front(self.client)
        front.fp32_norms.update(fp32_norms)
        for param, name, staged in places:
            slot = Slot(front, staged.number, name, param, torch.float32 if staged.is_unmanaged else self.client.dtype,
                        staged.is_unmanaged, self.client.device)
            front.slots.append(slot)
            front.saved.placeholders[slot.placeholder_element.data_ptr()] = slot
            param.data = slot.placeholder
            param._ps = slot
            if self.client.get_tensor_info(slot.number).is_frozen:
                param.requires_grad_(False)  # train.freeze
            param.__class__ = Parked
        return front

    def _keep_fp32(self, model: nn.Module, dtype: torch.dtype) -> List[nn.Module]:
        """Keep parameters out of chunks if their modules need that. Returns these modules."""
        fp32_norms = []
        for module in model.modules():
            params = [param for param in module._parameters.values() if type(param) is StagedParameter]
            in_scope = any(param.__dict__["_ps_staged"].is_unmanaged for param in params)
            if in_scope or not keeps_fp32(module, dtype):
                continue
            fp32_norms.append(module)
            for param in params:
                param.__dict__["_ps_staged"].is_unmanaged = True
                self._move_again(param, param.data)
        return fp32_norms

    def done(self) -> None:
        """Ends construction."""
        for param in _alive(self._params):
            del param.__dict__["_ps_staged"], param.__dict__["_ps_builder"]
        self._drop_references()

    def _drop_references(self) -> None:
        self._params.clear()
        self._created.clear()
        self._pending.clear()
        self._adopted.clear()
        self._replaced.clear()

    @torch.no_grad()
    def undo(self, model: Optional[nn.Module], is_restored: bool = True) -> bool:
        """Before done(): make parameters plain ones with their values, and modules ordinary ones, as if there had been
        no builder. Values that have moved into chunks are lost, and with is_restored=False all, as the model may be
        larger than memory. Returns whether the staging file is still referenced."""
        self.has_failed = True
        self.close()
        is_kept = False
        names = {} if model is None else {id(param): name for name, param in model.named_parameters()}
        for param in _alive(self._params):
            staged = param.__dict__["_ps_staged"]
            is_lost = not (is_restored and self.client.still_has_values_of(staged.number))
            is_parked = staged.number not in self._staged  # set by finish
            if is_lost:
                _lose(param, names.get(id(param)) or "of shape %s" % (tuple(staged.shape),), staged)
                continue
            self._make_plain(param)
            if is_parked:
                param.data = torch.frombuffer(_memory(staged.address, staged.n_bytes),
                                              dtype=staged.dtype).view(staged.shape).clone()
                if staged.buffer() is None:
                    self.client.give_back(staged.number, staged.address, staged.n_bytes)
                else:
                    is_kept = True
        for module, parameters in self._adopted:
            module.__dict__["_parameters"] = parameters
        for buffers, key, buffer in self._replaced:
            buffers[key] = buffer
        created = [module for module in [reference() for reference in self._created] if module is not None]
        for module in [*created, *(model.modules() if model is not None else ())]:
            if type(module._parameters) is _Parameters and module._parameters.builder is self:
                module.__dict__["_parameters"] = ParametersDict(module._parameters)
        self._drop_references()
        gc.collect()
        return is_kept or bool(self._staged)

    def _make_plain(self, param: nn.Parameter) -> None:
        """A plain parameter from now on. One that is not parked gets separate memory."""
        param.__class__ = nn.Parameter
        staged = param.__dict__.pop("_ps_staged")
        param.__dict__.pop("_ps_builder")
        if staged.number in self._staged:
            param.data = param.data.clone()

    def _copy_unused_parameters(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        """Parameters that are not in the model, but still referenced, get separate memory."""
        gc.collect()
        mine = {id(param) for param, _ in names}
        for param in _alive(self._params):
            if id(param) not in mine:
                self._make_plain(param)
        self._params = [weakref.ref(param) for param, _ in names]

    def _check_that_some_lie_in_chunks(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        if not all(param.__dict__["_ps_staged"].is_unmanaged for param, _ in names):
            return
        if not names:
            raise Refused("the model has no floating-point parameter: there is nothing to train in chunks")
        raise Refused("the model has no parameter for chunks: all %d, the first of which is %s, stay outside of them as "
                      "fp32 (BatchNorm and InstanceNorm with bf16.enabled or fp16.enabled, and parameters of a "
                      "torch_scope). Have other modules in the model too, leave bf16.enabled and fp16.enabled out, "
                      "or create parameters outside of torch_scope" % (len(names), names[0][1]))

    def _check_that_none_share(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        name_of = {param.__dict__["_ps_staged"].number: name for param, name in names}
        for param, name in names:
            for other in [number for key, number in self._shared if key == id(param)]:
                if other in name_of:
                    raise Refused("%s.data = %s.data shares memory: tie them by assigning the parameter "
                                  "itself (module.weight = other.weight), or give it a copy (.clone())"
                                  % (name, name_of[other]))

    def _check_that_no_views_remain(self, places: List[Tuple[nn.Parameter, str, _Staged]]) -> None:
        gc.collect()
        for _, name, staged in places:
            if staged.buffer() is not None:
                raise Refused("a tensor on parameter %s (its .data, a view, model.state_dict()) is still referenced; "
                              "its values move now: keep a copy instead (.clone())" % name)
        for staged in self._staged.values():
            raise Refused("a tensor of shape %s on a parameter that is no longer in the model is still referenced: "
                          "keep a copy instead (.clone())" % (tuple(staged.shape),))


def _names(model: nn.Module) -> List[Tuple[nn.Parameter, str]]:
    """The parameters in the staging file, each with the first of its names."""
    names: Dict[int, Tuple[nn.Parameter, str]] = {}
    for prefix, module in model.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise Refused("%s has sparse gradients: build it with sparse=False" % (prefix or "the model"))
        for key, param in module._parameters.items():
            if type(param) is StagedParameter:
                names.setdefault(id(param), (param, prefix + "." * bool(prefix) + key))
    return list(names.values())


def _lies_in(param: nn.Parameter, staged: _Staged) -> bool:
    values = param.data
    return (values.data_ptr(), values.shape, values.dtype) == (staged.address, staged.shape, staged.dtype) and (
        values.is_contiguous())


def _lose(param: nn.Parameter, name: str, staged: _Staged) -> None:
    param.__class__ = nn.Parameter
    for key in ("_ps", "_ps_staged", "_ps_builder"):
        param.__dict__.pop(key, None)
    param.data = torch.full((), float("nan"), dtype=staged.dtype).expand(staged.shape)
    param._ps_name = name
    param.__class__ = Lost


def _alive(params: List["weakref.ref[nn.Parameter]"]) -> List[nn.Parameter]:
    return [param for param in [reference() for reference in params] if param is not None]


def _memory(address: int, n_bytes: int) -> Any:
    return (ctypes.c_char * n_bytes).from_address(address)


def _give_freed_memory_back() -> None:
    """Memory that malloc keeps after loading and initialising would count as the framework's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _describe(tensor: torch.Tensor) -> str:
    return "%s of shape %s on %s" % (tensor.dtype, tuple(tensor.shape), tensor.device)
