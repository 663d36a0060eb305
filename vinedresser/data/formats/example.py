"""tf.train.Example, the message in most TFRecords, encoded and decoded without TensorFlow.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto, in the
wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError

__all__ = ["Feature", "decode_example", "encode_example"]

Feature = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

# Types of fields.
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
# Fields of an entry of the map of features.
_NAME, _FEATURE = 1, 2
# Fields of a Feature.
_OF_BYTES, _OF_FLOATS, _OF_INTEGERS = 1, 2, 3


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Return features as a tf.train.Example.

    Args:
        features: by name: text (stored as UTF-8), bytes, an integer, a boolean, a number (stored as
            float32), an array, which is flattened, or a list of these; None is left out.

    Raises:
        ConfigError: a value is nested, has several types, or is an integer beyond 64 bits.
    """
    entries = []
    for name, value in features.items():
        if value is None:
            continue
        try:
            feature = _encoded(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"feature {name!r}: {error}") from error
        entries.append(_field(1, _field(_NAME, name.encode()) + _field(_FEATURE, feature)))
    return _field(1, b"".join(entries))


def decode_example(content: bytes) -> dict[str, Feature]:
    """Return the features of a tf.train.Example by name; usable as ``decode`` of a `Dataset`.

    Returns:
        For each feature a list of bytes, or an array, float32 or int64, (values,).

    Raises:
        ValueError: it is not one.
    """
    found: dict[str, Feature] = {}
    try:
        for features in _contents(content, 1, _BYTES):
            for entry in _contents(features, 1, _BYTES):
                parts = {number: part for number, _, part in _fields(entry)}
                if parts.keys() - {_NAME, _FEATURE}:
                    raise ValueError("a feature has an unknown field")
                found[parts.get(_NAME, b"").decode()] = _decoded(parts.get(_FEATURE, b""))
    except (ValueError, IndexError) as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    return found


def _encoded(value: Any) -> bytes:
    values = [value] if isinstance(value, str | bytes) else value
    if isinstance(values, list | tuple) and any(isinstance(one, str | bytes) for one in values):
        parts = [one.encode() if isinstance(one, str) else bytes(memoryview(one)) for one in values]
        return _field(_OF_BYTES, b"".join(_field(1, part) for part in parts))
    array = np.asarray(values)
    if not array.size:
        return b""
    if array.dtype.kind == "f":
        return _field(_OF_FLOATS, _field(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "biu":
        if array.max() > np.iinfo(np.int64).max:
            raise ValueError("an integer does not fit into 64 bits")
        return _field(_OF_INTEGERS, _field(1, b"".join(map(_varint, array.ravel().tolist()))))
    raise ValueError(
        f"a value of the type {type(value).__name__} is neither text, bytes nor numbers, nor a "
        "flat list of one of these"
    )


def _decoded(feature: bytes) -> Feature:
    values: Feature = []
    for kind, _, content in _fields(feature):
        if kind == _OF_BYTES:
            values = list(_contents(content, 1, _BYTES))
        elif kind == _OF_FLOATS:
            packed = b"".join(_contents(content, 1, _BYTES, _FIXED32))
            values = np.frombuffer(packed, "<f4").astype(np.float32)
        elif kind == _OF_INTEGERS:
            values = _integers(b"".join(_contents(content, 1, _BYTES, _VARINT)))
        else:
            raise ValueError(f"a feature has an unknown kind {kind}")
    return values


def _integers(packed: bytes) -> NDArray[np.int64]:
    numbers = []
    position = 0
    while position < len(packed):
        number, position = _read_varint(packed, position)
        numbers.append(number)
    return np.array(numbers, np.uint64).astype(np.int64)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _field(number: int, content: bytes) -> bytes:
    return b"".join((_varint(number << 3 | _BYTES), _varint(len(content)), content))


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number = shift = 0
    while True:
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, type and content of each field; the content of a number is its encoding."""
    position = 0
    while position < len(content):
        tag, begin = _read_varint(content, position)
        kind = tag & 7
        if kind == _BYTES:
            length, begin = _read_varint(content, begin)
            position = begin + length
        elif kind == _VARINT:
            position = _read_varint(content, begin)[1]
        elif kind == _FIXED32:
            position = begin + 4
        else:
            raise ValueError(f"a field has the type {kind}")
        if position > len(content):
            raise ValueError("it is cut off")
        yield tag >> 3, kind, content[begin:position]


def _contents(content: bytes, number: int, *kinds: int) -> Iterator[bytes]:
    """Yield the content of each field of a message that has one field only, of some types."""
    for found, kind, part in _fields(content):
        if found != number or kind not in kinds:
            raise ValueError(f"it has a field {found} of the type {kind}")
        yield part
