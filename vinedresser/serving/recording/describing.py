"""Describing requests on the worker's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from vinedresser.columns.describing import describe
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.items import Batch, Item, batches, host_item
from vinedresser.serving.recording.settings import Settings

__all__ = ["Described", "Describer"]


class Described(NamedTuple):
    """Requests and the columns that describe them."""

    batch: Batch
    columns: dict[str, NDArray[Any]]


class Describer:
    """Describes the requests of calls in batches.

    Args:
        settings: how to describe them.
        faults: reports problems.

    Attributes:
        lost: number of requests that could not be described.
    """

    def __init__(self, settings: Settings, faults: Faults) -> None:
        self.lost = 0
        self._settings = settings
        self._read = faults.guard("reading a request", host_item)
        self._columns = faults.guard("describing requests", self._columns_of)

    def describe(self, items: Sequence[Item]) -> list[Described]:
        """Describe the requests of calls; those of the same form together."""
        read = [(item, self._read(item)) for item in items]
        self.lost += sum(len(item.ids) for item, plain in read if plain is None)
        described = []
        # A message may turn out to have no requests.
        for batch in batches(plain for _, plain in read if plain is not None and plain.ids):
            columns = self._columns(batch)
            if columns is None:
                self.lost += len(batch.ids)
            else:
                described.append(Described(batch, columns))
        return described

    def _columns_of(self, batch: Batch) -> dict[str, NDArray[Any]]:
        settings = self._settings
        return describe(
            batch.inputs,
            batch.outputs,
            settings.features,
            batch.embedding,
            classify=settings.classify,
        )
