"""A run of known contents, and all ways to read a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.errors import VinedresserError
from vinedresser.objects import LocalStorage
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, host_tensor, start_run, step_record

__all__ = ["NAMES", "KnownRun", "Reading"]

NAMES = ("weights/a", "outputs/b", "inputs/c")


class KnownRun:
    """A run with records in segments of one or two rows behind a first segment of several.

    Args:
        steps: number of train steps.
        together: number of steps in the first segment.

    Attributes:
        steps: number of train steps.
        values: tensors by name, mode and step.
        scalars: mode, step and value of each loss.
        statistics: step and value of each statistic.
    """

    def __init__(self, steps: int, together: int) -> None:
        self.steps = steps
        self._together = together
        self._records = list(_records(steps))
        self.values = {
            (name, record.mode, record.step): tensor.data
            for record in self._records
            for name, tensor in record.tensors.items()
        }
        self.scalars = {(r.mode, r.step, r.scalars["losses/loss"]) for r in self._records}
        with_statistics = (record for record in self._records if record.reductions)
        self.statistics = {(r.step, r.reductions["gradients/a"]["l2"]) for r in with_statistics}

    def write(self, folder: Path) -> None:
        """Write the run, with a finding and its end."""
        start_run(folder, capture={"relus": {"regex": "relu", "save": [{"every": 1}]}})
        storage = LocalStorage(folder)
        writer = RunWriter(storage)
        for record in self._records:
            writer.add(record)
            if record.mode == "train" and record.step >= self._together:
                writer.flush()
        writer.close()
        finding = Finding("r", "info", 1, 1, "train", 0, "t", "l2", 1.0, 2.0, 0.5, "s", "c", "r")
        storage.put("findings/g.jsonl", [json.dumps(finding.to_json()).encode() + b"\n"])
        end_run(folder)


class Reading:
    """What can be read of a run.

    Args:
        run: the run.
        check: called with each tensor: its name, mode and step, and its values.

    Attributes:
        had: keys of the tensors, and the scalars and statistics, that could be read.
        refused: whether anything was refused.
    """

    def __init__(self, run: Run, check: Callable[[Any, Any], None]) -> None:
        self.had: set[Any] = set()
        self.refused = False
        self._run = run
        self._check = check

    def single(self, steps: list[int]) -> None:
        """Read the tensors of some steps one by one."""
        for name in NAMES:
            for step in steps:
                with self._trying():
                    self._have((name, "train", step), self._run.tensor(name).value(step))

    def series(self) -> None:
        """Read each tensor over its steps."""
        for name in NAMES:
            with self._trying():
                view = self._run.tensor(name)
                assert view.steps().dtype == np.int64
                assert isinstance(view.shape, tuple)
                for step, value in view.values():
                    self._have((name, "train", step), value)

    def columns(self) -> None:
        """Read the scalars and the statistics."""
        losses = self._run.scalars().get("losses/loss", Column.empty("losses/loss"))
        modes = np.array(["train", "eval", "predict"])[losses.modes].tolist()
        self.had |= set(zip(modes, losses.steps.tolist(), losses.values.tolist(), strict=True))
        norms = self._run.reductions("l2").get("gradients/a", Column.empty("gradients/a"))
        self.had |= set(zip(norms.steps.tolist(), norms.values.tolist(), strict=True))

    def frame(self) -> None:
        """Read the scalars as a frame of pandas."""
        frame = self._run.to_pandas()
        losses = frame[frame.name == "losses/loss"]
        self.had |= set(zip(losses["mode"], losses["step"], losses["value"], strict=True))

    def follow(self) -> None:
        """Read each step, if the run is known to have ended."""
        for each in self._run.follow() if self._run.status.over else ():
            for name in each.tensor_names:
                with self._trying():
                    self._have((name, each.mode, each.step), each.tensor(name))
            with self._trying():
                assert set(map(type, each.scalars.values())) <= {float}

    def others(self) -> None:
        """Read the findings and the names."""
        with self._trying():
            list(self._run.findings())
        assert set(map(type, self._run.tensor_names())) <= {str}

    def _have(self, key: Any, value: Any) -> None:
        self._check(key, value)
        self.had.add(key)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except VinedresserError:
            self.refused = True


def _records(steps: int) -> Iterator[StepRecord]:
    """Yield the records of the run."""
    for step in range(steps):
        yield _record_of(step)
        if step % 20 == 19:
            yield step_record(
                step, mode="eval", at=1e9 + step, scalars={"losses/loss": -float(step)}
            )


def _record_of(step: int) -> StepRecord:
    """Return a step: weights now and then, an output that is mostly the next module's input."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3) + step
    output = host_tensor(values)
    record = step_record(
        step,
        at=1e9 + step,
        scalars={"losses/loss": step / 7},
        reductions={"gradients/a": {"l2": float(step), "min": -1.0}},
    )
    if step % 3 == 0:
        record.tensors["weights/a"] = host_tensor(np.full(4, step, np.int16))
    record.tensors["outputs/b"] = output
    record.tensors["inputs/c"] = output if step % 4 else host_tensor(-values)
    return record
