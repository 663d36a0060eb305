"""Writing the inputs that alerts ask for, and only those."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from vinedresser.columns.rows import size_of
from vinedresser.errors import CorruptData
from vinedresser.processes import ProcessIdentity
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.input_ring import InputRing, KeptInputs
from vinedresser.serving.storing.encoding import encode_inputs, request_step
from vinedresser.serving.storing.layout import (
    INPUTS,
    AlertAnswer,
    AlertRequest,
    ServiceFolder,
    answer_key,
    numbered_key,
    numbers_in,
)
from vinedresser.serving.storing.request_log import RequestLog
from vinedresser.store.records import read_record, write_record

# Alerts that are answered at a time; others wait.
_MOST_ALERTS = 4


@dataclass
class _Active:
    """An alert that is being answered.

    Attributes:
        request: what it asks for.
        log: where the inputs go.
        found: number of its requests whose inputs were written.
        following: number of further requests whose inputs were written.
        bytes: bytes written.
    """

    number: int
    request: AlertRequest
    log: RequestLog
    found: int = 0
    following: int = 0
    bytes: int = 0


class AlertWatch:
    """Answers the alerts of a service in one process, on the worker's thread.

    Args:
        ring: the inputs of the last requests.
        process: this process, and its name in run directories.
        make_log: returns a log for a kind of run directories.
        most_bytes: maximum bytes written for one alert.
        faults: reports problems.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        ring: InputRing,
        process: tuple[ProcessIdentity, str],
        make_log: Callable[[str], RequestLog],
        *,
        most_bytes: int,
        faults: Faults,
    ) -> None:
        self._folder = folder
        self._ring = ring
        self._process, self._label = process
        self._make_log = make_log
        self._most_bytes = most_bytes
        self._faults = faults
        self._last = -1
        self._active: list[_Active] = []

    @property
    def runs(self) -> set[str]:
        """Names of the run directories that are being written."""
        return {one.log.run for one in self._active}

    def poll(self) -> None:
        """Answer new alerts, and end those whose time is over.

        Raises:
            StoreError: the storage refused.
        """
        for active in [*self._active]:
            if time.time() >= active.request.until:
                self._end(active)
        for number in numbers_in(self._folder.storage, AlertRequest.KEY, self._last):
            if len(self._active) >= _MOST_ALERTS:
                return
            key = numbered_key(AlertRequest.KEY, number)
            try:
                request = read_record(self._folder.storage, AlertRequest, key=key)
            except CorruptData as error:
                self._faults.report("alert", f"{error}; ignored")
                request = None
            self._last = number
            if request is not None and request.until > time.time():
                self._begin(number, request)

    def offer(self, kept: KeptInputs) -> None:
        """Write the inputs of new requests as far as active alerts ask for them.

        Raises:
            StoreError: the storage refused.
        """
        for active in [*self._active]:
            left = active.request.following - active.following
            if active.request.until > time.time():
                chosen = kept if len(kept.ids) <= left else kept.some([*range(left)])
                if self._write(active, chosen):
                    active.following += len(chosen.ids)
            if active.following >= active.request.following or not self._has_room(active):
                self._end(active)

    def close(self) -> None:
        """End all alerts.

        Raises:
            StoreError: the storage refused.
        """
        for active in [*self._active]:
            self._end(active)

    def _begin(self, number: int, request: AlertRequest) -> None:
        log = self._make_log(f"{INPUTS}-{number:06d}")
        active = _Active(number, request, log)
        # Before anything is written, so that a failure does not end the answer.
        self._active.append(active)
        for kept in self._ring.find(frozenset(one.encode() for one in request.ids)):
            if self._write(active, kept):
                active.found += len(kept.ids)
        if not request.following or not self._has_room(active):
            self._end(active)
        else:
            self._answer(active, done=False)

    def _write(self, active: _Active, kept: KeptInputs) -> bool:
        """Write inputs; return False if there is no room for them."""
        size = size_of(kept.inputs)
        if active.bytes + size > self._most_bytes:
            active.bytes = self._most_bytes
            return False
        active.bytes += size
        times = np.array(kept.times)
        tensors = encode_inputs(kept.inputs)
        record = request_step(active.log.next_step, kept.ids, times, tensors)
        active.log.append([record], len(kept.ids))
        return True

    def _has_room(self, active: _Active) -> bool:
        return active.bytes < self._most_bytes

    def _end(self, active: _Active) -> None:
        self._active.remove(active)
        active.log.close()
        self._answer(active, done=True)

    def _answer(self, active: _Active, *, done: bool) -> None:
        full = f"more than {self._most_bytes} bytes of inputs"
        answer = AlertAnswer(
            process=asdict(self._process),
            found=active.found,
            following=active.following,
            done=done,
            time=time.time(),
            refused="" if self._has_room(active) else full,
        )
        write_record(self._folder.storage, answer, key=answer_key(active.number, self._label))
