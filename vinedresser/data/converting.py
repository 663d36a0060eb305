"""Converting data of any format to TFRecords."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vinedresser.data.dataset import Dataset
from vinedresser.data.formats.example import decode_example, encode_example
from vinedresser.data.records import Origin
from vinedresser.data.writing import PART_BYTES, Written, write
from vinedresser.errors import ConfigError, did_you_mean

_BATCH = 256


def convert(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str,
    *,
    format: str | None = None,  # noqa: A002 (the word of the field)
    columns: Sequence[str] | None = None,
    class_field: str | None = None,
    part_bytes: int = PART_BYTES,
    progress: Callable[[int, int], object] = lambda _done, _records: None,
) -> Written:
    """Write the records of sources to TFRecords, in their order; see `write`.

    A record with fields, such as a row of Parquet or the files of a tar record, is stored as
    tf.train.Example, and so is an array, as the feature "value". Of whole files, the features are
    "name", "folder" (the name of the folder it is in) and "content". The contents of TFRecords and
    of length-prefixed records are stored as they are.

    Args:
        sources: see `Dataset`.
        target: see `write`.
        format: see `Dataset`; "files" takes each file as a record.
        columns: see `Dataset`.
        class_field: the field that has the class of a record; each class gets a folder.
        part_bytes: see `write`.
        progress: called with the number of records done and of all, from time to time.

    Raises:
        ConfigError: an argument is invalid, or a record cannot be stored; the message has its
            origin.
        DamagedData: a record is damaged.
        StoreError: a storage refused.
    """
    data = Dataset(sources, batch_size=_BATCH, format=format, columns=columns)
    records = _records(data, class_field, progress)
    return write(records, target, part_bytes=part_bytes)


def _records(
    data: Dataset, class_field: str | None, progress: Callable[[int, int], object]
) -> Iterator[bytes | tuple[str, bytes]]:
    done = 0
    for batch in data:
        for value, origin in zip(batch.values, batch.origins, strict=True):
            try:
                record, fields = _stored(value, origin, whole=data.format == "files")
                kind = None if class_field is None else _class(fields(), class_field)
            except ValueError as error:
                raise ConfigError(f"{origin}: {error}") from error
            yield record if kind is None else (kind, record)
        done += len(batch.values)
        progress(done, data.records)


def _stored(
    value: Any, origin: Origin, *, whole: bool
) -> tuple[bytes, Callable[[], Mapping[str, Any]]]:
    """Return a value as `bytes`, and what returns its fields.

    Args:
        whole: it is the content of a whole file.
    """
    if whole:
        folder, _, name = origin.uri.rpartition("/")
        value = {"name": name, "folder": folder.rpartition("/")[2], "content": value}
    elif isinstance(value, bytes):
        return value, lambda: decode_example(value)
    elif hasattr(value, "dtype"):
        value = {"value": value}
    elif not isinstance(value, Mapping):
        raise ConfigError(f"a value of the type {type(value).__name__} has no named fields")
    return encode_example(value), lambda: value


def _class(fields: Mapping[str, Any], name: str) -> str:
    """Return the class of a record."""
    if name not in fields:
        raise ConfigError(f"no field {name!r}{did_you_mean(name, fields)}")
    value = fields[name]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, str | int):
        raise ConfigError(f"the field {name!r} is not a class but {value!r}"[:200])
    return str(value)
