"""Where the rows of a captured batch come from, as far as a data set of ours has delivered them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from vinedresser.data.records import Origins
from vinedresser.store.step_record import HostTensor

# Kinds of tensors that have a row for each sample.
_OF_ROWS = ("inputs/", "labels/", "outputs/", "predictions/")


class BatchSource(NamedTuple):
    """The origins of a batch.

    Attributes:
        origins: origins of the delivered records.
        in_order: whether row i of the batch is record i. So it is if there are as many of both;
            otherwise it is only known that the rows are among the records.
    """

    origins: Origins
    in_order: bool

    def tensors(self, captured: Iterable[str]) -> dict[str, HostTensor]:
        """Return the origins as tensors of a record; {} if it has no rows of the batch.

        Args:
            captured: names of the tensors of the record.
        """
        if not any(name.startswith(_OF_ROWS) for name in captured):
            return {}
        columns, uris = self.origins.packed()
        name = "origins/rows" if self.in_order else "origins/batch"
        return {
            name: HostTensor("I64", columns.shape, columns),
            "origins/uris": HostTensor("U8", uris.shape, uris),
        }

    def packed(self) -> dict[str, Any]:
        """Return the origins for a snapshot."""
        columns, uris = self.origins.packed()
        return {"records": columns, "uris": uris, "in_order": self.in_order}
