"""Keeping answers in a run while they pass."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from vinedresser.errors import ConfigError
from vinedresser.objects import Storage
from vinedresser.plain_text import visible
from vinedresser.queries.answer import Answer
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import STREAM, known_keys, stream_key

__all__ = ["MOST_BYTES", "StreamWriter", "saved"]

# Seconds between two writes.
_PAUSE = 1.0
# A part is replaced as a whole with each `flush` until it has this size. Small enough to be written
# again, and uploaded again, with every answer.
_PART_BYTES = 256 << 10
# Of one rank of a stream, in all its parts.
MOST_BYTES = 64 << 20


def saved(answers: Iterator[Answer], run: Run, name: str) -> Iterator[Answer]:
    """Yield answers, and append each to a stream of the run.

    What has passed is written at least once a second, and when the iteration ends, for whatever
    reason.

    Raises:
        ConfigError: the name is not valid.
        StoreError: while iterating: the storage refused.
    """
    return _passing(answers, run, _check_stream_name(name))


def _passing(answers: Iterator[Answer], run: Run, name: str) -> Iterator[Answer]:
    writers: dict[int, StreamWriter] = {}
    written = time.monotonic()
    try:
        for answer in answers:
            if answer.rank not in writers:
                writers[answer.rank] = StreamWriter(run.storage, name, answer.rank)
            writers[answer.rank].add(answer)
            if time.monotonic() >= written + _PAUSE:
                _flush(writers)
                written = time.monotonic()
            yield answer
    finally:
        _flush(writers)


def _flush(writers: dict[int, StreamWriter]) -> None:
    for writer in writers.values():
        writer.flush()


def _check_stream_name(name: str) -> str:
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
        self._name = _check_stream_name(name)
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
