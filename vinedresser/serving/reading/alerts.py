"""Alerts: asking a service for full inputs, its answers, and the inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vinedresser.errors import ConfigError, CorruptData
from vinedresser.serving.reading.run_reading import RunReading
from vinedresser.serving.storing.encoding import decode_inputs, stored_id
from vinedresser.serving.storing.layout import (
    ANSWERS,
    INPUTS,
    MOST_INPUTS,
    REQUESTS,
    AlertAnswer,
    AlertRequest,
    RequestsHeartbeat,
    ServiceFolder,
    numbered_key,
    numbers_in,
    run_process,
    write_next,
)
from vinedresser.serving.storing.retention import is_over
from vinedresser.store.problems import Problems
from vinedresser.store.records import heartbeat_key, read_record

__all__ = ["AlertState", "alert_state", "ask_for_inputs", "captured_inputs"]

# Seconds that an alert may wait for further requests: by default, and at most.
_WAIT = 3600.0
_LONGEST_WAIT = 7 * 86400.0


@dataclass(frozen=True)
class AlertState:
    """What the processes of a service have answered to an alert.

    Attributes:
        found: number of requests of the alert whose inputs were written.
        following: number of further requests whose inputs were written.
        answers: number of processes that have answered.
        done: no living process will write more for it.
        refused: why processes wrote less than they could.
    """

    found: int
    following: int
    answers: int
    done: bool
    refused: tuple[str, ...]


def ask_for_inputs(
    folder: ServiceFolder,
    alert: str,
    ids: Sequence[object],
    *,
    following: int,
    until: float | None,
    problems: Problems,
) -> None:
    """See `RequestStore.ask_for_inputs`."""
    now = time.time()
    end = now + _WAIT if until is None else until
    if not now < end <= now + _LONGEST_WAIT:
        raise ConfigError(f"until: {until} is not a time within a week from now ({now:.0f})")
    if len(ids) > MOST_INPUTS or not 0 <= following <= MOST_INPUTS:
        raise ConfigError(
            f"{len(ids)} ids and {following} following requests: at most {MOST_INPUTS} each"
        )
    if _find(folder, alert, problems) is None:
        names = [stored_id(one).decode() for one in ids]
        write_next(folder.storage, AlertRequest(alert, names, following, end, now))


def alert_state(folder: ServiceFolder, alert: str, problems: Problems) -> AlertState | None:
    """See `RequestStore.alert_state`."""
    found = _find(folder, alert, problems)
    if found is None:
        return None
    number, request = found
    now = time.time()
    answers: dict[str, AlertAnswer] = {}
    for key in folder.storage.list(f"{ANSWERS}/{number:06d}/"):
        try:
            answer = read_record(folder.storage, AlertAnswer, key=key)
        except CorruptData as error:
            problems.note(str(error))
            continue
        if answer is not None:
            answers[key.rpartition("/")[2].removesuffix(".json")] = answer
    waiting = [
        process
        for process in _running(folder, now)
        if process not in answers or not answers[process].done
    ]
    return AlertState(
        sum(one.found for one in answers.values()),
        sum(one.following for one in answers.values()),
        len(answers),
        not waiting or now > request.until,
        tuple(sorted({one.refused for one in answers.values() if one.refused})),
    )


def captured_inputs(
    folder: ServiceFolder, ids: Sequence[object], problems: Problems
) -> dict[str, Any]:
    """See `RequestStore.inputs_of`."""
    wanted = frozenset(stored_id(one) for one in ids)
    found: dict[str, Any] = {}
    for run in folder.runs(INPUTS):
        storage = folder.run_storage(run)
        for step in RunReading(storage, problems).steps(0):
            if isinstance(step, int):
                continue
            names = step.ids.tolist()
            try:
                inputs = decode_inputs(step.tensors, len(names))
            except CorruptData as error:
                problems.note(f"{storage.location}: {error}")
                continue
            for row, name in enumerate(names):
                if name in wanted:
                    parts = {part: values[row] for part, values in inputs.items()}
                    value = parts[""] if [*parts] == [""] else parts
                    found[name.decode("utf-8", "replace")] = value
    return found


def _running(folder: ServiceFolder, now: float) -> Iterator[str]:
    """Yield the names of the processes that record requests."""
    for run in folder.runs(REQUESTS):
        try:
            beat = read_record(folder.run_storage(run), RequestsHeartbeat, key=heartbeat_key(0))
        except CorruptData:
            continue
        if beat is not None and not is_over(beat, now):
            yield run_process(run)


def _find(folder: ServiceFolder, alert: str, problems: Problems) -> tuple[int, AlertRequest] | None:
    for number in reversed(numbers_in(folder.storage, AlertRequest.KEY)):
        key = numbered_key(AlertRequest.KEY, number)
        try:
            record = read_record(folder.storage, AlertRequest, key=key)
        except CorruptData as error:
            problems.note(str(error))
            continue
        if record is not None and record.alert == alert:
            return number, record
    return None
