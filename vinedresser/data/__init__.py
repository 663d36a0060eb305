"""Training data from files and S3: records with their origin, in an order that can be resumed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.data.channels import channel
    from vinedresser.data.dataset import Dataset
    from vinedresser.data.formats.example import decode_example, encode_example
    from vinedresser.data.mixture import Mixture
    from vinedresser.data.pipes import PipeDataset, feed_pipe
    from vinedresser.data.records import Batch, Origin, Origins
    from vinedresser.data.statistics import Statistics
    from vinedresser.data.tf_ import tf_dataset
    from vinedresser.data.torch_ import TorchLoader
    from vinedresser.data.writing import Written, write

__all__ = [
    "Batch",
    "Dataset",
    "Mixture",
    "Origin",
    "Origins",
    "PipeDataset",
    "Statistics",
    "TorchLoader",
    "Written",
    "channel",
    "decode_example",
    "encode_example",
    "feed_pipe",
    "tf_dataset",
    "write",
]

# Loaded by those who use them only: a hook needs the origins of batches without what reads them.
_HOMES = {
    "Batch": "records",
    "Dataset": "dataset",
    "Mixture": "mixture",
    "Origin": "records",
    "Origins": "records",
    "PipeDataset": "pipes",
    "Statistics": "statistics",
    "TorchLoader": "torch_",
    "Written": "writing",
    "channel": "channels",
    "decode_example": "formats.example",
    "encode_example": "formats.example",
    "feed_pipe": "pipes",
    "tf_dataset": "tf_",
    "write": "writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vinedresser.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
