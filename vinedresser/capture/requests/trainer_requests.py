"""Requests that a training executes between two steps: save a checkpoint, change a parameter."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vinedresser.capture.adapters.adapter import Change, Guard, Tunable
from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.capture.recording.session import Session
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

# The learning rate, and the maximum total norm of the gradients.
_TUNABLE = ("lr", "clip")

# Saves a model's state to a directory, given the number of steps.
_Save = Callable[[Path, int], object]


class TrainerRequests:
    """Executes requests to the trainer, one after the other.

    The writer's thread reads requests and stores answers; the training's thread executes them
    between two steps. A run of several processes refuses them: steps end at different times, so
    parameters would differ between replicas, and checkpoints between shards.

    Args:
        run: the run.
        session: session of the hook.
        saves: return the functions that save the watched models.
        rank: rank of this process.
        world_size: return the number of ranks.
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
        # The request in progress, and its answer.
        self._request: TrainerRequest | None = None
        self._answer: TrainerAnswer | None = None
        self._do = session.shield.guard("a request to the trainer", self._execute, metered=False)

    def declare(self, name: str, targets: tuple[Any, ...]) -> None:
        """Allow a parameter to be changed; see `Hook.tunable`."""
        self._tunables[name] = _make_tunable(name, targets, self._session.shield.guard)

    def look(self) -> None:
        """Store the answer to the last request, and read the next one.

        Called about once a second on the writer's thread.

        Raises:
            StoreError: the storage failed.
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
            self._put(self._refusal("not supported in a run of several processes"))
            return
        self._request = request
        self._session.between_steps = self._do

    def close(self) -> None:
        """Answer the pending request.

        Raises:
            StoreError: the storage failed.
        """
        self._session.between_steps = None
        if self._request is not None:
            self._put(self._answer or self._refusal("the training ended before its next step"))

    def _put(self, answer: TrainerAnswer) -> None:
        """Store the answer to the current request and advance to the next one."""
        write_record(self._storage, answer, key=trainer_answer_key(self._number, self._rank))
        self._number += 1
        self._request = self._answer = None

    def _refusal(self, why: str) -> TrainerAnswer:
        return TrainerAnswer(self._session.recorder.steps, time.time(), refused=why)

    def _execute(self) -> None:
        """Execute the current request; called between two steps."""
        request = self._request
        assert request is not None
        answer = self._refusal("it failed; see the training's output")
        try:
            answer = self._save() if request.kind == "checkpoint" else self._adjust(request)
        except ConfigError as error:
            answer = self._refusal(str(error))
        finally:
            self._answer = answer

    def _save(self) -> TrainerAnswer:
        """Save a checkpoint.

        Raises:
            ConfigError: nothing was saved.
        """
        directory = Path(self._storage.location, "checkpoints")
        directory.mkdir(exist_ok=True)
        before = _files(directory)
        step = self._session.recorder.steps
        for save in self._saves():
            self._session.shield.guard("saving a checkpoint", save, metered=False)(directory, step)
        files = sorted(_files(directory) - before)
        if not files:
            raise ConfigError(
                "nothing was saved: no model is watched, or see the training's output"
            )
        return TrainerAnswer(step, time.time(), files=[f"checkpoints/{name}" for name in files])

    def _adjust(self, request: TrainerRequest) -> TrainerAnswer:
        """Change a parameter.

        Raises:
            ConfigError: the parameter is not declared, or the new value is invalid.
        """
        tunable = self._tunables.get(request.parameter)
        if tunable is None:
            raise ConfigError(
                f"{request.parameter} is not declared by hook.tunable({request.parameter!r}, …)"
            )
        old, new = tunable.change(_change(request))
        return TrainerAnswer(self._session.recorder.steps, time.time(), old=old, new=new)


def _files(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir() if not one.name.startswith(".tmp-")}


def _change(request: TrainerRequest) -> Change:
    """Return the requested change."""

    def change(old: float) -> float:
        new = request.value
        if request.factor is not None:
            new = old * request.factor
        if new is None or not math.isfinite(new) or new < 0:
            raise ConfigError(f"{request.parameter}: cannot be set to {new}")
        return new

    return change


def _make_tunable(name: str, targets: tuple[Any, ...], guard: Guard) -> Tunable:
    """Return the tunable for a parameter; see `Hook.tunable`.

    Args:
        name: "lr" or "clip".
        targets: optimizers; for "lr" of torch, one optimizer and its schedulers.
        guard: see `Shield.guard`.

    Raises:
        ConfigError: the name is unknown, or a target does not have the parameter.
        MissingDependency: a package of the framework's extra is not installed.
    """
    if name not in _TUNABLE:
        raise ConfigError(f"tunable({name!r}): must be one of {', '.join(_TUNABLE)}")
    if not targets:
        raise ConfigError(f"tunable({name!r}): pass an optimizer")
    if is_a(targets[0], "torch", "optim.Optimizer"):
        with needed("a torch optimizer", "torch"):
            from vinedresser.capture.torch_.optimizers.tuning import GradientClip, TorchLearningRate
        if name == "lr":
            return TorchLearningRate(targets[0], targets[1:])
        return GradientClip(targets, guard)
    if is_a(targets[0], "keras", "optimizers.Optimizer") and name == "lr":
        with needed("a Keras optimizer", "tensorflow"):
            from vinedresser.capture.keras_.tuning import KerasLearningRate
        return KerasLearningRate(targets)
    kind = f"{type(targets[0]).__module__}.{type(targets[0]).__qualname__}"
    raise ConfigError(
        f"tunable({name!r}, …): not supported by a {kind}; pass a torch.optim.Optimizer"
        + (" or a keras.optimizers.Optimizer" if name == "lr" else "")
    )
