"""Writing the answers to a standing query into a run."""

from __future__ import annotations

import re
from dataclasses import replace

from vinedresser.errors import ConfigError
from vinedresser.objects import Storage
from vinedresser.plain_text import visible
from vinedresser.queries.answer import Answer
from vinedresser.store.records import STREAM, known_keys, stream_key

__all__ = ["MOST_BYTES", "StreamWriter", "check_stream_name"]

# A part is replaced as a whole with each `flush` until it has this size. Small enough to be written
# again, and uploaded again, with every answer.
_PART_BYTES = 256 << 10
# Of one rank of a stream, in all its parts.
MOST_BYTES = 64 << 20


def check_stream_name(name: str) -> str:
    """Return the name of a stream.

    Raises:
        ConfigError: it is not a valid name.
    """
    if not isinstance(name, str) or not re.fullmatch(STREAM, name, re.ASCII):
        raise ConfigError(
            f"{visible(str(name)[:80])!r} is not a name for a stream: use 1 to 64 letters, digits, "
            "'_', '-' and '.', beginning with a letter or digit"
        )
    return name


class StreamWriter:
    """Appends answers to a stream of a run, after those that it has already.

    Answers are small files of lines (`stream_key`), each replaced atomically: a reader or a killed
    writer leaves no half of a line. Not for the thread of the training, since writing takes time.

    Args:
        rank: the rank.
        most: maximum bytes of the stream, with what it has already.

    Attributes:
        full: the stream has reached its maximum size; further answers are dropped.

    Raises:
        ConfigError: the name is not valid.
        StoreError: the storage refused.
    """

    def __init__(
        self, storage: Storage, name: str, rank: int = 0, *, most: int = MOST_BYTES
    ) -> None:
        self._storage = storage
        self._name = check_stream_name(name)
        self._rank = rank
        self._most = most
        folder = f"streams/{name}/{rank}"
        keys = known_keys(storage, folder, [])
        # A stream that exists is continued in a new part, whoever wrote the others.
        self._number = int(keys[-1].rpartition("/")[2].removesuffix(".jsonl")) + 1 if keys else 0
        self._size = sum(len(content or b"") for content in storage.get_many(keys))
        self._part = b""
        self._written = 0
        self.full = self._size >= most

    def add(self, answer: Answer) -> None:
        """Append an answer; `flush` writes it."""
        if self.full:
            return
        line = answer.to_json().encode() + b"\n"
        if self._size + len(line) > self._most:
            self.full = True
            reason = f"the stream is full: it has {self._most >> 20} MiB"
            last = replace(answer, kind="none", value=None, error=reason, ended=True)
            line = last.to_json().encode() + b"\n"
        self._part += line
        self._size += len(line)

    def flush(self) -> None:
        """Write what was added.

        Raises:
            StoreFull: no space is left; the answers are kept for the next call.
            StoreError: the storage refused; likewise.
        """
        if len(self._part) == self._written:
            return
        self._storage.put(stream_key(self._name, self._rank, self._number), [self._part])
        self._written = len(self._part)
        if self._written >= _PART_BYTES:
            self._number += 1
            self._part, self._written = b"", 0
