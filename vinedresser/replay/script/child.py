"""The side of a replay in the process of the script."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.errors import VinedresserError
from vinedresser.replay.answers import Answer
from vinedresser.replay.batch import Batch, selected
from vinedresser.replay.changed_inputs import changed_inputs
from vinedresser.replay.factory import Parts
from vinedresser.replay.locating import locate_in, nonfinite_inputs, origin_of_gradients
from vinedresser.replay.recorded import RecordedStep, recorded_step
from vinedresser.replay.restoring import adopt_environment
from vinedresser.replay.running import Replay
from vinedresser.replay.samples import with_samples
from vinedresser.replay.script.settings import ScriptResult, ScriptSettings
from vinedresser.replay.script.trial import ScriptTrial
from vinedresser.replay.script.watching import WHOSE, ScriptStep
from vinedresser.replay.stepping import compared, inexact
from vinedresser.replay.what_if.precision import cast_batch, in_precision, widening
from vinedresser.replay.wider import WIDER
from vinedresser.snapshots.reading import Snapshot, open_snapshot
from vinedresser.store.records import REPLAY_VARIABLE

_OTHER_LOSS = (
    "from the same inputs, the script computes another loss than in the training, as one does that "
    "depends on the number of the step or on earlier steps; use --factory"
)
_OTHER_ROUNDING = (
    "the snapshot, of an earlier version, does not say which processor computed it; another one "
    "rounds differently"
)


def attach() -> None:
    """Wait for the step of the script, which has just imported torch."""
    settings = ScriptSettings.from_text(os.environ[REPLAY_VARIABLE])
    if settings.parent != os.getppid():
        # A process that the script has started.
        return
    answer = _Answer(settings.directory)
    try:
        snapshot = open_snapshot(settings.snapshot)
        step = recorded_step(snapshot, loaded=True)
        adopt_environment(snapshot.record)
        batches = step.batches
        if settings.samples is not None:
            batches = with_samples(batches, settings.samples, selected)
        user = (
            _OneStep(settings, answer, snapshot, step)
            if settings.trial is None
            else ScriptTrial(settings.trial, step, answer.end_with)
        )
        watched = ScriptStep(step, batches, user)
    except VinedresserError as error:
        answer.end_with(ScriptResult(failure=str(error)))
    if settings.eager or settings.trial is not None:
        torch.compiler.set_stance("force_eager")
    own = os.getpid()

    def ended() -> None:
        # Not in a fork of the script.
        if os.getpid() != own:
            return
        if isinstance(user, ScriptTrial) and watched.steps:
            answer.write(user.ended().to_json())
        else:
            answer.write({"failure": f"{WHOSE} has ended: {watched.seen}"})

    atexit.register(ended)
    watched.start()


class _Answer(Answer):
    """What the process answers."""

    def end_with(self, result: ScriptResult) -> NoReturn:
        """Write the result, and end the process."""
        self.end(result.to_json())


class _OneStep:
    """Runs the recorded step and ends the process; see `StepUser`.

    Args:
        settings: what the process was told.
    """

    needs_all = False

    def __init__(
        self, settings: ScriptSettings, answer: _Answer, snapshot: Snapshot, step: RecordedStep
    ) -> None:
        self._settings, self._answer = settings, answer
        self._snapshot, self._step = snapshot, step
        self._wider = WIDER[settings.dtype] if settings.dtype else None
        self.widens = self._wider is not None
        self._scan: Any = None

    @contextmanager
    def within(self, watched: ScriptStep) -> Iterator[None]:
        """See `StepUser.within`."""
        if self._wider is not None:
            models = watched.parts.models.values()
            with in_precision(self._wider, models, watched.optimizers), ExitStack() as inputs:
                for model in models:
                    inputs.enter_context(changed_inputs(model, widening(self._wider)))
                yield
        elif self._settings.locate:
            with locate_in(watched.parts, watched.model) as self._scan:
                yield
        else:
            yield

    def done(self, watched: ScriptStep, _: Optimizer | None) -> None:
        """See `StepUser.done`."""
        if self._scan is not None:
            watched.close()
        self._answer.end_with(self._result(watched))

    def failed(self, why: str) -> NoReturn:
        """See `StepUser.failed`."""
        self._answer.end_with(ScriptResult(failure=why))

    def prepared(self, batch: Batch) -> Batch:
        """See `StepUser.prepared`."""
        return batch if self._wider is None else cast_batch(batch, self._wider)

    def begins(self, _: ScriptStep) -> None:
        """See `StepUser.begins`; there is only one step."""

    def joining(self, model: nn.Module) -> AbstractContextManager[object]:
        """See `StepUser.joining`."""
        found = ExitStack()
        if self._wider is not None:
            found.enter_context(in_precision(self._wider, [model], []))
            found.enter_context(changed_inputs(model, widening(self._wider)))
        return found

    def passes(self, _: Optimizer) -> None:
        """See `StepUser.passes`; there is only one step."""

    def evaluates(self, _: Optimizer) -> None:
        """See `StepUser.evaluates`; there is only one step."""

    def _result(self, watched: ScriptStep) -> ScriptResult:
        # The gradients of other models are not those of this update.
        name, step = self._step.trained, self._step
        alone = replace(step, models={name: step.models[name]})
        replay = Replay(Parts({name: watched.parts.models[name]}), alone, WHOSE)
        losses = watched.losses.losses(step.losses)
        outcome = replay.outcome(losses)
        scan = self._scan
        comparison = compared(self._snapshot.record, alone, outcome)
        notes = watched.notes
        if not (notes or comparison.exact):
            known = "processor" in self._snapshot.record.environment
            if not (known or comparison.losses is False):
                notes = [_OTHER_ROUNDING]
            elif not comparison.environment:
                notes = [_OTHER_LOSS]
        return ScriptResult(
            losses=[float(loss) for loss in losses],
            comparison=comparison,
            nonfinite=[
                (model, path, number) for (model, path), number in outcome.nonfinite.items()
            ],
            finite=[*watched.finite, not outcome.nonfinite],
            inexact=inexact(replay),
            notes=notes,
            located=None if scan is None else origin_of_gradients(scan, watched.parts),
            inputs=[] if scan is None else nonfinite_inputs(watched.parts, step.batches),
        )
