"""Requests that a training executes between two steps: checkpoints, changes, pauses."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.executing import Executor, Save
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.store.records import (
    ControlRecord,
    TrainerAnswer,
    TrainerRequest,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_record,
)

# Seconds between two looks of a paused training at the signal to stop.
_GLANCE = 0.1


class _Pending(NamedTuple):
    """A request that is not yet executed.

    Attributes:
        number: its number; None for a replayed change, which nobody waits for.
        values: for a replayed change, the new value for each parameter group.
    """

    request: TrainerRequest
    number: int | None = None
    values: tuple[float, ...] | None = None


class TrainerRequests:
    """Executes requests to the trainer in order, except those that name a later step or an event.

    The writer's thread reads requests and stores answers; the training's thread executes them
    between two steps. A run of several processes refuses them: steps end at different times, so
    parameters would differ between replicas, and checkpoints between shards.

    Args:
        saves: return the functions that save the watched models.
        world_size: return the number of ranks.
        control: see `Executor`.
        replay: journal of another run, whose changes of parameters are made again.
    """

    def __init__(
        self,
        run: OpenedRun,
        session: Session,
        saves: Callable[[], Iterable[Save]],
        *,
        rank: int,
        world_size: Callable[[], int],
        control: bool | None = None,
        replay: Sequence[ControlRecord] = (),
    ) -> None:
        self.executor = Executor(run.storage, session, saves, control)
        self._storage = run.storage
        self._session = session
        self._rank = rank
        self._world_size = world_size
        self._number = 0
        self._pending = [_replayed(one) for one in replay if one.kind == "adjust"]
        # Answers that are not stored yet, with the numbers of their requests.
        self._answers: deque[tuple[int, TrainerAnswer]] = deque()
        self._noted = 0
        self._reading = threading.Lock()
        self._news = threading.Event()
        guard = session.shield.guard
        self._do = guard("requests to the trainer", self._between_steps, metered=False)
        self._execute = guard("a request to the trainer", self._execute_one, metered=False)
        self._arm()

    def look(self) -> None:
        """Store the answers to executed requests, and read new requests.

        Called about once a second on the writer's thread, and by the agent for its clients.

        Raises:
            StoreError: the storage failed.
        """
        with self._reading:
            self._store()
            self._read()
            # Of those that were refused at once.
            self._store()

    def happened(self, event: str) -> None:
        """Execute the requests that wait for an event; called on the training's thread."""
        if self._pending:
            self._execute_due(event)
            self._hold()

    def close(self) -> None:
        """Answer the pending requests.

        Raises:
            StoreError: the storage failed.
        """
        self._session.between_steps = None
        with self._reading:
            late = [one for one in self._pending if one.number is not None]
            self._pending.clear()
            for one in late:
                self._refuse(one, "the training ended before its next step")
            self._store()

    def _read(self) -> None:
        """Read the requests that have arrived."""
        while True:
            try:
                request = read_record(
                    self._storage, TrainerRequest, key=trainer_request_key(self._number)
                )
            except CorruptData as error:
                self._answers.append((self._number, self.executor.refusal(str(error))))
                self._number += 1
                continue
            if request is None:
                return
            pending = _Pending(request, self._number)
            self._number += 1
            if self._world_size() > 1:
                self._refuse(pending, "not supported in a run of several processes")
                continue
            self._pending.append(pending)
            self._arm()
            self._news.set()

    def _arm(self) -> None:
        """Call `_between_steps` at the end of the step if a request may be due then."""
        if any(not one.request.event for one in self._pending):
            self._session.between_steps = self._do

    def _store(self) -> None:
        """Store the journal, and then the answers."""
        journal = list(self.executor.journal)
        if len(journal) > self._noted and self._rank == 0:
            lines = [json.dumps(one.to_json()) for one in journal]
            self._storage.put(ControlRecord.KEY, ["".join(f"{line}\n" for line in lines).encode()])
            self._noted = len(journal)
        while self._answers:
            number, answer = self._answers[0]
            write_record(self._storage, answer, key=trainer_answer_key(number, self._rank))
            self._answers.popleft()

    def _refuse(self, one: _Pending, why: str) -> None:
        if one.number is not None:
            self._answers.append((one.number, self.executor.refusal(why)))
        else:
            self._session.shield.report(f"{one.request.reason}: {why}")

    # The methods below run on the training's thread.

    def _between_steps(self) -> None:
        self._execute_due("")
        self._hold()
        self._arm()

    def _execute_due(self, event: str) -> None:
        steps = self._session.recorder.steps
        for one in list(self._pending):
            request = one.request
            if request.event == event and (request.at is None or steps >= request.at):
                self._pending.remove(one)
                self._execute(one)

    def _execute_one(self, one: _Pending) -> None:
        answer = self.executor.refusal("it failed; see the training's output")
        try:
            answer = self.executor.execute(one.request, one.values)
        except ConfigError as error:
            answer = self.executor.refusal(str(error))
        finally:
            if one.number is not None:
                self._answers.append((one.number, answer))
            elif answer.refused:
                self._refuse(one, answer.refused)

    def _hold(self) -> None:
        """Wait while the training is paused, and execute what is requested in the meantime."""
        while (pause := self.executor.pause) is not None:
            if self._session.signal.requested or pause.over:
                self.executor.end_pause("asked to stop" if not pause.over else "the time is up")
                return
            self._news.wait(_GLANCE)
            self._news.clear()
            self._execute_due("")


def _replayed(change: ControlRecord) -> _Pending:
    request = TrainerRequest(
        "replay",
        "adjust",
        f"replay of {change.words} at step {change.step}",
        change.time,
        parameter=change.parameter,
        at=change.step,
    )
    return _Pending(request, values=tuple(change.new))
