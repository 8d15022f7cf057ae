"""Construction: parameters are born in memory that the library gives, so that a model larger than memory can be built.

While model_func runs, whatever is registered in a module's _parameters moves into the library's nursery, a file without
a name whose pages may leave (ps_client_add, ps_client_rest), and stays an ordinary parameter that model_func may
initialise, read, copy, tie, or fill from a checkpoint (from_pretrained). Parameters on torch.device("meta"), also those
of accelerate's init_empty_weights, take no memory until then, and are initialised by their modules in the end. A model
that was built elsewhere is adopted, parameter after parameter. Buffers stay PyTorch's."""
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
from ._parked import Lost, Parked
from ._precision import keeps_fp32
from ._slot import Slot
from ._torch import ParametersDict, no_torch_function, storage_address

_REST_BYTES = 32 << 20  # so many bytes of the nursery may be in memory before those touched least recently may leave

_scopes: List[bool] = []  # of torch_scope: do_allreduce


@contextlib.contextmanager
def torch_scope(do_allreduce: bool = True) -> Iterator[None]:
    """Within model_func: parameters that are created here stay out of chunks, as fp32 in device memory; floating-point
    inputs of their modules are cast to fp32. The optimizer has them as all others.

    do_allreduce=False, for parts that differ between ranks, is for one rank; with several it is refused."""
    _scopes.append(do_allreduce)
    try:
        yield
    finally:
        _scopes.pop()


class _Nursling:
    """A tensor in the nursery, and the parameter that lies there."""

    def __init__(self, number: int, address: int, buffer: Any, tensor: torch.Tensor, is_apart: bool) -> None:
        self.number, self.address, self.n_bytes = number, address, ctypes.sizeof(buffer)
        self.shape, self.dtype, self.is_apart = tensor.shape, tensor.dtype, is_apart
        self.buffer = weakref.ref(buffer)  # dies with the last tensor on that memory


class Nursed(nn.Parameter):
    """A parameter while the model is built: an ordinary one, whose touches are seen."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in args:
            if type(value) is Nursed:
                value._ps_builder.touch(value)
        if getattr(func, "__name__", "") == "__set__" and func.__self__.__name__ == "data":
            return args[0]._ps_builder.set_data(args[0], args[1])
        with no_torch_function():
            return func(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with no_torch_function():
            return nn.Parameter(self.data, self.requires_grad).__reduce_ex__(protocol)


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
                          "and leave out what puts tensors in the place of parameters: FSDP, functional_call, "
                          "torch.export, load_state_dict(assign=True)" % name)
        super().__setitem__(name, param)

    def __deepcopy__(self, memo: Any) -> "_Parameters":
        import copy
        new = memo[id(self)] = _Parameters(self.builder)
        for name, param in self.items():
            new[name] = copy.deepcopy(param, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.builder.is_open or self.builder.has_failed:
            return ParametersDict, (list(self.items()),)
        raise Refused("pickle of a model in chunks: save model.state_dict()")


class Builder:
    """Of one model, until its front is there: then done(), or undo() where anything has failed before."""

    def __init__(self, client: Client, n_ranks: int) -> None:
        self.client, self.n_ranks = client, n_ranks
        self.is_open = self.has_failed = False
        self._nurslings: Dict[int, _Nursling] = {}  # by number
        self._by_address: Dict[int, _Nursling] = {}
        self._touched: Dict[int, _Nursling] = {}  # since they were told to rest; in the order of their last touch
        self._touched_bytes = 0
        self._shared: List[Tuple[int, int]] = []  # id of a parameter, and the number whose memory it was to share
        self._params: List["weakref.ref[nn.Parameter]"] = []  # that were taken; of finish: those in the model
        self._adopted: List[Tuple[nn.Module, Dict[str, Any]]] = []  # modules, and their own _parameters
        self._replaced: List[Tuple[Dict[str, Any], str, torch.Tensor]] = []  # buffers on meta, by their dictionaries

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Parameters of modules that are built meanwhile are born in the nursery."""
        builder, init, new = self, nn.Module.__init__, nn.Parameter.__new__

        @functools.wraps(init)
        def patched_init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            init(module, *args, **kwargs)
            module.__dict__["_parameters"] = _Parameters(builder)

        def patched_new(cls: type, data: Any = None, *args: Any, **kwargs: Any) -> nn.Parameter:
            # Also of a parameter (parametrizations), and by type(parameter)(...), a new parameter is a plain one.
            with no_torch_function():
                return new(nn.Parameter if cls is Nursed else cls, data.data if type(data) is Nursed else data, *args,
                           **kwargs)

        nn.Module.__init__, nn.Parameter.__new__, self.is_open = patched_init, patched_new, True
        try:
            yield
        finally:
            nn.Module.__init__, nn.Parameter.__new__, self.is_open = init, new, False

    # ---- parameters in the nursery

    def take(self, param: Optional[nn.Parameter]) -> None:
        """Move it into the nursery, unless it takes no memory there or is PyTorch's."""
        if type(param) is Parked:
            raise Refused("parameter %s lies in the chunks of an engine already: build the module anew for each "
                          "initialize_engine; load_state_dict gives it the values of another one" % param._ps.name)
        if param is None or type(param) is Nursed or nn.parameter.is_lazy(param) or param.device.type == "meta":
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
            raise Refused("%s: model_func builds on the processor (or on meta); chunks bring parameters to where they "
                          "are computed with" % _describe(param))
        if _scopes and not _scopes[-1] and self.n_ranks > 1:
            raise Refused("torch_scope(do_allreduce=False) with %d ranks: gradients are averaged over all of them"
                          % self.n_ranks)
        self._move(param, param.detach(), bool(_scopes))
        param.grad = None
        param.__class__ = Nursed
        param._ps_builder = self
        self._params.append(weakref.ref(param))

    def _move(self, param: nn.Parameter, values: torch.Tensor, is_apart: bool) -> None:
        if values.dtype not in DTYPES:
            raise Refused("%s: chunks hold float32, bfloat16 and float16; call .float()" % _describe(values))
        number, address = self.client.add(tuple(values.shape), values.dtype, is_apart)
        buffer = _memory(address, values.numel() * values.element_size())
        weakref.finalize(buffer, self._forget, number).atexit = False
        home = torch.frombuffer(buffer, dtype=values.dtype).view(values.shape)
        nursling = _Nursling(number, address, buffer, home, is_apart)
        self._nurslings[number] = self._by_address[address] = nursling
        home.copy_(values)
        param.data = home
        param.__dict__["_ps_nursling"] = nursling
        self.touch(param)

    def _forget(self, number: int) -> None:
        """The last tensor on its memory is gone: a head before it is tied, a layer that was copied."""
        nursling = self._nurslings.get(number)
        if nursling is not None:
            del self._nurslings[number], self._by_address[nursling.address]
            if self._touched.pop(number, None):
                self._touched_bytes -= nursling.n_bytes
            self.client.drop(number)

    def touch(self, param: nn.Parameter) -> None:
        nursling = param.__dict__["_ps_nursling"]
        if self._touched.pop(nursling.number, None) is None:
            self._touched_bytes += nursling.n_bytes
        self._touched[nursling.number] = nursling
        while self._touched_bytes > _REST_BYTES and len(self._touched) > 1:
            oldest = self._touched.pop(next(iter(self._touched)))
            self._touched_bytes -= oldest.n_bytes
            self.client.rest(oldest.number)

    def set_data(self, param: Nursed, values: torch.Tensor) -> None:
        """param.data = values, while the model is built."""
        nursling = param.__dict__["_ps_nursling"]
        if values is param:
            return
        with no_torch_function(), torch.no_grad():
            if values.device.type != "cpu" or (values.shape, values.dtype) != (nursling.shape, nursling.dtype) or (
                    not _lies_in(param, nursling)):
                self._move_again(param, values)
                return
            self._note_sharing(param, values)
            torch.Tensor.copy_(param.data, values)

    def _move_again(self, param: Nursed, values: torch.Tensor) -> None:
        """To memory of another size, or back from where it was taken past set_data."""
        if values.device.type != "cpu":
            raise Refused("param.data = a tensor on %s: model_func builds on the processor" % values.device)
        self._note_sharing(param, values)
        is_apart = param.__dict__["_ps_nursling"].is_apart
        param.__class__ = nn.Parameter
        self._move(param, values, is_apart)
        param.__class__ = Nursed

    def _note_sharing(self, param: Nursed, values: torch.Tensor) -> None:
        other = self._by_address.get(storage_address(values))
        if other is not None and other is not param.__dict__["_ps_nursling"]:
            self._shared.append((id(param), other.number))  # a copy does unless both are in the model in the end

    # ---- the end of construction

    @torch.no_grad()
    def adopt(self, model: nn.Module) -> None:
        """Take what was built elsewhere, and make real what was built on meta."""
        real: Dict[int, Tuple[nn.Parameter, nn.Parameter]] = {}  # by id of that on meta, which must live meanwhile
        built: Dict[nn.Module, str] = {}
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
                        new = nn.Parameter(torch.zeros(param.shape, dtype=param.dtype), param.requires_grad)
                        real[id(param)] = param, new
                    module._parameters[key] = real[id(param)][1]
                    built[module] = name
            for key, buffer in list(module._buffers.items()):
                if buffer is not None and buffer.device.type == "meta":
                    self._replaced.append((module._buffers, key, buffer))
                    module._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype)
                    built[module] = name
        if built and hasattr(model, "initialize_weights"):  # transformers: those that were not loaded
            model.initialize_weights()
            return
        for module, name in built.items():
            if not hasattr(module, "reset_parameters"):
                raise Refused("%s was built on meta, and its class %s has no reset_parameters to initialise it by: "
                              "build it on the processor" % (name or "the model", type(module).__name__))
            module.reset_parameters()

    def _expect(self, model: nn.Module) -> None:
        """What the model will take in chunks at least; parameters that may stay outside of chunks do not count."""
        elements = [0, 0]  # trained, frozen
        for param in model.parameters():
            if nn.parameter.is_lazy(param) or not param.is_floating_point():
                continue
            nursling = param.__dict__.get("_ps_nursling")
            may_be_apart = param.dim() < 2 if nursling is None else nursling.is_apart
            if not may_be_apart:
                elements[not param.requires_grad] += param.numel()
        self.client.expect(*elements)

    @torch.no_grad()
    def finish(self, model: nn.Module, dtype: torch.dtype) -> Front:
        """Names, chunks, and the front: parameters are parked from now on."""
        fp32_norms = self._keep_fp32(model, dtype)
        names = _names(model)
        for param, _ in names:
            if not _lies_in(param, param.__dict__["_ps_nursling"]):
                self._move_again(param, param.data)  # param.set_, or where no function of PyTorch's is called
        self._let_others_go(names)
        self._check_that_some_lie_in_chunks(names)
        self._check_that_none_share(names)
        places = []
        for param, name in names:
            nursling = param.__dict__["_ps_nursling"]
            param.__class__ = nn.Parameter
            self.client.name(nursling.number, name, not param.requires_grad)
            del self._nurslings[nursling.number]  # it stays when its memory is let go
            param.data = torch.full((), float("nan"), dtype=dtype).expand(param.shape)
            places.append((param, name, nursling))
        self._check_that_nobody_looks(places)
        _give_freed_memory_back()
        self.client.begin()
        front = Front(self.client)
        front.fp32_norms.update(fp32_norms)
        for param, name, nursling in places:
            slot = Slot(front, nursling.number, name, param, torch.float32 if nursling.is_apart else self.client.dtype,
                        nursling.is_apart, self.client.device)
            front.slots.append(slot)
            front.saved.holes[slot.hole_element.data_ptr()] = slot
            param.data = slot.hole
            param._ps = slot
            if self.client.get_tensor_info(slot.number).is_frozen:
                param.requires_grad_(False)  # train.freeze
            param.__class__ = Parked
        return front

    def _keep_fp32(self, model: nn.Module, dtype: torch.dtype) -> List[nn.Module]:
        """Have parameters stay out of chunks where their modules need that. Which modules these are."""
        fp32_norms = []
        for module in model.modules():
            params = [param for param in module._parameters.values() if type(param) is Nursed]
            in_scope = any(param.__dict__["_ps_nursling"].is_apart for param in params)
            if in_scope or not keeps_fp32(module, dtype):
                continue
            fp32_norms.append(module)
            for param in params:
                param.__dict__["_ps_nursling"].is_apart = True
                self._move_again(param, param.data)
        return fp32_norms

    def done(self) -> None:
        """Nothing of construction is needed any more."""
        for param in _alive(self._params):
            del param.__dict__["_ps_nursling"], param.__dict__["_ps_builder"]
        self._let_model_go()

    def _let_model_go(self) -> None:
        self._params.clear()
        self._adopted.clear()
        self._replaced.clear()

    @torch.no_grad()
    def undo(self, model: Optional[nn.Module]) -> bool:
        """Before done(): make parameters plain ones with their values, and modules ordinary ones, as if there had been
        no builder. Values that have gone into chunks are lost. Is memory of the nursery still kept by somebody?"""
        self.has_failed = True
        is_kept = False
        for param in _alive(self._params):
            nursling = param.__dict__["_ps_nursling"]
            is_lost = not self.client.still_has_values_of(nursling.number)
            is_parked = nursling.number not in self._nurslings  # by finish
            self._free(param)
            if is_lost:
                param.__dict__.pop("_ps", None)
                param._ps_name = self.client.get_tensor_info(nursling.number).name.decode()
                param.__class__ = Lost
            elif is_parked:
                param.data = torch.frombuffer(_memory(nursling.address, nursling.n_bytes),
                                              dtype=nursling.dtype).view(nursling.shape).clone()
                if nursling.buffer() is None:
                    self.client.give_back(nursling.number, nursling.address, nursling.n_bytes)
                else:
                    is_kept = True
        for module, parameters in self._adopted:
            module.__dict__["_parameters"] = parameters
        for buffers, key, buffer in self._replaced:
            buffers[key] = buffer
        for module in model.modules() if model is not None else ():
            if type(module._parameters) is _Parameters and module._parameters.builder is self:
                module.__dict__["_parameters"] = ParametersDict(module._parameters)
        self._let_model_go()
        gc.collect()
        return is_kept or bool(self._nurslings)

    def _free(self, param: nn.Parameter) -> None:
        """A plain parameter from now on. One that is not parked gets memory of its own."""
        param.__class__ = nn.Parameter
        nursling = param.__dict__.pop("_ps_nursling")
        param.__dict__.pop("_ps_builder")
        if nursling.number in self._nurslings:
            param.data = param.data.clone()

    def _let_others_go(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        """Parameters that are not in the model, but that somebody still has, get memory of their own."""
        gc.collect()
        mine = {id(param) for param, _ in names}
        for param in _alive(self._params):
            if id(param) not in mine:
                self._free(param)
        self._params = [weakref.ref(param) for param, _ in names]

    def _check_that_some_lie_in_chunks(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        if not all(param.__dict__["_ps_nursling"].is_apart for param, _ in names):
            return
        if not names:
            raise Refused("the model has no floating-point parameter: there is nothing to train in chunks")
        raise Refused("the model has no parameter for chunks: all %d, the first of which is %s, stay outside of them as "
                      "fp32 (BatchNorm and InstanceNorm with bf16.enabled or fp16.enabled, and what a torch_scope "
                      "creates). Have other modules in the model too, leave bf16.enabled and fp16.enabled out, or create "
                      "parameters outside of torch_scope" % (len(names), names[0][1]))

    def _check_that_none_share(self, names: List[Tuple[nn.Parameter, str]]) -> None:
        name_of = {param.__dict__["_ps_nursling"].number: name for param, name in names}
        for param, name in names:
            for other in [number for key, number in self._shared if key == id(param)]:
                if other in name_of:
                    raise Refused("%s.data = %s.data shares memory: tie them by assigning the parameter "
                                  "itself (module.weight = other.weight), or give it a copy (.clone())"
                                  % (name, name_of[other]))

    def _check_that_nobody_looks(self, places: List[Tuple[nn.Parameter, str, _Nursling]]) -> None:
        gc.collect()
        for _, name, nursling in places:
            if nursling.buffer() is not None:
                raise Refused("a tensor on parameter %s (its .data, a view, model.state_dict()) is kept by somebody; "
                              "its values move now: keep a copy instead (.clone())" % name)
        for nursling in self._nurslings.values():
            raise Refused("a tensor of shape %s on a parameter that is not in the model any more is kept by somebody: "
                          "keep a copy instead (.clone())" % (tuple(nursling.shape),))


def _names(model: nn.Module) -> List[Tuple[nn.Parameter, str]]:
    """The parameters that lie in the nursery, each with the first of its names."""
    names: Dict[int, Tuple[nn.Parameter, str]] = {}
    for prefix, module in model.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise Refused("%s has sparse gradients: build it with sparse=False" % (prefix or "the model"))
        for key, param in module._parameters.items():
            if type(param) is Nursed:
                names.setdefault(id(param), (param, prefix + "." * bool(prefix) + key))
    return list(names.values())


def _lies_in(param: nn.Parameter, nursling: _Nursling) -> bool:
    values = param.data
    return (values.data_ptr(), values.shape, values.dtype) == (nursling.address, nursling.shape, nursling.dtype) and (
        values.is_contiguous())


def _alive(params: List["weakref.ref[nn.Parameter]"]) -> List[nn.Parameter]:
    return [param for param in [reference() for reference in params] if param is not None]


def _memory(address: int, n_bytes: int) -> Any:
    return (ctypes.c_char * n_bytes).from_address(address)


def _give_freed_memory_back() -> None:
    """What loading and initialising left in malloc's keeping would count as the framework's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _describe(tensor: torch.Tensor) -> str:
    return "%s of shape %s on %s" % (tensor.dtype, tuple(tensor.shape), tensor.device)
