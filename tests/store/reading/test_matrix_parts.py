"""Reading steps of a large segment in bounded memory, with verified checksums."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

STEPS, NAMES = 3000, 300
MIB = 1 << 20


def value(step: int, name: int) -> float:
    return step + name / 1024


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run of one segment, with 3.6 MB of statistics, at every other step."""
    folder = tmp_path_factory.mktemp("large") / "run"
    start_run(folder)
    writer = RunWriter(LocalStorage(folder), cut_bytes=1 << 30, cut_seconds=1e9)
    for step in range(STEPS):
        figures = {f"weights/w{name}": {"l2": value(step, name)} for name in range(NAMES)}
        writer.add(
            step_record(
                step,
                scalars={"losses/loss": step / 7},
                reductions=figures if step % 2 == 0 else {},
            )
        )
    writer.close()
    end_run(folder)
    assert len(list((folder / "segments" / "0").iterdir())) == 1
    return folder


def copied(folder: Path, to: Path) -> Path:
    """Return a run whose segment may be damaged."""
    for path in folder.rglob("*"):
        if path.is_file():
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return to


@pytest.mark.thorough
def test_every_step_is_correct_in_bounded_memory(large: Path) -> None:
    run = open_run(large)
    segment = next((large / "segments" / "0").iterdir()).stat().st_size
    assert segment > 3 * MIB
    seen = 0
    tracemalloc.start()
    try:
        for step in run.follow():
            if seen == 10:
                # The record of the segment is already loaded.
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
            assert step.scalars == {"losses/loss": step.step / 7}
            assert len(step.reductions) == (NAMES if step.step % 2 == 0 else 0)
            for name in (0, NAMES - 1) if step.reductions else ():
                assert step.reductions[f"weights/w{name}"] == {"l2": value(step.step, name)}
            seen += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == STEPS
    assert run.problems == []
    assert peak - before < 2 * MIB


@pytest.mark.thorough
def test_steps_in_any_order(large: Path) -> None:
    run = open_run(large)
    for number in np.random.default_rng(0).integers(0, STEPS // 2, 20).tolist():
        (step,) = run.at(2 * number)
        assert step.reductions["weights/w7"] == {"l2": value(2 * number, 7)}


@pytest.mark.thorough
@pytest.mark.parametrize("place", [0.3, 0.6, 0.95])
def test_any_wrong_byte_is_detected_before_the_first_row(
    large: Path, tmp_path: Path, place: float
) -> None:
    folder = copied(large, tmp_path / "run")
    path = next((folder / "segments" / "0").iterdir())
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 1
    path.write_bytes(content)
    first = next(open_run(folder).follow())
    with pytest.raises(CorruptData, match="the bytes do not match their checksum"):
        _ = first.reductions
    assert first.scalars == {"losses/loss": 0.0}


@pytest.mark.thorough
def test_a_truncated_segment(large: Path, tmp_path: Path) -> None:
    folder = copied(large, tmp_path / "run")
    path = next((folder / "segments" / "0").iterdir())
    path.write_bytes(path.read_bytes()[:-1000])
    first = next(open_run(folder).follow())
    with pytest.raises(CorruptData, match="truncated"):
        _ = first.reductions


@pytest.mark.thorough
def test_a_missing_segment(large: Path, tmp_path: Path) -> None:
    folder = copied(large, tmp_path / "run")
    next((folder / "segments" / "0").iterdir()).unlink()
    first = next(open_run(folder).follow())
    with pytest.raises(CorruptData, match="the segment is missing"):
        _ = first.reductions
