"""Fine-tuning by a command: a child process that loads the pruned model and saves it again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.errors import PruningError
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.folders import TUNING
from vinedresser.pruning.rounds.fine_tuning import ROUND_VARIABLE
from vinedresser.pruning.saving import WEIGHTS, is_saved

__all__ = ["fine_tune_by_command"]


def fine_tune_by_command(argv: Sequence[str], model: Any, folder: Path, name: str) -> None:
    """Have a command fine-tune a model, and load the weights that it has saved.

    SIGTERM is passed on to the command, which saves a checkpoint and ends.

    Args:
        argv: program and arguments.
        model: the pruned model, which gets the weights; None: they are for another rank.
        folder: folder of the round.
        name: name of the command, for messages.

    Raises:
        PruningError: the command saved no model, or another one.
        TrainingStopped: it was stopped by SIGTERM.
        SystemExit: it failed, with its exit code or 128 + the signal that ended it.
        OSError: the program cannot be started.
    """
    given = folder / TUNING
    if model is not None and given.exists():
        # A command that was killed may have saved a model before its training was complete.
        shutil.rmtree(given)
    code = _run(argv, {**os.environ, ROUND_VARIABLE: str(folder)})
    if code:
        raise SystemExit(code if code > 0 else 128 - code)
    if model is None:
        return
    if not is_saved(given):
        raise PruningError(
            f"{name}: ended without a saved model: call vinedresser.pruning.fine_tuning.save(model)"
        )
    try:
        backend_of(model).read_weights(model, given / WEIGHTS)
    except PruningError as error:
        raise PruningError(f"{name}: saved a model that is not the pruned one: {error}") from error
    finally:
        shutil.rmtree(given)


def _run(argv: Sequence[str], environment: dict[str, str]) -> int:
    """Return the exit code of a command, or the negative number of the signal that ended it."""
    process: subprocess.Popen[bytes] | None = None
    asked = 0

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal asked
        asked = number
        if process is not None:
            process.send_signal(number)

    # The hook's handler would wait for the next step of this process, which makes none.
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        process = subprocess.Popen(argv, env=environment)
        if asked:
            process.send_signal(asked)
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    if asked:
        raise TrainingStopped(128 + asked)
    return code
