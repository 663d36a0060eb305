"""A pre-flight check of one case."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.faults.cases import Case
from benchmarks.faults.training import Training
from vinedresser.preflight.child import watch
from vinedresser.preflight.launching import read_result
from vinedresser.preflight.settings import RESULT, PreflightSettings
from vinedresser.preflight.trial_run import TrialRun
from vinedresser.preflight.verdict import SUSPICIOUS, Verdict
from vinedresser.rules.presets import preset_table
from vinedresser.store.records import RUN_VARIABLE, new_run

__all__ = ["Checked", "check_case"]


@dataclass(frozen=True)
class Checked:
    """A training that was checked.

    Attributes:
        verdicts: verdict of each check; [] if it took no step.
        seconds: CPU seconds of the process, which had imported torch before.
    """

    verdicts: list[Verdict]
    seconds: float

    @property
    def suspicions(self) -> list[str]:
        """Names of the checks that are suspicious."""
        return [verdict.check for verdict in self.verdicts if verdict.state == SUSPICIOUS]


def check_case(case: Case) -> Checked:
    """Watch the first steps of a case, and check it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        trial = TrialRun(Path(directory, "run"), new_run("trial"), preset_table("advisory"), ())
        os.environ[RUN_VARIABLE] = str(trial.directory)
        watcher = watch(PreflightSettings(directory, steps=50, seconds=15.0))
        # The check ends it.
        with contextlib.suppress(SystemExit):
            Training(case, 0, metrics=False).run()
        watcher.end()
        seen = read_result(Path(directory, RESULT))
        verdicts = [] if seen is None else [*trial.verdicts(0, cut=seen.cut), *seen.verdicts]
    return Checked(verdicts, time.process_time())
