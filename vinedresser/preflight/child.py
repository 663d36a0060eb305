"""The side of a pre-flight check in the process of the script."""

from __future__ import annotations

import atexit
import os
import time

from vinedresser.capture.attach import torch_training
from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.checks.registry import run_checks
from vinedresser.preflight.observed import Observed
from vinedresser.preflight.settings import PreflightSettings, write_result
from vinedresser.preflight.trials import Trials
from vinedresser.preflight.watching import Watcher
from vinedresser.store.records import PREFLIGHT_VARIABLE

__all__ = ["attach", "watch"]


def attach() -> None:
    """Start to watch the training of this process; the script has just imported torch."""
    watch(PreflightSettings.from_text(os.environ[PREFLIGHT_VARIABLE]))


def watch(settings: PreflightSettings) -> Watcher:
    """Capture and watch a training, check it when enough of it was seen, and end it.

    It is captured as the run that the environment names.

    Args:
        settings: limits of the checks, and where their result goes.
    """
    process = os.getpid()

    def done(seen: Observed) -> None:
        # A fork of the training has nothing to say, and neither has a process that trains nothing.
        if os.getpid() != process or not seen.models:
            return
        # The steps of copies are not those of the training.
        ATTACHMENT.retire()
        _write(settings, seen)

    torch_training.attach()
    watcher = Watcher(settings, done)
    watcher.start()
    atexit.register(watcher.end)
    return watcher


def _write(settings: PreflightSettings, seen: Observed) -> None:
    deadline = time.process_time() + settings.seconds - settings.watching
    evidence = Evidence(seen, Trials(seen, deadline), settings.seconds)
    found = run_checks(evidence, settings.skip)
    write_result(settings, len(seen.steps), cut=seen.cut, verdicts=found)
