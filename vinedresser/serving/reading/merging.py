"""Reading the requests of several processes in the order of time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.serving.reading.requests import Requests, concatenated
from vinedresser.serving.reading.run_reading import RequestStep, RunReading
from vinedresser.serving.storing.encoding import PROBABILITIES, TIMES, decode_columns
from vinedresser.serving.storing.layout import (
    REQUESTS,
    RequestsHeartbeat,
    ServiceFolder,
    run_started,
)
from vinedresser.serving.storing.retention import is_over
from vinedresser.store.problems import Problems
from vinedresser.store.records import heartbeat_key, read_record

__all__ = ["Position", "decoded", "read_merged"]


@dataclass(frozen=True)
class Position:
    """What has been read of a run directory.

    Attributes:
        segment: number of the segment with the next request.
        row: position of that request in the segment.
        over: everything has been read, and nothing more will be written.
    """

    segment: int = 0
    row: int = 0
    over: bool = False


@dataclass
class _Read:
    """New requests of one run directory.

    Attributes:
        run: name of the run directory.
        requests: the requests, in the order of writing.
        starts: position of each of them: segment and row; int64 [requests, 2].
        end: position after all of them.
    """

    run: str
    requests: Requests
    starts: NDArray[np.int64]
    end: Position

    def after(self, count: int) -> Position:
        """Return the position after the first requests."""
        if count == len(self.requests):
            return self.end
        segment, row = self.starts[count].tolist()
        return Position(segment, row)


def read_merged(
    folder: ServiceFolder,
    positions: Mapping[str, Position],
    limit: int,
    *,
    labels: Mapping[bytes, Any],
    problems: Problems,
) -> tuple[Requests, dict[str, Position]]:
    """Read the earliest requests that have not been read yet.

    Args:
        positions: what has been read, by name of the run directory.
        limit: maximum number of requests.
        labels: known labels by id.
        problems: collects corrupt data.

    Returns:
        The requests, and what has been read after them.

    Raises:
        StoreError: the storage refused.
    """
    present = {run: positions.get(run, Position()) for run in folder.runs(REQUESTS)}
    reads: list[_Read] = []
    times = np.zeros(0)
    for run, position in present.items():
        if position.over:
            continue
        # A run directory has no requests from before its start, by its clock.
        if len(times) >= limit and run_started(run) > np.partition(times, limit - 1)[limit - 1]:
            continue
        read = _read(folder, run, position, limit, labels=labels, problems=problems)
        reads.append(read)
        times = np.concatenate([times, read.requests.times])
    # A prefix of each run directory is taken, though several threads may have put its requests into
    # a slightly different order.
    keys = [np.maximum.accumulate(read.requests.times) for read in reads]
    order = np.argsort(np.concatenate([np.zeros(0), *keys]), kind="stable")[:limit]
    first = 0
    for read in reads:
        end = first + len(read.requests)
        present[read.run] = read.after(int(np.count_nonzero((order >= first) & (order < end))))
        first = end
    return concatenated([read.requests for read in reads]).some(order), present


def _read(
    folder: ServiceFolder,
    run: str,
    position: Position,
    limit: int,
    *,
    labels: Mapping[bytes, Any],
    problems: Problems,
) -> _Read:
    """Read new requests of a run directory, at least as many as wanted if there are."""
    storage = folder.run_storage(run)
    try:
        # Before the segments: if nothing more is written, all of them are there.
        beat = read_record(storage, RequestsHeartbeat, key=heartbeat_key(0))
    except CorruptData as error:
        problems.note(str(error))
        beat = None
    over = is_over(beat, time.time())
    reading = RunReading(storage, problems)
    pieces: list[Requests] = []
    starts: list[NDArray[np.int64]] = []
    seq, skipped, count, row = position.segment, position.row, 0, 0
    while True:
        for step in reading.steps(seq):
            if isinstance(step, int):
                seq, row, skipped = step, 0, 0
                if count >= limit:
                    over = False
                    break
                continue
            fresh = np.arange(row, row + len(step.ids))
            row += len(step.ids)
            requests = decoded(step, labels, problems, storage.location)
            if requests is None or not len(fresh := fresh[fresh >= skipped]):
                continue
            pieces.append(requests.some(fresh - (row - len(step.ids))))
            starts.append(np.stack([np.full(len(fresh), step.segment), fresh], axis=1))
            count += len(fresh)
        later = reading.next_after(seq) if over else None
        if later is None:
            break
        problems.note(f"{storage.location}: segments {seq} to {later - 1} are missing")
        seq, skipped = later, 0
    end = Position(seq, 0, over) if count or not skipped else Position(seq, skipped)
    nothing = np.zeros((0, 2), np.int64)
    return _Read(run, concatenated(pieces), np.concatenate([nothing, *starts]), end)


def decoded(
    step: RequestStep, labels: Mapping[bytes, Any], problems: Problems, location: str
) -> Requests | None:
    """Return the requests of a step; None if they are damaged.

    Args:
        step: the step, with all tensors.
        labels: known labels by id.
        problems: receives the damage.
        location: location of the run directory, for messages.
    """
    tensors = step.tensors
    ids = step.ids.tolist()
    count = len(ids)
    try:
        probabilities = tensors.get(PROBABILITIES, np.full(count, np.nan))
        if probabilities.shape != (count,):
            raise CorruptData(f"{PROBABILITIES}: not one for each request")
        columns = decode_columns(tensors, count)
    except CorruptData as error:
        problems.note(f"{location}: segment {step.segment}: {error}")
        return None
    names = tuple(one.decode("utf-8", "replace") for one in ids)
    known = tuple(labels.get(one) for one in ids)
    return Requests(names, tensors[TIMES], probabilities, columns, known)
