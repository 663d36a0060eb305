"""Corruption on disk is reported, and everything else stays readable."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from vinedresser.errors import CorruptData, KeyMissing, UnknownStep
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

SEGMENTS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run of six segments with two steps each."""
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    for step in range(2 * SEGMENTS):
        writer.add(
            step_record(
                step,
                tensors={"weights/a": np.full(50, step), "weights/b": np.full(5, -step)},
                scalars={"losses/loss": float(step)},
            )
        )
        if step % 2:
            writer.flush()
    writer.close()
    end_run(tmp_path)
    return tmp_path


def segment(folder: Path, seq: int) -> Path:
    return folder / "segments" / "0" / f"{seq:012d}.safetensors"


def index(folder: Path, seq: int) -> Path:
    return folder / "index" / "0" / f"{seq:012d}.json"


def readable(run: Run) -> dict[str, list[int]]:
    """Return for each tensor the steps at which it has the right value."""
    found: dict[str, list[int]] = {"weights/a": [], "weights/b": []}
    for name, steps in found.items():
        sign = 1 if name == "weights/a" else -1
        for step in range(2 * SEGMENTS):
            try:
                value = run.tensor(name).value(step)
            except (CorruptData, UnknownStep):
                continue
            assert (value == sign * step).all()
            steps.append(step)
    return found


def all_but(*lost: int) -> list[int]:
    return [step for step in range(2 * SEGMENTS) if step not in lost]


def test_a_truncated_segment_loses_its_end_only(folder: Path) -> None:
    path = segment(folder, 2)
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    run = open_run(folder)
    # The tensor that lies last is cut off at its last row.
    assert readable(run) == {"weights/a": all_but(), "weights/b": all_but(5)}
    with pytest.raises(CorruptData) as caught:
        run.tensor("weights/b").value(5)
    message = str(caught.value)
    assert f"{path}: weights/b of train step 5 cannot be read: the file is truncated" in message
    assert f"{len(content)} bytes were committed" in message
    assert len(run.scalars()["losses/loss"]) == 2 * SEGMENTS


def test_a_segment_truncated_to_nothing_loses_itself_only(folder: Path) -> None:
    segment(folder, 0).write_bytes(b"")
    run = open_run(folder)
    assert readable(run) == {"weights/a": all_but(0, 1), "weights/b": all_but(0, 1)}
    assert run.scalars()["losses/loss"].steps.tolist() == all_but(0, 1)
    assert [problem for problem in run.problems if "losses/loss of steps 0 to 1" in problem]


def test_a_missing_segment_is_named(folder: Path) -> None:
    segment(folder, 5).unlink()
    run = open_run(folder)
    with pytest.raises(CorruptData, match=r"000000000005\.safetensors: weights/a .* is missing"):
        run.tensor("weights/a").value(10)
    assert readable(run) == {"weights/a": all_but(10, 11), "weights/b": all_but(10, 11)}


def test_one_flipped_bit_anywhere_in_a_segment(folder: Path) -> None:
    """It is never in a value that is handed out, and no more than one tensor or matrix is lost."""
    path = segment(folder, 3)
    content = path.read_bytes()
    places = random.Random(0).sample(range(8 * len(content)), 60)
    for place in places:
        broken = bytearray(content)
        broken[place // 8] ^= 1 << place % 8
        path.write_bytes(broken)
        run = open_run(folder)
        values = readable(run)
        loss = run.scalars()["losses/loss"]
        assert (loss.values == loss.steps).all()
        lost = sum(2 * SEGMENTS - len(steps) for steps in values.values()) + len(run.problems)
        length = 8 + int.from_bytes(content[:8], "little")
        assert lost == (place // 8 >= length)  # our reader needs no segment header
        assert len(loss) == 2 * SEGMENTS - 2 * len(run.problems)


def test_a_flipped_bit_is_named_with_file_tensor_and_step(folder: Path) -> None:
    path = segment(folder, 3)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptData) as caught:
        open_run(folder).tensor("weights/b").value(7)
    assert str(caught.value).startswith(f"{path}: weights/b of train step 7: ")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "damage", ["flipped", "truncated", "missing", "missing with its neighbour"]
)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_bad_index_record_loses_its_own_steps_only(
    folder: Path, damage: str, loaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = index(folder, 2)
    content = bytearray(path.read_bytes())
    lost = [4, 5]
    if damage == "flipped":
        content[100] ^= 4
        path.write_bytes(content)
    elif damage == "truncated":
        path.write_bytes(content[:-40])
    else:
        path.unlink()
    if damage == "missing with its neighbour":
        index(folder, 3).unlink()
        lost = [4, 5, 6, 7]
    run = open_run(folder)
    if loaded:
        assert run.steps().tolist() == all_but(*lost)
    assert readable(run) == {"weights/a": all_but(*lost), "weights/b": all_but(*lost)}
    assert run.scalars()["losses/loss"].steps.tolist() == all_but(*lost)
    assert [step.step for step in run.follow()] == all_but(*lost)
    assert len(run.problems) == 1
    assert f"{index(folder, 2)}" in run.problems[0]
    assert "cannot be read" in run.problems[0]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("seq", [0, SEGMENTS - 1])
def test_a_bad_index_record_at_either_end(folder: Path, seq: int) -> None:
    index(folder, seq).write_bytes(b"{}")
    run = open_run(folder)
    lost = [2 * seq, 2 * seq + 1]
    assert readable(run) == {"weights/a": all_but(*lost), "weights/b": all_but(*lost)}
    assert [step.step for step in run.follow()] == all_but(*lost)


def test_a_gap_is_skipped_while_the_run_is_written(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    following = open_run(tmp_path).follow()
    writer.add(step_record(0))
    writer.flush()
    assert next(following).step == 0
    writer.add(step_record(1))
    writer.flush()
    index(tmp_path, 1).unlink()
    writer.add(step_record(2))
    writer.flush()
    assert next(following).step == 2
    writer.close()


def test_a_record_that_arrives_during_a_poll_is_not_a_gap(folder: Path) -> None:
    class Late(LocalStorage):
        """The third record is committed just after it was asked for, and the fourth with it."""

        asked = False

        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            if key == "index/0/000000000002.json" and not self.asked:
                self.asked = True
                raise KeyMissing(key)
            return super().get(key, start, length)

    run = open_run(Late(folder))
    assert run.steps().tolist() == all_but()
    assert run.problems == []


def test_a_segment_without_an_index_record_does_not_exist(folder: Path) -> None:
    shutil.copy(segment(folder, 0), segment(folder, SEGMENTS))
    run = open_run(folder)
    assert run.steps().tolist() == all_but()
    assert run.problems == []
