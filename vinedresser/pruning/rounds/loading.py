"""Loading the weights of a trained model from a file, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vinedresser.errors import PruningError
from vinedresser.objects.files import check_file, opened_path
from vinedresser.pruning.backends import backend_of

# Readers of pickles and HDF5 raise whatever their code meets in bytes of any kind.
_DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
_EXPECTED = "expected model.state_dict() as torch.save writes it, tensors by name"


def load_weights(model: Any, path: Path) -> None:
    """Load weights by the suffix of their file.

    Args:
        model: a torch.nn.Module or a keras.Model.
        path: a file ``.safetensors``, ``.pt``, ``.pth`` or ``.weights.h5``.

    Raises:
        PruningError: the file is missing or damaged, or has the weights of another model.
    """
    if path.suffix == ".safetensors":
        backend_of(model).read_weights(model, path)
        return
    readers: dict[str, Callable[[Any, Path], None]] = {
        ".pt": _load_state_dict,
        ".pth": _load_state_dict,
        ".h5": _load_keras,
    }
    if path.suffix not in readers:
        raise PruningError(
            f"{path}: not a file of weights: expected .safetensors, .pt, .pth or .weights.h5"
        )
    readers[path.suffix](model, path)


def _load_state_dict(model: Any, path: Path) -> None:
    """Load a state dict, or the "model" of a hook's checkpoint."""
    with _refused(path):
        with opened_path(path) as opened:
            state = _tensors(opened)
        found = state.get("model", state) if isinstance(state, Mapping) else state
        if not isinstance(found, Mapping):
            raise TypeError(f"{_EXPECTED}, but it has {type(found).__name__}")
        model.load_state_dict(found)


def _tensors(path: str) -> object:
    """Return what torch.save has written, without unpickling objects."""
    import pickle

    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except (*_DAMAGED, pickle.UnpicklingError) as error:
        # Torch says "101" of a text, nothing of an empty file, and how to run the code of others.
        raise ValueError(_EXPECTED) from error


def _load_keras(model: Any, path: Path) -> None:
    with _refused(path):
        check_file(path)
        model.load_weights(path)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turn what a library raises for a damaged file or that of another model into one line."""
    try:
        yield
    except _DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PruningError(f"{path}: not the weights of this model: {reason}") from error
