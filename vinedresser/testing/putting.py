"""A process that puts objects until it is killed, or races for keys; started by `storage`.

python -m vinedresser.testing.putting LOCATION forever|race
"""

from __future__ import annotations

import os
import sys
import zlib

from vinedresser.errors import KeyTaken
from vinedresser.objects import Storage, open_storage

__all__ = ["ROUNDS", "is_whole"]

# Number of keys in a race, and bytes of an object put forever.
ROUNDS = 20
_SIZE = 4 << 20


def is_whole(content: bytes) -> bool:
    """Return whether the content is a complete object."""
    return len(content) == _SIZE + 4 and zlib.crc32(content[:-4]) == int.from_bytes(content[-4:])


def _put_forever(storage: Storage) -> None:
    number = 0
    while True:
        body = number.to_bytes(8) * (_SIZE // 8)
        parts = [body[: _SIZE // 3], body[_SIZE // 3 :], zlib.crc32(body).to_bytes(4)]
        # Half of the puts replace one object, the others use several keys.
        storage.put(f"whole/{number % 2 and number % 20}", parts)
        number += 1


def _race(storage: Storage) -> None:
    """Put every key exclusively after a line on stdin, and print the keys won to stdout."""
    print("ready", flush=True)  # noqa: T201 (the protocol)
    sys.stdin.readline()
    mine = str(os.getpid()).encode() * 1000
    won = []
    for number in range(ROUNDS):
        try:
            storage.put(f"race/{number}", [mine], exclusive=True)
        except KeyTaken:
            continue
        won.append(str(number))
    print(" ".join(won), flush=True)  # noqa: T201 (the protocol)


if __name__ == "__main__":
    {"forever": _put_forever, "race": _race}[sys.argv[2]](open_storage(sys.argv[1]))
