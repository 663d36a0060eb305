"""How many requests a service had, and how many of them were recorded."""

from __future__ import annotations

import time
from typing import NamedTuple

from vinedresser.errors import CorruptData
from vinedresser.serving.storing.layout import (
    REQUESTS,
    RequestsHeartbeat,
    ServiceFolder,
    run_process,
    run_started,
)
from vinedresser.serving.storing.retention import is_over
from vinedresser.store.problems import Problems
from vinedresser.store.records import heartbeat_key, read_record

__all__ = ["RequestCounts", "request_counts"]


class RequestCounts(NamedTuple):
    """Requests of all processes of a service whose run directories are kept.

    Attributes:
        came: number of requests, recorded or not; None if it is not known.
        recorded: number of recorded ones, those that were removed later included; likewise.
        lost: number of requests that were to be recorded and could not; likewise.
        exact: whether all processes have told of their last requests: one that was killed has not,
            and one that is alive does so every few seconds.
    """

    came: int | None
    recorded: int | None
    lost: int | None
    exact: bool


def request_counts(folder: ServiceFolder, problems: Problems) -> RequestCounts:
    """See `RequestStore.counts`."""
    # The last run directory of each process tells of all of them.
    last = {run_process(run): run for run in sorted(folder.runs(REQUESTS), key=run_started)}
    beats: list[RequestsHeartbeat | None] = []
    for run in last.values():
        try:
            storage = folder.run_storage(run)
            beats.append(read_record(storage, RequestsHeartbeat, key=heartbeat_key(0)))
        except CorruptData as error:
            problems.note(str(error))
            beats.append(None)
    known = [beat for beat in beats if beat is not None]
    if len(known) < len(beats):
        return RequestCounts(None, None, None, exact=False)
    now = time.time()
    return RequestCounts(
        _sum([one.seen for one in known]),
        _sum([one.recorded for one in known]),
        _sum([one.dropped for one in known]),
        exact=all(one.closed or not is_over(one, now) for one in known),
    )


def _sum(counts: list[int | None]) -> int | None:
    """Return the sum; None if any is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
