"""Processes that put objects until they are killed, or race for keys; started by `storage`.

    python -m vinedresser.testing.putting LOCATION forever|race

They are forked: loading the client of a storage takes longer than all that they do. With `forever`,
each line on stdin starts one; its process id is printed, and a further line once it has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import zlib
from multiprocessing.synchronize import Barrier

from vinedresser.errors import KeyTaken
from vinedresser.objects import Storage, open_storage

__all__ = ["ROUNDS", "is_whole"]

# Numbers of keys and of processes in a race, and bytes of an object put forever.
ROUNDS, _RACERS = 20, 4
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


def _race(storage: Storage, start: Barrier) -> None:
    """Put every key exclusively at the same time as others; print the process id and the keys won.

    The content of a key is the process id, a thousand times.
    """
    mine = str(os.getpid()).encode() * 1000
    # It has a client of its own by then.
    storage.exists("race")
    start.wait(60)
    won = []
    for number in range(ROUNDS):
        try:
            storage.put(f"race/{number}", [mine], exclusive=True)
        except KeyTaken:
            continue
        won.append(number)
    os.write(1, f"{os.getpid()} {' '.join(map(str, won))}\n".encode())


def _main(location: str, what: str) -> None:
    forked = multiprocessing.get_context("fork")
    storage = open_storage(location)
    if what == "race":
        start = forked.Barrier(_RACERS)
        racers = [forked.Process(target=_race, args=(storage, start)) for _ in range(_RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        sys.exit(any(racer.exitcode for racer in racers))
    for _ in sys.stdin:
        putter = forked.Process(target=_put_forever, args=(storage,))
        putter.start()
        print(putter.pid, flush=True)  # noqa: T201 (the protocol)
        putter.join()
        print("ended", flush=True)  # noqa: T201 (the protocol)


if __name__ == "__main__":
    _main(*sys.argv[1:])
