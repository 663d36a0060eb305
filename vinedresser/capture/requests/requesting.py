"""Asking a running training to capture something else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.errors import ConfigError, NotARun, did_you_mean
from vinedresser.store.collections.collection import BUILT_IN, Collection
from vinedresser.store.records import (
    CaptureChange,
    CaptureRequest,
    Record,
    RunRecord,
    capture_change_key,
    capture_request_key,
    read_record,
    write_numbered,
)
from vinedresser.store.status import run_status
from vinedresser.store.storage import Storage

__all__ = ["await_answer", "await_change", "request_capture"]

R = TypeVar("R", bound=Record)

_POLL = 0.05


def request_capture(
    storage: Storage, collections: Iterable[Collection], *, steps: int | None = None
) -> int:
    """Ask a run to capture collections as given, from its next step on.

    A collection that the run captures already is saved as given instead of as before, but for what
    its rules need; of a collection that is not built in and not known to the run, the regex, the
    modules or the types must be given.

    Args:
        storage: the run's.
        collections: with their new save configs.
        steps: for how many train steps; then all is as before. None: for good.

    Returns:
        The number of the request; `await_change` waits for the answer.

    Raises:
        NotARun: there is no run.json.
        ConfigError: a collection is unknown, or the run is over.
        StoreError: the storage refused.
    """
    record = read_record(storage, RunRecord)
    if record is None:
        raise NotARun(f"{storage.location}: not a run: there is no {RunRecord.KEY}")
    status = run_status(storage)
    if status.over:
        raise ConfigError(f"{storage.location}: is {status.state}; only a running run can change")
    asked = list(collections)
    for collection in asked:
        _check_known(collection, record, storage.location)
    known = CaptureConfig.from_json(record.capture)
    changed = known.changed(CaptureConfig({one.name: _complete(one, known) for one in asked}))
    table = {one.name: changed.collections[one.name].to_json() for one in asked}
    request = CaptureRequest(table, time.time(), steps)
    return write_numbered(storage, request, capture_request_key)


def await_change(
    storage: Storage, number: int, timeout: float, rank: int = 0
) -> CaptureChange | None:
    """Return what a run's hook made of a request; None when it did not say in time.

    Args:
        storage: the run's.
        number: of the request.
        timeout: seconds; it is given up before when the run is over.
        rank: whose answer.

    Raises:
        StoreError: the storage refused.
    """
    return await_answer(storage, CaptureChange, capture_change_key(number, rank), timeout)


def await_answer(storage: Storage, kind: type[R], key: str, timeout: float) -> R | None:
    """Return what a run's hook answered to a request; None when it did not say in time.

    Args:
        storage: the run's.
        kind: of the answer.
        key: of the answer.
        timeout: seconds; it is given up before when the run is over.

    Raises:
        StoreError: the storage refused.
    """
    deadline = time.monotonic() + timeout
    while True:
        over = run_status(storage).over or time.monotonic() > deadline
        answer = read_record(storage, kind, key=key)
        if answer is not None or over:
            return answer
        time.sleep(_POLL)


def _check_known(collection: Collection, record: RunRecord, location: str) -> None:
    known = [*BUILT_IN, *record.capture]
    if collection.name not in known and not collection.selects:
        hint = did_you_mean(collection.name, known) or f"; it has {', '.join(sorted({*known}))}"
        raise ConfigError(
            f"{location}: has no collection {collection.name!r}, and no regex makes it one{hint}"
        )


def _complete(collection: Collection, known: CaptureConfig) -> Collection:
    """Return a collection with the regex, modules and types that the run knows it by."""
    mine = known.collections.get(collection.name)
    if mine is None or collection.selects:
        return collection
    return Collection(
        collection.name, mine.regex, collection.save, mine.modules, mine.types, mine.kinds
    )
