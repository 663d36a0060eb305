"""Keeping answers in a run while they pass."""

from __future__ import annotations

import time
from collections.abc import Iterator

from vinedresser.queries.answer import Answer
from vinedresser.queries.stored.stream_writer import StreamWriter, check_stream_name
from vinedresser.store.reading.reader import Run

__all__ = ["saved"]

# Seconds between two writes.
_PAUSE = 1.0


def saved(answers: Iterator[Answer], run: Run, name: str) -> Iterator[Answer]:
    """Yield answers, and append each to a stream of the run.

    What has passed is written at least once a second, and when the iteration ends, for whatever
    reason.

    Raises:
        ConfigError: the name is not valid.
        StoreError: while iterating: the storage refused.
    """
    return _passing(answers, run, check_stream_name(name))


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
