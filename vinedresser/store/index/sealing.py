"""JSON objects with a checksum.

    {"crc32c":"xxxxxxxx","<kind>":{...}}

The checksum, CRC32C in eight hexadecimal digits, covers the stored bytes of the inner object.
"""

from __future__ import annotations

import json

from fastcrc import crc32

from vinedresser.errors import CorruptData

__all__ = ["seal", "to_json", "unseal"]

to_json = json.JSONEncoder(separators=(",", ":")).encode

_HEAD = b'{"crc32c":"'
_DIGITS = 8


def seal(kind: str, content: bytes) -> bytes:
    """Return JSON with its checksum prepended."""
    return b'%s%08x","%s":%s}' % (_HEAD, crc32.iscsi(content), kind.encode(), content)


def unseal(kind: str, sealed: bytes) -> object:
    """Return the inner value of a sealed object.

    Raises:
        CorruptData: the checksum does not match, or it is not a sealed object of this kind.
    """
    middle = len(_HEAD) + _DIGITS
    name = f'","{kind}":'.encode()
    start = middle + len(name)
    if sealed[: len(_HEAD)] != _HEAD or sealed[middle:start] != name or sealed[-1:] != b"}":
        raise CorruptData(f"not a sealed {kind}")
    content = sealed[start:-1]
    if sealed[len(_HEAD) : middle] != b"%08x" % crc32.iscsi(content):
        raise CorruptData("its checksum does not match")
    try:
        inner: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"its {kind} is not JSON: {error}") from error
    return inner
