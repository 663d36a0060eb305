"""Reading a run: names, values, columns and error messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.counting_storage import CountingStorage
from vinedresser.errors import ConfigError, CorruptData, NotARun, UnknownStep, UnknownTensor
from vinedresser.objects import LocalStorage
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record

CAPTURE = {"relus": {"regex": r"relu\d", "save": [{"every": 1}]}}


def records() -> list[StepRecord]:
    """Ten train steps, weights at every fifth, an evaluation after every fifth."""
    found = []
    for step in range(10):
        weights = {"weights/conv1.weight": np.full((2, 3), step, np.float32)}
        found.append(
            step_record(
                step,
                tensors=weights if step % 5 == 0 else {},
                scalars={"losses/MSELoss": 1.0 / (step + 1), "metrics/lr": 0.1},
                reductions={
                    "gradients/conv1.weight": {"l2": float(step), "max": 2.0 * step},
                    "outputs/relu1": {"zero_share": step / 10},
                },
            )
        )
        if step % 5 == 4:
            found.append(
                step_record(
                    step + 1,
                    mode="eval",
                    tensors={"outputs/conv1": np.full(3, -step, np.int64)},
                    scalars={"losses/MSELoss": 2.0 / (step + 1), "metrics/accuracy": step / 10},
                )
            )
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", records(), capture=CAPTURE)


# Opening


def test_a_place_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=r"nowhere: not a run: there is no run\.json"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        open_run(str(tmp_path))


def test_a_damaged_run_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CorruptData, match=r"run\.json"):
        open_run(tmp_path)


def test_a_run_without_steps_can_be_opened(tmp_path: Path) -> None:
    start_run(tmp_path)
    run = open_run(tmp_path)
    assert run.ranks == ()
    assert run.steps().tolist() == []
    assert run.tensor_names() == run.scalar_names() == run.problems == []
    assert run.findings() == []
    assert len(run.scalars()) == 0
    assert run.refresh() == 0
    assert run.status.state == "running"
    with pytest.raises(UnknownTensor):
        run.tensor("weights/a")


def test_a_run_describes_itself(run: Run, tmp_path: Path) -> None:
    assert run.path == str(tmp_path / "run")
    assert run.info.capture == CAPTURE
    assert run.ranks == (0,)
    assert run.finished
    assert run.status.state == "finished"


# Names


def test_names_are_those_of_tensors_and_statistics(run: Run) -> None:
    assert sorted(run.tensor_names()) == [
        "gradients/conv1.weight",
        "outputs/conv1",
        "outputs/relu1",
        "weights/conv1.weight",
    ]
    assert sorted(run.scalar_names()) == ["losses/MSELoss", "metrics/accuracy", "metrics/lr"]


def test_names_captured_together_keep_their_order(tmp_path: Path) -> None:
    layers = [f"gradients/layer{number}" for number in (3, 10, 1, 2)]
    for folder, parts in (
        ("full", {"tensors": dict.fromkeys(layers, np.zeros(3, np.float32))}),
        ("statistics", {"reductions": {name: {"l2": 1.0} for name in layers}}),
    ):
        run = make_run(tmp_path / folder, [step_record(step, **parts) for step in range(2)])
        assert run.tensor_names(collection="gradients") == layers


def test_names_by_regex_and_collection(run: Run) -> None:
    assert run.tensor_names(regex=r"conv1\.w") == ["weights/conv1.weight", "gradients/conv1.weight"]
    assert run.tensor_names(collection="outputs") == ["outputs/conv1", "outputs/relu1"]
    assert run.tensor_names(regex="conv", collection="outputs") == ["outputs/conv1"]
    assert run.tensor_names(collection="relus") == ["outputs/relu1"]
    assert run.scalar_names(collection="losses") == ["losses/MSELoss"]
    assert run.scalar_names("lr$") == ["metrics/lr"]


def test_a_wrong_regex_or_collection_is_named(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"'\('"):
        run.tensor_names(regex="(")
    with pytest.raises(ConfigError, match=r"gradient: .*did you mean gradients"):
        run.tensor_names(collection="gradient")
    with pytest.raises(ConfigError, match="relus"):
        run.scalar_names(collection="nonsense")


# Tensors


def test_values_by_step_and_mode(run: Run) -> None:
    weight = run.tensor("weights/conv1.weight")
    assert weight.steps().tolist() == [0, 5]
    assert weight.shape == (2, 3)
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(weight.value(5), np.full((2, 3), 5, np.float32))
    output = run.tensor("outputs/conv1")
    assert output.steps().tolist() == []
    assert output.steps("eval").tolist() == output.steps(None).tolist() == [5, 10]
    np.testing.assert_array_equal(output.value(10, mode="eval"), [-9, -9, -9])


@pytest.mark.parametrize("loaded", [False, True])
def test_an_unknown_step_suggests_the_nearest(run: Run, loaded: bool) -> None:
    if loaded:
        run.refresh()
    weight = run.tensor("weights/conv1.weight")
    with pytest.raises(UnknownStep, match=r"weights/conv1.weight: .* train step 6 .* 0, 5"):
        weight.value(6)
    with pytest.raises(UnknownStep, match="train step 10 of rank 0; it was in mode eval"):
        run.tensor("outputs/conv1").value(10)
    with pytest.raises(UnknownStep, match="rank 1"):
        weight.value(5, rank=1)
    with pytest.raises(UnknownStep, match="only its statistics"):
        run.tensor("outputs/relu1").shape  # noqa: B018 (reading it raises)
    with pytest.raises(UnknownStep, match="outputs/relu1"):
        run.tensor("outputs/relu1").value(0)


def test_an_unknown_tensor_suggests_similar_names(run: Run) -> None:
    with pytest.raises(UnknownTensor, match=r"did you mean .*weights/conv1\.weight"):
        run.tensor("weight/conv1.weight")


def test_statistics_of_a_tensor(run: Run) -> None:
    gradient = run.tensor("gradients/conv1.weight")
    assert gradient.reductions == ("l2", "max")
    column = gradient.reduction("max")
    assert column.mode == "train"
    assert column.steps.tolist() == list(range(10))
    assert column.values.tolist() == [2.0 * step for step in range(10)]
    assert len(gradient.reduction("max", mode="eval")) == 0
    with pytest.raises(UnknownTensor, match=r"gradients/conv1.weight: no min .* l2, max"):
        gradient.reduction("min")


# Columns


def test_scalars_are_columns(run: Run) -> None:
    losses = run.scalars("losses")
    assert list(losses) == ["losses/MSELoss"]
    loss = losses["losses/MSELoss"]
    assert loss.mode is None
    assert loss.steps.tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10]
    assert loss.of("eval").values.tolist() == [2 / 5, 2 / 10]
    assert loss.of("train").values.tolist() == [1 / (step + 1) for step in range(10)]
    assert (np.diff(loss.times) >= 0).all()
    with pytest.raises(UnknownTensor, match="did you mean losses/MSELoss"):
        losses["losses/MSEloss"]


def test_a_column_keeps_its_order_beside_other_columns(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    for step in range(6):
        beside = {"metrics/now and then": 0.0} if step in (1, 2, 4) else {}
        writer.add(step_record(step, scalars={"losses/loss": float(step), **beside}))
        writer.flush()
    writer.close()
    loss = open_run(tmp_path).scalars()["losses/loss"]
    assert loss.steps.tolist() == loss.values.tolist() == list(range(6))
    assert (np.diff(loss.times) > 0).all()


def test_columns_by_regex_mode_and_rank(run: Run) -> None:
    assert list(run.scalars("l")) == ["losses/MSELoss", "metrics/lr"]
    assert list(run.scalars(mode="eval")) == ["losses/MSELoss", "metrics/accuracy"]
    assert list(run.scalars(rank=7)) == []
    assert list(run.reductions("l2", "gradients")) == ["gradients/conv1.weight"]
    assert list(run.reductions("zero_share", "relus")) == ["outputs/relu1"]
    assert list(run.reductions("l2", "outputs")) == []
    assert list(run.reductions("l2", mode="eval")) == []
    with pytest.raises(ConfigError):
        run.scalars("[")


def test_segments_are_those_of_a_rank_in_order(run: Run) -> None:
    files = sorted((Path(run.path) / "segments" / "0").iterdir())
    found = run.segments()
    assert [Path(one.record.segment).name for one in found] == [file.name for file in files]
    assert run.segments(rank=7) == []


def test_damaged_findings_are_named_to_who_asks_and_in_the_problems(run: Run) -> None:
    (Path(run.path) / "findings").mkdir()
    (Path(run.path) / "findings" / "a.jsonl").write_text("{\n")
    faults: list[str] = []
    assert list(run.findings(faults)) == []
    assert len(faults) == 1
    assert "findings/a.jsonl" in faults[0]
    assert faults == run.problems


def test_columns_are_read_without_tensors(tmp_path: Path, run: Run) -> None:
    """A segment is cut off behind its matrices: scalars and statistics do not notice."""
    path = next((tmp_path / "run" / "segments" / "0").iterdir())
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    ends = [
        entry["data_offsets"][1] for name, entry in header.items() if name.startswith("columns")
    ]
    path.write_bytes(content[: 8 + length + max(ends)])
    assert len(run.scalars()) == 3
    assert len(run.reductions("l2")) == 1
    assert run.problems == []
    with pytest.raises(CorruptData):
        run.tensor("weights/conv1.weight").value(0)


def test_columns_as_frames(run: Run) -> None:
    frame = run.scalars("metrics").to_pandas()
    assert list(frame.columns) == ["name", "mode", "step", "time", "value"]
    assert frame.groupby(["name", "mode"]).size().to_dict() == {
        ("metrics/accuracy", "eval"): 2,
        ("metrics/lr", "train"): 10,
    }
    column = run.tensor("gradients/conv1.weight").reduction("l2").to_pandas()
    assert list(column.columns) == ["mode", "step", "time", "value"]
    assert column["value"].tolist() == list(map(float, range(10)))
    assert len(run.scalars("nothing").to_pandas()) == 0


def test_pandas_is_needed_only_for_frames(run: Run) -> None:
    program = f"""
import sys
sys.modules["pandas"] = None  # as if it were not installed
from vinedresser.store.reading.reader import open_run
from vinedresser.errors import MissingDependency
columns = open_run({run.path!r}).scalars()
try:
    columns.to_pandas()
except MissingDependency as error:
    assert isinstance(error, ImportError)
    assert "pip install pandas" in str(error), error
else:
    raise AssertionError("a frame without pandas")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# Findings

A_FINDING = Finding("b", "stop", 7, 7, "train", 0, "t", "l2", 1.0, 2.0, 0.9, "seen", "cause", "try")


def test_findings_are_sorted(tmp_path: Path, run: Run) -> None:
    def finding(rule: str, step: int) -> Finding:
        return replace(A_FINDING, rule=rule, step=step)

    folder = tmp_path / "run" / "findings"
    folder.mkdir()
    (folder / "another file").write_text("ignored")
    lines = [json.dumps(finding("b", step).to_json()) for step in (7, 3)]
    (folder / "one.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "two.jsonl").write_text(json.dumps(finding("a", 7).to_json()) + "\n")
    assert [(found.rule, found.step) for found in run.findings()] == [("b", 3), ("a", 7), ("b", 7)]


def test_damage_among_findings_leaves_the_others_readable(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "run" / "findings"
    folder.mkdir()
    whole = json.dumps(A_FINDING.to_json())
    (folder / "one.jsonl").write_bytes(f"{whole}\n{whole[:50]}\n".encode() + b"\xff\n[]\n")
    os.mkfifo(folder / "two.jsonl")
    (folder / "two.jsonl~").write_text(whole)
    assert run.findings() == [A_FINDING]
    fifo, line = run.problems
    assert line.startswith(f"{folder}/one.jsonl: line 2 is not a finding: ")
    assert line.endswith(" (and 2 more such lines); ignored")
    assert fifo == f"{folder}/two.jsonl: a FIFO, not a file"
    assert run.damage(run.status)[2:] == [
        f"{folder}/two.jsonl~: not the name of a file of findings; ignored"
    ]


# While it is written


def test_refresh_loads_new_segments(tmp_path: Path) -> None:
    start_run(tmp_path)
    run = open_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    for step in range(5):
        writer.add(step_record(step, tensors={f"weights/{step}": np.zeros(1)}))
        writer.flush()
        assert run.refresh() == 1
        assert run.refresh() == 0
        assert run.steps().tolist() == list(range(step + 1))
        assert run.tensor_names()[-1] == f"weights/{step}"
        assert run.tensor(f"weights/{step}").value(step) == [0]
    writer.close()


def test_ranks_that_are_announced_later_are_found(tmp_path: Path) -> None:
    """The launcher does not know how many ranks the training has; the hook does."""
    start_run(tmp_path)
    run = open_run(tmp_path)
    (tmp_path / "run.json").unlink()
    start_run(tmp_path, world_size=2)
    for rank in range(2):
        writer = RunWriter(LocalStorage(tmp_path), rank)
        writer.add(step_record(rank))
        writer.close()
    assert run.refresh() == 2
    assert run.ranks == (0, 1)


@pytest.mark.thorough
def test_a_long_run_opens_with_few_requests_and_polling_costs_the_same(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    for step in range(2_000):
        value = np.full(2, step, np.float32)
        writer.add(step_record(step, tensors={"x": value}, scalars={"losses/loss": step}))
        writer.flush()

    storage = CountingStorage(tmp_path)
    run = open_run(storage)
    assert run.tensor("x").value(1_234).tolist() == [1_234, 1_234]
    # The first record, the one that is guessed from the pace, and the one behind it.
    assert storage.asked["index"] == 3
    assert storage.asked["segments"] == 1

    whole = CountingStorage(tmp_path)
    assert len(open_run(whole).steps()) == 2_000
    # Twenty manifests stand for all index records.
    assert whole.asked["index"] <= 2
    assert whole.asked["segments"] == 0

    run.refresh()
    storage.asked.clear()
    assert run.refresh() == 0
    assert sum(storage.asked.values()) <= 2
    writer.add(step_record(2_000))
    writer.flush()
    storage.asked.clear()
    assert run.refresh() == 1
    assert sum(storage.asked.values()) <= 3
    writer.close()


def test_steps_that_decrease_are_found(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    order = [10, 11, 12, 3, 4, 5, 20, 4]
    for number, step in enumerate(order):
        writer.add(step_record(step, tensors={"x": np.array([number])}))
        writer.flush()
    writer.close()
    for loaded in (False, True):
        run = open_run(tmp_path)
        if loaded:
            assert run.steps().tolist() == sorted(set(order))
        for step in order:
            assert run.tensor("x").value(step)[0] in [n for n, s in enumerate(order) if s == step]
        assert run.tensor("x").value(20) == [6]
        if loaded:
            assert run.tensor("x").value(4) == [7]


def test_columns_have_a_default(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [step_record(0, scalars={"losses/a": 1.0})])
    assert run.scalars().get("losses/b") is None
    with pytest.raises(KeyError, match=r"^losses/b: no such column; did you mean losses/a"):
        run.scalars()["losses/b"]
