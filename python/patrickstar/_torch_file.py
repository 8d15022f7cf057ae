"""The structure of a file of torch.save, without PyTorch and without its tensors."""
import pickle
import zipfile
from typing import Any


def read_structure(path: str) -> Any:
    """The saved object, with its dictionaries, lists, numbers and texts, and a placeholder for all else: nothing that
    loading would call is called. Raises all sorts of errors if it is no such file."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as file:
            return _Reader(file).load()


class _Placeholder:
    def __new__(cls, *args: Any, **kwargs: Any) -> "_Placeholder":
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Dict if (module, name) == ("collections", "OrderedDict") else _Placeholder

    def persistent_load(self, pid: Any) -> Any:
        return _Placeholder()


class _Dict(dict):  # with attributes
    pass
