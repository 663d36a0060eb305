"""Sending requests to a running training, and awaiting the answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.requests.trying_regex import check_quick
from vinedresser.errors import ConfigError, NotARun, did_you_mean
from vinedresser.objects import Storage
from vinedresser.store.collections.collection import BUILT_IN, KINDS, Collection
from vinedresser.store.records import (
    CaptureChange,
    CaptureRequest,
    ControlRecord,
    Record,
    RunRecord,
    TrainerAnswer,
    TrainerRequest,
    capture_change_key,
    capture_request_key,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)
from vinedresser.store.status import run_status

__all__ = [
    "answer_words",
    "await_answer",
    "await_change",
    "await_trainer",
    "request_capture",
    "request_trainer",
]

R = TypeVar("R", bound=Record)

_POLL = 0.05


def request_capture(
    storage: Storage, collections: Iterable[Collection], *, steps: int | None = None
) -> int:
    """Ask a run to change its collections with the next step.

    The new save configs replace those of the user, not those of the rules. A collection that is
    neither built in nor known to the run needs a regex, modules or types.

    Args:
        collections: collections with their new save configs.
        steps: number of train steps until the change is reverted; None: never.

    Returns:
        The number of the request, for `await_change`.

    Raises:
        NotARun: run.json is missing.
        ConfigError: a collection is unknown, its regex takes too long, or the run is over.
        StoreError: the storage failed.
    """
    record = _running(storage)
    asked = list(collections)
    for collection in asked:
        _check_known(collection, record, storage.location)
        if collection.regex is not None:
            check_quick(collection.regex, _possible_names(record))
    known = CaptureConfig.from_json(record.capture)
    changed = known.changed(CaptureConfig({one.name: _complete(one, known) for one in asked}))
    table = {one.name: changed.collections[one.name].to_json() for one in asked}
    request = CaptureRequest(table, time.time(), steps)
    return write_numbered(storage, request, capture_request_key)


def await_change(storage: Storage, number: int, timeout: float) -> CaptureChange | None:
    """Return the answer of rank 0 to a capture request, or None; see `await_answer`.

    Args:
        timeout: maximum time to wait, in seconds.

    Raises:
        StoreError: the storage failed.
    """
    return await_answer(storage, CaptureChange, capture_change_key(number, 0), timeout)


def request_trainer(storage: Storage, request: TrainerRequest) -> int:
    """Ask a training to act between two steps; return the number of the request.

    Raises:
        NotARun: run.json is missing.
        ConfigError: the run is over.
        StoreError: the storage failed.
    """
    _running(storage)
    return write_numbered(storage, request, trainer_request_key)


def await_trainer(storage: Storage, number: int, timeout: float) -> TrainerAnswer | None:
    """Return the answer of rank 0 to a request to the trainer, or None; see `await_answer`.

    Args:
        timeout: maximum time to wait, in seconds.

    Raises:
        StoreError: the storage failed.
    """
    return await_answer(storage, TrainerAnswer, trainer_answer_key(number, 0), timeout)


def await_answer(storage: Storage, kind: type[R], key: str, timeout: float) -> R | None:
    """Return the hook's answer to a request, or None on timeout or if the run is over.

    Args:
        kind: record class of the answer.
        timeout: maximum time to wait, in seconds.

    Raises:
        StoreError: the storage failed.
    """
    deadline = time.monotonic() + timeout
    while True:
        over = run_status(storage).over or time.monotonic() > deadline
        answer = read_record(storage, kind, key=key)
        if answer is not None or over:
            return answer
        time.sleep(_POLL)


def answer_words(request: TrainerRequest, answer: TrainerAnswer | None) -> str:
    """Return what a training has done for a request; that it has yet to do so if it is None."""
    if answer is None:
        return f"request sent; the training has not reached {_awaited(request)}"
    kind, parameter = request.kind, request.parameter
    record = ControlRecord(answer.step, answer.time, kind, parameter=parameter, told=answer.told)
    if kind == "adjust":
        old, new = (", ".join(f"{one:g}" for one in some) for some in (answer.old, answer.new))
        done = f"{parameter} changed from {old or 'unset'} to {new} as of step {answer.step}"
    elif kind in ("snapshot", "stop"):
        done = f"{kind} of step {answer.step}" if kind == "snapshot" else "stopping"
    else:
        done = f"{record.words} after {answer.step} steps"
    return f"{done}: {', '.join(answer.files)}" if answer.files else done


def _awaited(request: TrainerRequest) -> str:
    if request.event:
        return f"the next event {request.event!r}"
    return "the end of its step" if request.at is None else f"step {request.at}"


def _running(storage: Storage) -> RunRecord:
    """Return the record of a run.

    Raises:
        StoreError: the storage failed.
    """
    record = read_record(storage, RunRecord)
    if record is None:
        raise NotARun(f"{storage.location}: not a run: {RunRecord.KEY} is missing")
    status = run_status(storage)
    if status.over:
        raise ConfigError(f"{storage.location}: the run is {status.state}, not running")
    return record


def _check_known(collection: Collection, record: RunRecord, location: str) -> None:
    known = [*BUILT_IN, *record.capture]
    if collection.name not in known and not collection.selects:
        hint = did_you_mean(collection.name, known) or f"; known: {', '.join(sorted({*known}))}"
        raise ConfigError(
            f"{location}: no collection {collection.name!r}; a new one needs a regex{hint}"
        )


def _possible_names(record: RunRecord) -> Iterator[str]:
    """Yield names that tensors of a run have, or names much like them."""
    for path in record.modules:
        for kind in KINDS:
            yield f"{kind}/{path}"
            yield f"{kind}/{path}.weight"


def _complete(collection: Collection, known: CaptureConfig) -> Collection:
    """Return a collection with the regex, modules and types it has in the run."""
    mine = known.collections.get(collection.name)
    if mine is None or collection.selects:
        return collection
    return replace(mine, save=collection.save)
