"""Encoding requests as the tensors of a step, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.step_record import HostTensor, StepRecord

__all__ = [
    "IDS",
    "PROBABILITIES",
    "TIMES",
    "decode_columns",
    "decode_ids",
    "decode_inputs",
    "encode_columns",
    "encode_ids",
    "encode_inputs",
    "request_step",
    "stored_id",
    "tensor_of",
]

# Names of tensors.
IDS = "requests/id"
TIMES = "requests/time"
PROBABILITIES = "requests/probability"
_COLUMN = "columns/"
_TEXT = "texts/"
_LENGTH = "text_lengths/"
_INPUT = "captured/"
_JSON = "captured_json/"
_JSON_LENGTH = "captured_lengths/"

# Bytes of an id.
_LONGEST_ID = 64


def stored_id(identity: object) -> bytes:
    """Return an id as it is stored: UTF-8, or its hash if it is too long."""
    encoded = str(identity).encode("utf-8", "replace")
    # Ids are padded with zeros in the store.
    if len(encoded) > _LONGEST_ID or encoded.endswith(b"\0") or not encoded:
        return blake2b(encoded, digest_size=16).hexdigest().encode()
    return encoded


def request_step(
    number: int,
    ids: Sequence[bytes],
    times: NDArray[np.float64],
    tensors: dict[str, HostTensor],
) -> StepRecord:
    """Return the step that records requests.

    Args:
        ids: the ids, UTF-8.
        times: arrival of each, seconds since the epoch; float64 [rows].
        tensors: the rest.
    """
    record = StepRecord("predict", number, float(times[-1]))
    record.tensors = {IDS: encode_ids(ids), TIMES: tensor_of(times), **tensors}
    return record


def tensor_of(values: NDArray[Any]) -> HostTensor:
    """Return an array as a tensor of a step."""
    data = np.ascontiguousarray(values)
    return HostTensor(dtype_name(data.dtype), data.shape, data)


def encode_ids(ids: Sequence[bytes]) -> HostTensor:
    """Return ids as uint8 [rows, width], padded with zeros."""
    fixed = np.array(ids, dtype=np.bytes_)
    width = max(1, fixed.dtype.itemsize)
    return tensor_of(fixed.astype(f"S{width}").view(np.uint8).reshape(len(ids), width))


def decode_ids(values: NDArray[Any]) -> NDArray[np.bytes_]:
    """Return ids of `encode_ids` as bytes [rows].

    Raises:
        CorruptData: the array is not one of ids.
    """
    if values.ndim != 2 or values.dtype != np.uint8 or not values.shape[1]:
        raise CorruptData(f"{IDS}: {values.dtype} {list(values.shape)} are not ids")
    return np.ascontiguousarray(values).view(f"S{values.shape[1]}")[:, 0]


def encode_columns(columns: Mapping[str, NDArray[Any]]) -> dict[str, HostTensor]:
    """Return columns as tensors; a text column becomes its bytes and the length of each text."""
    tensors = {}
    for name, values in columns.items():
        if values.dtype != object:
            tensors[_COLUMN + name] = tensor_of(values)
            continue
        tensors[_TEXT + name], tensors[_LENGTH + name] = _encode_texts(values.tolist())
    return tensors


def _encode_texts(texts: Sequence[str | None]) -> tuple[HostTensor, HostTensor]:
    """Return the bytes of all texts, uint8 [bytes], and the length of each, int64 [rows]."""
    # Lone surrogates, which JSON may contain, are no text that UTF-8 has.
    encoded = [None if text is None else text.encode("utf-8", "replace") for text in texts]
    lengths = [-1 if one is None else len(one) for one in encoded]
    whole = np.frombuffer(b"".join(one or b"" for one in encoded), np.uint8)
    return tensor_of(whole), tensor_of(np.array(lengths, np.int64))


def encode_inputs(inputs: Mapping[str, Any]) -> dict[str, HostTensor]:
    """Return inputs of requests as tensors: arrays as they are, lists as the JSON of each row.

    Args:
        inputs: by name of the part; arrays [rows, ...], or lists.
    """
    tensors = {}
    for name, part in inputs.items():
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            tensors[_INPUT + name] = tensor_of(part)
        else:
            texts = [json.dumps(one, default=str) for one in list(part)]
            tensors[_JSON + name], tensors[_JSON_LENGTH + name] = _encode_texts(texts)
    return tensors


def decode_inputs(tensors: Mapping[str, NDArray[Any]], rows: int) -> dict[str, Any]:
    """Return the inputs that tensors encode; see `encode_inputs`.

    Args:
        tensors: tensors of a step by name.
        rows: number of requests.

    Raises:
        CorruptData: an input does not have one value per request.
    """
    found: dict[str, Any] = {}
    for name, values in tensors.items():
        if name.startswith(_INPUT):
            found[name.removeprefix(_INPUT)] = values
        elif name.startswith(_JSON):
            plain = name.removeprefix(_JSON)
            texts = _texts(name, values, tensors.get(_JSON_LENGTH + plain))
            try:
                found[plain] = [parse_json(one) for one in texts.tolist()]
            except DAMAGE as error:
                raise CorruptData(f"{name}: not valid JSON: {error}") from error
    for name, part in found.items():
        if len(part) != rows:
            raise CorruptData(f"{name}: {len(part)} inputs for {rows} requests")
    return found


def decode_columns(tensors: Mapping[str, NDArray[Any]], rows: int) -> dict[str, NDArray[Any]]:
    """Return the columns that tensors encode; see `encode_columns`.

    Args:
        tensors: tensors of a step by name.
        rows: number of requests.

    Raises:
        CorruptData: a column does not have one value per request.
    """
    columns: dict[str, NDArray[Any]] = {}
    for name, values in tensors.items():
        if name.startswith(_COLUMN):
            columns[name.removeprefix(_COLUMN)] = values
        elif name.startswith(_TEXT):
            plain = name.removeprefix(_TEXT)
            columns[plain] = _texts(name, values, tensors.get(_LENGTH + plain))
    for name, values in columns.items():
        if values.ndim not in (1, 2) or len(values) != rows:
            raise CorruptData(f"{name}: shape {list(values.shape)} for {rows} requests")
    return columns


def _texts(name: str, values: NDArray[Any], lengths: NDArray[Any] | None) -> NDArray[Any]:
    if lengths is None or lengths.ndim != 1 or lengths.dtype != np.int64:
        raise CorruptData(f"{name}: there are no lengths of the texts")
    content = values.tobytes()
    ends = np.cumsum(np.maximum(lengths, 0))
    if len(lengths) and int(ends[-1]) != len(content):
        raise CorruptData(f"{name}: {len(content)} bytes for texts of {int(ends[-1])}")
    found = np.empty(len(lengths), object)
    found[:] = [
        None if length < 0 else content[end - length : end].decode("utf-8", "replace")
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
    return found
