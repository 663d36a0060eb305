"""The side of a replay in the process of the script."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

import torch

from vinedresser.errors import VinedresserError
from vinedresser.replay.batch import selected
from vinedresser.replay.comparing import adopt_environment, compare
from vinedresser.replay.locating import nonfinite_inputs, origin_of_gradients
from vinedresser.replay.recorded import recorded_step
from vinedresser.replay.running import Replay
from vinedresser.replay.samples import with_samples
from vinedresser.replay.script.settings import RESULT, ScriptResult, ScriptSettings
from vinedresser.replay.script.watching import WHOSE, ScriptStep
from vinedresser.replay.stepping import inexact
from vinedresser.snapshots.reading import Snapshot, open_snapshot
from vinedresser.store.records import REPLAY_VARIABLE

__all__ = ["attach"]


def attach() -> None:
    """Wait for the step of the script, which has just imported torch."""
    settings = ScriptSettings.from_text(os.environ[REPLAY_VARIABLE])
    if settings.parent != os.getppid():
        # A process that the script has started.
        return
    try:
        snapshot = open_snapshot(settings.snapshot)
        step = recorded_step(snapshot)
        adopt_environment(snapshot.record)
    except VinedresserError as error:
        _end(settings, ScriptResult(failure=str(error)))
    batches = step.batches
    if settings.samples is not None:
        batches = with_samples(batches, settings.samples, selected)
    if settings.eager:
        torch.compiler.set_stance("force_eager")
    own = os.getpid()

    def done(watched: ScriptStep) -> None:
        _end(settings, _result(snapshot, watched, Replay(watched.parts, step, WHOSE)))

    watched = ScriptStep(
        step,
        batches,
        done,
        lambda failure: _end(settings, ScriptResult(failure=failure)),
        locate=settings.locate,
    )

    def ended() -> None:
        # Not in a fork of the script.
        if os.getpid() == own:
            _write(settings, ScriptResult(failure=f"{WHOSE} has ended: {watched.seen}"))

    atexit.register(ended)
    watched.start()


def _result(snapshot: Snapshot, watched: ScriptStep, replay: Replay) -> ScriptResult:
    losses = watched.losses.losses(replay.step.losses)
    outcome = replay.outcome(losses)
    located = None if watched.scan is None else origin_of_gradients(watched.scan, watched.parts)
    inputs = [] if watched.scan is None else nonfinite_inputs(watched.parts, replay.step.batches)
    return ScriptResult(
        losses=[float(one) for one in losses],
        comparison=compare(snapshot.record, replay.step, outcome),
        nonfinite=[(model, path, number) for (model, path), number in outcome.nonfinite.items()],
        inexact=inexact(replay),
        notes=watched.notes,
        located=located,
        inputs=inputs,
    )


def _end(settings: ScriptSettings, result: ScriptResult) -> NoReturn:
    """Write the result, and end the process at once: nothing else of the script runs."""
    _write(settings, result)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _write(settings: ScriptSettings, result: ScriptResult) -> None:
    place = Path(settings.directory, RESULT)
    beside = place.with_suffix(".part")
    beside.write_text(json.dumps(result.to_json()), encoding="utf-8")
    beside.rename(place)
