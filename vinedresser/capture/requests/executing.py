"""What a training does on request between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vinedresser.capture.adapters.adapter import Change
from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.boosts import declare_boosts
from vinedresser.capture.requests.pausing import DEFAULT_PAUSE, Pause
from vinedresser.capture.requests.tunables import Declared, declare, find_declared
from vinedresser.errors import ConfigError
from vinedresser.objects import Storage
from vinedresser.objects.files import folder_below
from vinedresser.store.records import (
    ControlRecord,
    StopRecord,
    TrainerAnswer,
    TrainerRequest,
    write_first,
)

__all__ = ["Executor", "Save"]

# Saves a model's state to a directory, given the number of steps.
Save = Callable[[Path, int], object]


class Executor:
    """Executes requests on the training's thread, and keeps the journal of what they changed.

    Args:
        saves: return the functions that save the watched models.
        control: whether the training may be paused; None: if a parameter is declared.

    Attributes:
        tunables: declared parameters by name.
        pause: the pause that has begun; None: the training runs.
        journal: what has been changed so far.
    """

    def __init__(
        self,
        storage: Storage,
        session: Session,
        saves: Callable[[], Iterable[Save]],
        control: bool | None,
    ) -> None:
        self.tunables: dict[str, Declared] = {}
        self.pause: Pause | None = None
        self.journal: list[ControlRecord] = []
        self._storage = storage
        self._session = session
        self._saves = saves
        self._control = control

    @property
    def control(self) -> bool:
        """Whether the script allows the training to be steered."""
        return bool(self.tunables) if self._control is None else self._control

    def declare(self, name: str, targets: tuple[Any, ...], **options: Any) -> None:
        """Allow a parameter to be changed; see `Hook.tunable`."""
        if name == "boost" and len(targets) == 1:
            boosts = declare_boosts(targets[0], options["low"], options["high"])
            self.tunables |= {one.name: one for one in boosts}
            return
        self.tunables[name] = declare(name, targets, self._session.shield.guard, **options)

    def refusal(self, why: str) -> TrainerAnswer:
        """Return a refusal."""
        return TrainerAnswer(self._session.recorder.steps, time.time(), refused=why)

    def execute(self, request: TrainerRequest, values: Sequence[float] | None) -> TrainerAnswer:
        """Execute a request and note it in the journal.

        Args:
            values: new value of a parameter for each parameter group; None: as requested.

        Raises:
            ConfigError: it cannot be executed.
        """
        match request.kind:
            case "checkpoint":
                answer = TrainerAnswer(*self._now(), files=self._save())
            case "adjust":
                answer = self._adjust(request, values)
            case "snapshot":
                answer = self._snapshot()
            case "pause":
                answer = self._pause(request.seconds or DEFAULT_PAUSE)
            case "inject":
                answer = self._inject(request.snapshot)
            case "stop":
                answer = self._stop(request)
            case "resume":
                answer = self._resume()
                self.end_pause(request.reason)
                return answer
        self._note(request, answer)
        return answer

    def end_pause(self, reason: str) -> None:
        """Note the end of the pause."""
        pause, self.pause = self.pause, None
        assert pause is not None
        self.journal.append(
            ControlRecord(*self._now(), "resume", reason, seconds=round(pause.lasted, 3))
        )
        if self._session.recorder.timing is not None:
            # The pause is no part of a step.
            self._session.recorder.timing.forget()

    def _now(self) -> tuple[int, float]:
        return self._session.recorder.steps, time.time()

    def _note(self, request: TrainerRequest, answer: TrainerAnswer) -> None:
        self.journal.append(
            ControlRecord(
                answer.step,
                answer.time,
                request.kind,
                request.reason,
                parameter=request.parameter,
                old=answer.old,
                new=answer.new,
                files=answer.files,
                told=answer.told,
            )
        )

    def _save(self) -> list[str]:
        """Save a checkpoint; return the keys of its files."""
        directory = folder_below(Path(self._storage.location), "checkpoints")
        directory.mkdir(exist_ok=True)
        before = _files(directory)
        step = self._session.recorder.steps
        for save in self._saves():
            self._session.shield.guard("saving a checkpoint", save, metered=False)(directory, step)
        files = sorted(_files(directory) - before)
        if not files and step not in _steps(before):
            raise ConfigError(
                "nothing was saved: no model is watched, or see the training's output"
            )
        return [f"checkpoints/{name}" for name in files]

    def _adjust(self, request: TrainerRequest, values: Sequence[float] | None) -> TrainerAnswer:
        """Change a parameter."""
        if self._control is False:
            raise ConfigError("the script forbids control of the training (control = false)")
        declared = find_declared(self.tunables, request.parameter)
        files = self._save() if request.checkpoint_first else []
        old, new = declared.tunable.change(_change(request, declared, values))
        return TrainerAnswer(*self._now(), old=old, new=new, files=files)

    def _snapshot(self) -> TrainerAnswer:
        """Request a snapshot of the next step."""
        taker = self._session.snapshots
        if taker is None or not taker.sources:
            raise ConfigError(
                'the training takes no snapshots; start it with guard = "nonfinite" or '
                "--guard nonfinite (torch)"
            )
        taker.requested = True
        return TrainerAnswer(*self._now())

    def _inject(self, snapshot: str) -> TrainerAnswer:
        """Compute loss and gradients of the batch of a snapshot, without an update."""
        self._refuse_without_control("given a batch")
        takers = self._session.batch_takers
        if len(takers) != 1 or self._session.detected:
            raise ConfigError(
                "a batch can only be given to a training whose script passes one torch model to "
                "Hook.watch"
            )
        told = takers[0](snapshot)
        if self._session.recorder.timing is not None:
            # It is no part of a step.
            self._session.recorder.timing.forget()
        return TrainerAnswer(*self._now(), told=told)

    def _pause(self, seconds: float) -> TrainerAnswer:
        """Begin a pause."""
        self._refuse_without_control("paused")
        if self.pause is not None:
            raise ConfigError("the training is paused already")
        self.pause = Pause(seconds)
        return TrainerAnswer(*self._now())

    def _resume(self) -> TrainerAnswer:
        if self.pause is None:
            raise ConfigError("the training is not paused")
        return TrainerAnswer(*self._now())

    def _stop(self, request: TrainerRequest) -> TrainerAnswer:
        """Stop the training after this step.

        Raises:
            ConfigError: the script does not allow it.
        """
        self._refuse_without_control("stopped from outside")
        write_first(self._storage, StopRecord("person", request.reason, time.time()))
        self._session.signal.requested = True
        return TrainerAnswer(*self._now())

    def _refuse_without_control(self, what: str) -> None:
        if not self.control:
            raise ConfigError(
                f"the training cannot be {what}: its script declares neither a tunable nor "
                "control = true"
            )


def _files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".tmp-")}


def _steps(files: Iterable[str]) -> set[int]:
    """Return the steps of checkpoints by their names, ``step-<step>…``."""
    words = (name.removeprefix("step-").partition(".")[0] for name in files)
    return {int(word) for word in words if word.isdecimal()}


def _change(request: TrainerRequest, declared: Declared, values: Sequence[float] | None) -> Change:
    """Return the requested change, one call per parameter group."""
    rest = iter(values or ())

    def change(old: float) -> float:
        new = request.value
        if values is not None:
            new = next(rest, None)
        elif request.factor is not None:
            new = old * request.factor
        return declared.checked(new)

    return change
