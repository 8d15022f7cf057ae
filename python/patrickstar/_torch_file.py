"""What a file of torch.save is made of, without PyTorch and without its tensors."""
import pickle
import zipfile
from typing import Any


def read_structure(path: str) -> Any:
    """What was saved, where dictionaries, lists, numbers and texts are as they were and all else is something: nothing
    that loading it would call is called. Raises all sorts of errors where it is no such file."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as file:
            return _Reader(file).load()


class _Something:
    def __new__(cls, *args: Any, **kwargs: Any) -> "_Something":
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
        return _Dict if (module, name) == ("collections", "OrderedDict") else _Something

    def persistent_load(self, pid: Any) -> Any:
        return _Something()


class _Dict(dict):  # with attributes
    pass
