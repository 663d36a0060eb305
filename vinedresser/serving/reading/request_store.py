"""The recorded requests of a service, for readers in any process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from vinedresser.errors import ConfigError, CorruptData, NotARun
from vinedresser.serving.reading.alerts import (
    AlertState,
    alert_state,
    ask_for_inputs,
    captured_inputs,
)
from vinedresser.serving.reading.counting import RequestCounts, request_counts
from vinedresser.serving.reading.merging import Position, decoded, read_merged
from vinedresser.serving.reading.requests import Requests, concatenated
from vinedresser.serving.reading.run_reading import RequestStep, RunReading
from vinedresser.serving.storing.encoding import stored_id
from vinedresser.serving.storing.layout import (
    REQUESTS,
    LabelsRecord,
    ServiceFolder,
    ServiceRecord,
    numbered_key,
    numbers_in,
    write_next,
)
from vinedresser.store.json_values import DAMAGE
from vinedresser.store.problems import Problems
from vinedresser.store.records import read_record

__all__ = ["Labelled", "RequestStore"]

# Labels in one record.
_LABELS_EACH = 10_000


class Labelled(NamedTuple):
    """Requests whose labels have arrived.

    Attributes:
        unknown: ids with a label but without a recorded request.
        cursor: where to continue.
    """

    requests: Requests
    unknown: tuple[str, ...]
    cursor: dict[str, Any]


class RequestStore:
    """Reads the requests that `RequestRecorder` has recorded; several readers may do so at once.

    Args:
        location: directory or URL of the service: its name in its store.

    Attributes:
        problems: sentences about damaged data, which is skipped.

    Raises:
        ConfigError: the location is invalid.
        MissingDependency: the store is on S3, and the extra "s3" is not installed.
        StoreError: the configuration for S3 is invalid.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        store, _, name = os.fspath(location).rstrip("/").rpartition("/")
        self._folder = ServiceFolder(store or ("/" if location == f"/{name}" else "."), name)
        self._problems = Problems()
        self._labels: dict[bytes, Any] = {}
        self._labels_read = -1

    @property
    def problems(self) -> list[str]:
        """Sentences about damaged data."""
        return self._problems.sentences

    def after(
        self, cursor: Mapping[str, Any] | None = None, limit: int = 10_000
    ) -> tuple[Requests, dict[str, Any]]:
        """Return the requests that follow those already read, in the order of time.

        Each committed request is returned exactly once, unless it was removed before. Processes
        commit at intervals, so a request may be returned after a slightly later one of another
        process.

        Args:
            cursor: the cursor of the previous call, from any process; None: from the beginning.
            limit: maximum number of requests.

        Returns:
            The requests, and a cursor: a JSON object.

        Raises:
            ConfigError: the cursor is invalid, or the limit is not positive.
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        if limit < 1:
            raise ConfigError(f"limit: {limit} is not a positive number")
        positions = _positions(cursor)
        self._check()
        self._read_labels()
        found, present = read_merged(
            self._folder, positions, limit, labels=self._labels, problems=self._problems
        )
        return found, {"runs": {run: [*asdict(one).values()] for run, one in present.items()}}

    def counts(self) -> RequestCounts:
        """Return how many requests the service had, and how many of them were recorded.

        Raises:
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        self._check()
        return request_counts(self._folder, self._problems)

    def of_ids(self, ids: Sequence[object]) -> Requests:
        """Return recorded requests by their ids, in the order of their time; others are left out.

        It reads the ids of all recorded requests.

        Raises:
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        self._check()
        self._read_labels()
        wanted = np.array([stored_id(one) for one in ids] or [b""], np.bytes_)
        pieces = []
        for run in self._folder.runs(REQUESTS):
            reading = RunReading(self._folder.run_storage(run), self._problems)
            only: frozenset[str] = frozenset()
            segments = {
                step.segment for step in _steps(reading, 0, only) if np.isin(step.ids, wanted).any()
            }
            for segment in sorted(segments):
                for step in _steps(reading, segment):
                    if step.segment != segment:
                        break
                    requests = decoded(step, self._labels, self._problems, run)
                    if requests is not None:
                        rows = np.flatnonzero(np.isin(step.ids, wanted))
                        pieces.append(requests.some(rows))
        found = concatenated(pieces)
        return found.some(np.argsort(found.times, kind="stable"))

    def add_labels(self, ids: Sequence[object], labels: Sequence[Any]) -> None:
        """Add labels that have become known; a later label of an id replaces an earlier one.

        Args:
            ids: ids of the requests.
            labels: the label of each: a number, text or boolean.

        Raises:
            ConfigError: there are not as many labels as ids, or a label is something else.
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
        names = [stored_id(one).decode() for one in ids]
        self._check()
        for first in range(0, max(len(names), len(plain)), _LABELS_EACH):
            some = slice(first, first + _LABELS_EACH)
            try:
                record = LabelsRecord(names[some], plain[some], time.time())
            except DAMAGE as error:
                raise ConfigError(f"labels: {error}") from error
            write_next(self._folder.storage, record)

    def labelled(
        self, cursor: Mapping[str, Any] | None = None, limit: int = 10_000, settle: float = 30.0
    ) -> Labelled:
        """Return the requests whose labels were added since the previous call.

        Args:
            cursor: the cursor of the previous call; None: from the beginning.
            limit: number of labels after which it returns.
            settle: age in seconds at which labels are read: younger ones may belong to requests
                that are not committed yet.

        Raises:
            ConfigError: the cursor is invalid.
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        last = -1 if cursor is None else cursor.get("labels")
        if not isinstance(last, int):
            raise ConfigError(f"cursor: {cursor!r} is not one of `labelled`")
        self._check()
        ids: dict[str, None] = {}
        for number, record in self._label_records(last):
            if len(ids) >= limit or record.time > time.time() - settle:
                break
            ids |= dict.fromkeys(record.ids)
            last = number
        found = self.of_ids([*ids])
        unknown = ids.keys() - set(found.ids)
        return Labelled(found, tuple(one for one in ids if one in unknown), {"labels": last})

    def ask_for_inputs(
        self,
        alert: str,
        ids: Sequence[object],
        following: int = 0,
        until: float | None = None,
    ) -> None:
        """Ask the service for the full inputs of some requests, and of some that follow.

        Each process writes those that it still has in memory, and nothing else. Asking again for
        the same alert does nothing.

        Args:
            alert: name of the alert.
            ids: ids of the requests, at most 10,000.
            following: number of further requests of each process, at most 10,000.
            until: end of the wait for further requests, seconds since the epoch; at most a week
                from now. None: an hour from now.

        Raises:
            ConfigError: an argument is out of range.
            NotARun: no service has recorded anything there.
            StoreError: the storage refused.
        """
        self._check()
        ask_for_inputs(
            self._folder,
            alert,
            ids,
            following=following,
            until=until,
            problems=self._problems,
        )

    def alert_state(self, alert: str) -> AlertState | None:
        """Return what has been answered to an alert; None if there is no such alert.

        Raises:
            StoreError: the storage refused.
        """
        return alert_state(self._folder, alert, self._problems)

    def inputs_of(self, ids: Sequence[object]) -> dict[str, Any]:
        """Return the full inputs of requests, as far as an alert asked for them.

        Returns:
            The input of each found id, without the axis of the requests: an array, or a mapping of
            named parts, in which values of lists are as in JSON.

        Raises:
            StoreError: the storage refused.
        """
        return captured_inputs(self._folder, ids, self._problems)

    def _check(self) -> None:
        if not self._folder.storage.exists(ServiceRecord.KEY):
            raise NotARun(
                f"{self._folder.location}: no requests were recorded there: there is no "
                f"{ServiceRecord.KEY}"
            )

    def _read_labels(self) -> None:
        for number, record in self._label_records(self._labels_read):
            pairs = zip(record.ids, record.labels, strict=True)
            self._labels |= {one.encode(): label for one, label in pairs}
            self._labels_read = number

    def _label_records(self, after: int) -> Iterator[tuple[int, LabelsRecord]]:
        storage = self._folder.storage
        for number in numbers_in(storage, LabelsRecord.KEY, after):
            try:
                record = read_record(storage, LabelsRecord, key=numbered_key("labels", number))
            except CorruptData as error:
                self._problems.note(f"{error}; its labels are missing")
                continue
            if record is not None:
                yield number, record


def _steps(
    reading: RunReading, first: int, only: frozenset[str] | None = None
) -> Iterator[RequestStep]:
    return (step for step in reading.steps(first, only) if not isinstance(step, int))


def _positions(cursor: Mapping[str, Any] | None) -> dict[str, Position]:
    if cursor is None:
        return {}
    try:
        runs = {str(run): Position(*position) for run, position in cursor["runs"].items()}
        valid = all(
            type(one.segment) is int
            and type(one.row) is int
            and type(one.over) is bool
            and one.segment >= 0
            and one.row >= 0
            for one in runs.values()
        )
    except DAMAGE as error:
        raise ConfigError(f"cursor: {cursor!r} is not one of `after`") from error
    if not valid:
        raise ConfigError(f"cursor: {cursor!r} is not one of `after`")
    return runs
