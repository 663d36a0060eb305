"""Single steps of a run with several segments and ranks, and names of vector statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.errors import ConfigError
from vinedresser.objects import open_storage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import WaitingRecord
from vinedresser.store.reductions import derived_name
from vinedresser.store.step_record import ScalarStep
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two ranks, three segments each: steps 0 to 8 with an evaluation after each third step."""
    start_run(tmp_path, world_size=2, capture={"last": {"regex": "b$", "save": [{"every": 1}]}})
    for rank in (0, 1):
        writer = RunWriter(open_storage(tmp_path), rank)
        for step in range(9):
            value = 100 * rank + step
            histogram = np.arange(66.0)
            writer.add(
                step_record(
                    step,
                    scalars={"losses/loss": float(value)},
                    tensors={
                        "weights/b": np.full(3, value, np.float32),
                        derived_name("weights/b", "histogram"): histogram,
                        derived_name("weights/c", "channel_l2"): np.ones(4),
                    },
                    reductions={"weights/b": {"l2": float(2 * value)}},
                )
            )
            if step % 3 == 2:
                writer.add(step_record(step, mode="eval", scalars={"losses/loss": value + 0.5}))
                assert writer.flush(30)
        writer.close()
    end_run(tmp_path)
    return open_run(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", range(9))
def test_a_step_of_any_segment_has_its_own_values(run: Run, step: int, rank: int) -> None:
    (found,) = run.at(step, rank=rank)
    value = 100 * rank + step
    assert (found.step, found.mode, found.rank) == (step, "train", rank)
    assert found.scalars == {"losses/loss": value}
    assert found.scalars_of("losses") == {"losses/loss": value}
    assert found.reductions["weights/b"] == {"l2": 2 * value}


def test_modes_of_one_step_are_distinguished(run: Run) -> None:
    (found,) = run.at(5, "eval")
    assert found.scalars == {"losses/loss": 5.5}
    assert found.mode == "eval"
    assert run.at(4, "eval") == run.at(9) == run.at(0, rank=2) == []


def test_steps_of_a_mode_and_rank(run: Run) -> None:
    for rank in (0, 1):
        assert run.steps(rank=rank).tolist() == list(range(9))
        assert run.steps("eval", rank).tolist() == [2, 5, 8]
        assert run.steps(None, rank).tolist() == list(range(9))
        assert run.steps("predict", rank).tolist() == []
    nothing = run.steps(rank=2)
    assert nothing.dtype == np.int64
    assert nothing.shape == (0,)


@pytest.mark.parametrize("urgent", [False, True])
def test_only_an_urgent_reader_writes(run: Run, urgent: bool) -> None:
    before = set(run.storage.list(""))
    assert len(list(run.follow(urgent=urgent) if urgent else run.follow())) == 24
    assert set(run.storage.list("")) - before == ({WaitingRecord.KEY} if urgent else set())


def test_tensors_with_a_vector_statistic_are_found_by_its_name(run: Run) -> None:
    assert run.vector_names("histogram") == ["weights/b"]
    assert run.vector_names("channel_l2") == ["weights/c"]
    assert run.vector_names("channel_l2", "last") == []
    assert run.vector_names("histogram", "last") == ["weights/b"]
    assert run.vector_names("p50") == []
    with pytest.raises(ConfigError, match="no such collection"):
        run.vector_names("histogram", "latst")


def test_scalar_steps_are_stored_like_records(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(open_storage(tmp_path))
    assert writer.add_scalars(ScalarStep(4, 12.5, {"losses/loss": 0.25}))
    assert writer.last_step == 4
    assert writer.add_scalars(ScalarStep(3, 13.5, {"losses/loss": 0.5}))
    assert writer.last_step == 4
    writer.close()
    assert not writer.add_scalars(ScalarStep(5, 14.5, {"losses/loss": 1.0}))
    end_run(tmp_path)
    steps = list(open_run(tmp_path).follow())
    assert [(step.step, step.mode, step.time) for step in steps] == [
        (4, "train", 12.5),
        (3, "train", 13.5),
    ]
    assert [step.scalars for step in steps] == [{"losses/loss": 0.25}, {"losses/loss": 0.5}]


def test_a_frame_has_one_row_per_value(run: Run) -> None:
    frame = run.to_pandas(rank=1)
    assert list(frame.columns) == ["name", "reduction", "mode", "step", "time", "value"]
    scalars = frame[frame["reduction"] == ""]
    train = scalars[scalars["mode"] == "train"]
    assert train["step"].tolist() == list(range(9))
    assert train["value"].tolist() == [100.0 + step for step in range(9)]
    assert scalars[scalars["mode"] == "eval"]["value"].tolist() == [102.5, 105.5, 108.5]
    norms = frame[frame["reduction"] == "l2"]
    assert set(norms["name"]) == {"weights/b"}
    assert norms["value"].tolist() == [2.0 * (100 + step) for step in range(9)]
    assert len(frame) == len(scalars) + len(norms)
    assert set(run.to_pandas("losses", mode="eval")["step"]) == {2, 5, 8}
    assert set(run.to_pandas("^losses")["reduction"]) == {""}
    assert run.to_pandas("weights")["value"].tolist() == [2.0 * step for step in range(9)]
    assert len(run.to_pandas(rank=7)) == 0


def test_missing_index_records_are_named_by_their_span(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(open_storage(tmp_path))
    for step in range(6):
        writer.add(step_record(step, scalars={"losses/loss": 0.0}))
        assert writer.flush(30)
    writer.close()
    end_run(tmp_path)
    index = sorted((tmp_path / "index" / "0").iterdir())
    index[1].unlink()
    for path in index[3:5]:
        path.unlink()
    run = open_run(tmp_path)
    assert run.steps().tolist() == [0, 2, 5]
    one, several = run.problems
    assert "index/0/000000000001.json" in one
    assert " to " not in one
    assert "index/0/000000000003.json to index/0/000000000004.json" in several
