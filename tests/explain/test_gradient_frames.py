"""Frames of gradients: the values of `run.reductions` at the last captured steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.explain.charts.gradient_frames import gradient_frames
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record


def made(place: Path) -> Run:
    """Make a run of 90 steps: one gradient every 2 steps, another every 3, evaluations between."""
    random = np.random.default_rng(0)
    records = []
    for step in range(90):
        norms = {}
        if step % 2 == 0:
            norms["gradients/even"] = {"l2": float(random.lognormal()), "abs_mean": 9.0}
        if step % 3 == 0:
            norms["gradients/third"] = {"l2": float(random.lognormal())}
        norms["weights/even"] = {"l2": 7.0}
        records.append(step_record(step, reductions=norms))
        if step % 10 == 5:
            others = {"gradients/even": {"l2": 1e9}, "gradients/only_evaluated": {"l2": 1e9}}
            records.append(step_record(step, mode="eval", reductions=others))
    return make_run(place, records)


@pytest.mark.parametrize("step", [0, 1, 44, 89, 500])
def test_the_frames_are_the_stored_values(tmp_path: Path, step: int) -> None:
    run = made(tmp_path / "run")
    found = gradient_frames(run, step, 5)
    assert found is not None
    captured = [one for one in range(min(step, 89) + 1) if one % 2 == 0 or one % 3 == 0]
    assert found.steps.tolist() == captured[-5:]
    assert (found.reduction, found.names) == ("l2", ("even", "third"))
    for name, values in zip(found.names, found.values.T, strict=True):
        column = run.reductions("l2", mode="train")[f"gradients/{name}"]
        stored = dict(zip(column.steps.tolist(), column.values.tolist(), strict=True))
        wanted = [stored.get(one, np.nan) for one in found.steps.tolist()]
        assert np.array_equal(values, wanted, equal_nan=True)


def test_only_the_segments_of_the_frames_are_read(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    writer = RunWriter(LocalStorage(tmp_path / "run"))
    for step in range(4):
        writer.add(step_record(step, reductions={"gradients/w": {"l2": 1.0 + step}}))
        writer.flush()
    writer.close()
    first, second, third, last = sorted((tmp_path / "run" / "segments").glob("0/*"))
    run = open_run(tmp_path / "run")
    for other in (first, last):
        other.unlink()
    found = gradient_frames(run, 2, 2)
    assert found is not None
    assert found.values.tolist() == [[2.0], [3.0]]
    assert not run.problems
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    damaged = gradient_frames(run, 2, 2)
    assert damaged is not None
    assert np.array_equal(damaged.values, [[np.nan], [3.0]], equal_nan=True)
    assert len(run.problems) == 1
    assert third.exists()


def test_without_gradients_there_are_no_frames(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [step_record(5, reductions={"weights/w": {"l2": 1.0}})])
    assert gradient_frames(run, 5, 2) is None
    late = make_run(tmp_path / "late", [step_record(5, reductions={"gradients/w": {"l2": 1.0}})])
    assert gradient_frames(late, 4, 2) is None
