"""A judge of a run whose loss becomes NaN."""

from __future__ import annotations

import json
import math
from pathlib import Path

from vinedresser.rules.worker import judge_run
from vinedresser.store.storage import LocalStorage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

__all__ = ["GROUP", "STEPS", "judge", "prepare"]

GROUP, STEPS = "numbers", 4


def prepare(folder: Path) -> None:
    """Write the run, and the rules beside it."""
    rules = {"nonfinite": {"group": GROUP}}
    folder.with_suffix(".rules").write_text(json.dumps({"rules": rules}))
    start_run(folder)
    writer = RunWriter(LocalStorage(folder))
    for step in range(STEPS):
        loss = 1.0 if step < STEPS - 1 else math.nan
        writer.add(step_record(step, scalars={"losses/loss": loss}))
        writer.flush()
    writer.close()
    end_run(folder)


def judge(folder: Path) -> int:
    """Judge the run; return the exit code."""
    return judge_run(str(folder), GROUP, folder.with_suffix(".rules"))
