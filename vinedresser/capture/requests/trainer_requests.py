"""What others ask the trainer to do between two steps: save a checkpoint, change a parameter."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vinedresser.capture.adapters.tunable import Change, Tunable
from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.tunables import make_tunable
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.store.records import (
    TrainerAnswer,
    TrainerRequest,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_record,
)

__all__ = ["TrainerRequests"]

# Saves the model as it is after so many steps.
_Save = Callable[[Path, int], object]


class TrainerRequests:
    """Sees to the requests to the trainer, one after the other.

    The writer's thread looks for them and stores the answers; between two steps, the training's
    thread does what is asked. Of a run of several processes none does anything: their steps end at
    different times, so parameters would differ between replicas, and shards between checkpoints.

    Args:
        run: the run.
        session: captures.
        saves: returns what saves the watched models.
        rank: of this process.
        world_size: returns how many there are.
    """

    def __init__(
        self,
        run: OpenedRun,
        session: Session,
        saves: Callable[[], Iterable[_Save]],
        *,
        rank: int,
        world_size: Callable[[], int],
    ) -> None:
        self._storage = run.storage
        self._session = session
        self._saves = saves
        self._rank = rank
        self._world_size = world_size
        self._tunables: dict[str, Tunable] = {}
        self._number = 0
        # The request that is being seen to, and what came of it.
        self._request: TrainerRequest | None = None
        self._answer: TrainerAnswer | None = None
        self._do = session.shield.guard("a request to the trainer", self._see_to_it)

    def declare(self, name: str, targets: tuple[Any, ...]) -> None:
        """Let a parameter be changed; see `vinedresser.capture.requests.tunables.make_tunable`."""
        self._tunables[name] = make_tunable(name, targets, self._session.shield.guard)

    def look(self) -> None:
        """Store the answer to the last request, and look for the next one.

        Called now and then on the writer's thread.

        Raises:
            StoreError: the storage refused.
        """
        if self._answer is not None:
            self._put(self._answer)
        if self._request is not None:
            return
        try:
            request = read_record(
                self._storage, TrainerRequest, key=trainer_request_key(self._number)
            )
        except CorruptData as error:
            self._put(self._refusal(str(error)))
            return
        if request is None:
            return
        if self._world_size() > 1:
            self._put(self._refusal("the run has several processes, which do not act as one"))
            return
        self._request = request
        self._session.between_steps = self._do

    def close(self) -> None:
        """Answer what is still to be answered.

        Raises:
            StoreError: the storage refused.
        """
        self._session.between_steps = None
        if self._request is not None:
            self._put(self._answer or self._refusal("the training ended before its next step"))

    def _put(self, answer: TrainerAnswer) -> None:
        """Store the answer to the request whose turn it is; then it is the next one's."""
        write_record(self._storage, answer, key=trainer_answer_key(self._number, self._rank))
        self._number += 1
        self._request = self._answer = None

    def _refusal(self, why: str) -> TrainerAnswer:
        return TrainerAnswer(self._session.recorder.steps, time.time(), refused=why)

    # What follows runs between two steps.

    def _see_to_it(self) -> None:
        request = self._request
        assert request is not None
        answer = self._refusal("it failed, as the training's output says")
        try:
            answer = self._save() if request.kind == "checkpoint" else self._adjust(request)
        except ConfigError as error:
            answer = self._refusal(str(error))
        finally:
            self._answer = answer

    def _save(self) -> TrainerAnswer:
        """Save a checkpoint.

        Raises:
            ConfigError: there is nothing to save, or it could not be saved.
        """
        directory = Path(self._storage.location, "checkpoints")
        directory.mkdir(exist_ok=True)
        before = _files(directory)
        step = self._session.recorder.steps
        for save in self._saves():
            self._session.shield.guard("saving a checkpoint", save)(directory, step)
        files = sorted(_files(directory) - before)
        if not files:
            raise ConfigError("nothing was saved: no model is watched, or its output says why not")
        return TrainerAnswer(step, time.time(), files=[f"checkpoints/{name}" for name in files])

    def _adjust(self, request: TrainerRequest) -> TrainerAnswer:
        """Change a parameter.

        Raises:
            ConfigError: the user has not declared it, or the new value is none.
        """
        tunable = self._tunables.get(request.parameter)
        if tunable is None:
            raise ConfigError(
                f"{request.parameter} is not declared: hook.tunable({request.parameter!r}, …)"
            )
        old, new = tunable.change(_change(request))
        return TrainerAnswer(self._session.recorder.steps, time.time(), old=old, new=new)


def _files(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir() if not one.name.startswith(".tmp-")}


def _change(request: TrainerRequest) -> Change:
    """Return the change that is asked for."""

    def change(old: float) -> float:
        new = request.value
        if request.factor is not None:
            new = old * request.factor
        if new is None or not math.isfinite(new) or new < 0:
            raise ConfigError(f"{request.parameter}: cannot become {new}")
        return new

    return change
