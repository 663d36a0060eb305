"""Training data from files and S3: records with their origin, in an order that can be resumed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vinedresser.data.channels import channel
from vinedresser.data.dataset import Dataset
from vinedresser.data.formats.example import decode_example, encode_example
from vinedresser.data.mixture import Mixture
from vinedresser.data.records import Batch, Origin, Origins
from vinedresser.data.statistics import Statistics
from vinedresser.data.writing import Written, write

if TYPE_CHECKING:
    from vinedresser.data.tf_ import tf_dataset
    from vinedresser.data.torch_ import TorchLoader

__all__ = [
    "Batch",
    "Dataset",
    "Mixture",
    "Origin",
    "Origins",
    "Statistics",
    "TorchLoader",
    "Written",
    "channel",
    "decode_example",
    "encode_example",
    "tf_dataset",
    "write",
]

# Frameworks are loaded only by those who use them.
_HOMES = {"TorchLoader": "torch_", "tf_dataset": "tf_"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vinedresser.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
