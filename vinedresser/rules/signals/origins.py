"""Where the rows of a captured batch come from, if a data set of ours has delivered them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vinedresser.data.records import Origin, Origins
from vinedresser.errors import CorruptData
from vinedresser.plain_text import visible
from vinedresser.store.reading.step import Step
from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["BatchOrigins", "as_evidence", "batch_origins", "look_at", "row_origins"]

_ROWS, _BATCH, _URIS = "origins/rows", "origins/batch", "origins/uris"


class BatchOrigins(NamedTuple):
    """Origins of the records of a batch.

    Attributes:
        in_order: whether row i of the batch is record i; otherwise its rows are among the records.
    """

    origins: Origins
    in_order: bool

    def of_row(self, row: int, rows: int) -> Origin | None:
        """Return the origin of a captured row; None if it is not known.

        Args:
            row: number of the row among those that were captured.
            rows: number of captured rows: all of the batch, or evenly strided ones.
        """
        if not self.in_order or not row < rows <= len(self.origins):
            return None
        chosen = strided_rows(len(self.origins), rows)
        return self.origins[row if chosen is None else int(chosen[row])]


def batch_origins(step: Step) -> BatchOrigins | None:
    """Return the origins of the batch of a step; None if none were captured.

    Raises:
        CorruptData: the stored bytes do not match their checksum, or are no origins.
    """
    found = next((name for name in (_ROWS, _BATCH) if name in step.tensor_names), None)
    if found is None or _URIS not in step.tensor_names:
        return None
    try:
        origins = Origins.unpacked(step.tensor(found), step.tensor(_URIS))
    except ValueError as error:
        raise CorruptData(f"{found} at step {step.step}: {error}") from error
    return BatchOrigins(origins, found == _ROWS)


def row_origins(step: Step, rows: Sequence[bytes]) -> dict[bytes, Origin]:
    """Return the origins of rows by their digests; {} if they are not known.

    Args:
        rows: digests of all captured rows of its batch (`whole_rows`).

    Raises:
        CorruptData: see `batch_origins`.
    """
    found = batch_origins(step) if rows else None
    if found is None:
        return {}
    origins = ((row, found.of_row(place, len(rows))) for place, row in enumerate(rows))
    return {row: origin for row, origin in origins if origin is not None}


def look_at(origins: Sequence[Origin]) -> str:
    """Return what to do to look at records, to append to a remedy; "" without records."""
    commands = " and ".join(f"`{visible(origin.command)}`" for origin in dict.fromkeys(origins))
    return f"; {commands} prints {'it' if len(set(origins)) == 1 else 'them'}" if commands else ""


def as_evidence(origins: Sequence[Origin]) -> list[dict[str, Any]]:
    """Return records as evidence of a finding."""
    return [origin._asdict() for origin in origins]
