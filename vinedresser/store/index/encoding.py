"""Encoding index records, the small objects that commit segments.

    {"crc32c":"xxxxxxxx","record":{"format":1,"rank":0,"seq":3,"bytes":8392704,
     "modes":"ttte","steps":[30,31,32,33],"time":1763697453.25,"microseconds":[0,9012,18006,21777],
     "dropped":0,
     "columns":[{"names":["losses/loss"],"reductions":null,"rows":[0,1,2],"offset":1024,
                 "crc32c":"xxxxxxxx"}],
     "tensors":[{"dtype":"F32","names":["weights/a","weights/b"],"shapes":[[3,2],[3]],"rows":null,
                 "offset":1048,"crc32c":"xxxxxxxx..."}],
     "aliases":[{"names":["inputs/c"],"of":["weights/a"],"rows":null}]}}

`rows` of a group are the segment's rows at which it was captured, null for all. `offset` counts
from the start of the segment file. The checksums of tensors are ordered by tensor and then by row,
eight digits each. `aliases` is omitted if there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.index.index_record import FORMAT, IndexRecord
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.index.sealing import seal, to_json

__all__ = ["Layout", "body_document", "encode_record", "layout_document"]

Layout = TensorLayout | ColumnLayout | AliasLayout


def encode_record(record: IndexRecord) -> bytes:
    """Return an index record as the bytes to store."""
    place = {"format": FORMAT, "rank": record.rank, "seq": record.seq}
    return seal("record", to_json(place | body_document(record, layout_document)).encode())


def layout_document(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON."""
    if isinstance(layout, ColumnLayout):
        return {"names": layout.names, "reductions": layout.reductions}
    if isinstance(layout, AliasLayout):
        return {"names": layout.names, "of": layout.targets}
    return {"dtype": layout.dtype, "names": layout.names, "shapes": layout.shapes}


def body_document(
    record: IndexRecord, describe: Callable[[Layout], dict[str, Any]]
) -> dict[str, Any]:
    """Return a record as JSON, without its rank and number.

    Args:
        record: the record.
        describe: returns the JSON that identifies a layout.
    """
    first = float(record.rows.times[0])
    body = {
        "bytes": record.size,
        "modes": record.rows.letters(),
        "steps": record.rows.steps.tolist(),
        "time": first,
        "microseconds": np.rint((record.rows.times - first) * 1e6).astype(np.int64).tolist(),
        "dropped": record.dropped,
        "columns": [
            describe(group.layout)
            | {
                "rows": _row_list(group.rows),
                "offset": group.offset,
                "crc32c": f"{group.checksum:08x}",
            }
            for group in record.columns
        ],
        "tensors": [
            describe(group.layout)
            | {
                "rows": _row_list(group.rows),
                "offset": group.offset,
                "crc32c": group.checksums.astype(">u4").tobytes().hex(),
            }
            for group in record.tensors
        ],
    }
    if record.aliases:
        body["aliases"] = [
            describe(group.layout) | {"rows": _row_list(group.rows)} for group in record.aliases
        ]
    return body


def _row_list(rows: NDArray[np.int64] | None) -> list[int] | None:
    return None if rows is None else rows.tolist()
