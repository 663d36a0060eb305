"""A tensor with several names is stored once and readable by each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import HostTensor, StepRecord
from vinedresser.store.writing.record_queue import RecordQueue
from vinedresser.testing.runs import host_tensor, make_run, step_record


def wide(value: float) -> HostTensor:
    return host_tensor(np.full((64, 64), value, np.float32))


def shared(step: int, mode: Any = "train") -> StepRecord:
    """In train mode `inputs/b` is `outputs/a`, in others it is not; `inputs/c` always is."""
    record = step_record(step, mode=mode)
    output = wide(step)
    record.tensors = {"outputs/a": output, "inputs/b": output, "inputs/c": output}
    if mode != "train":
        record.tensors["inputs/b"] = wide(-step)
    return record


def metadata_of(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return {key: json.loads(value) for key, value in found.items() if value[0] in "[{"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [shared(step, mode) for step in range(4) for mode in ("train", "eval")]
    make_run(tmp_path, records)
    return tmp_path


def test_it_has_its_value_under_each_name(folder: Path) -> None:
    for run in (open_run(folder), open_run(folder)):
        for step in range(4):
            for name in ("outputs/a", "inputs/b", "inputs/c"):
                assert (run.tensor(name).value(step) == step).all()
                sign = -1 if name == "inputs/b" else 1
                assert (run.tensor(name).value(step, "eval") == sign * step).all()
        run.refresh()
        assert sorted(run.tensor_names()) == ["inputs/b", "inputs/c", "outputs/a"]
        view = run.tensor("inputs/b")
        assert view.shape == (64, 64)
        assert view.dtype == np.float32
        assert view.steps(None).tolist() == [0, 1, 2, 3]
        assert [(step, float(x[0, 0])) for step, x in view.values(None)] == [
            (step, sign * float(step)) for step in range(4) for sign in (1, -1)
        ]


def test_steps_have_all_names(folder: Path) -> None:
    for step in open_run(folder).follow():
        assert sorted(step.tensor_names) == ["inputs/b", "inputs/c", "outputs/a"]
        assert (step.tensor("inputs/c") == step.step).all()
        assert (step.tensor("inputs/b") == step.step * (1 if step.mode == "train" else -1)).all()


def test_its_bytes_are_stored_once(folder: Path) -> None:
    (segment,) = (folder / "segments/0").iterdir()
    (index,) = (folder / "index/0").iterdir()
    # Four steps of one tensor, and four evaluations of two.
    payload = (4 + 4 * 2) * 64 * 64 * 4
    assert payload < segment.stat().st_size < payload + 1500
    assert index.stat().st_size < 1000


def test_the_header_lists_aliases(folder: Path) -> None:
    (segment,) = (folder / "segments/0").iterdir()
    entries = load(segment.read_bytes())
    assert sorted(entries) == ["inputs/b", "outputs/a"]
    told = metadata_of(segment)
    assert told["aliases"] == [
        [[0, 2, 4, 6], {"inputs/b": "outputs/a"}],
        [None, {"inputs/c": "outputs/a"}],
    ]
    assert told["partial"] == [[[1, 3, 5, 7], ["inputs/b"]]]


def test_equal_values_do_not_make_an_alias(tmp_path: Path) -> None:
    record = step_record(0)
    record.tensors = {"a": wide(1), "b": wide(1)}
    make_run(tmp_path, [record])
    (segment,) = (tmp_path / "segments/0").iterdir()
    assert sorted(load(segment.read_bytes())) == ["a", "b"]


def test_the_same_memory_as_another_type_or_shape_is_another_tensor(tmp_path: Path) -> None:
    data: NDArray[Any] = np.arange(6, dtype=np.float32)
    record = step_record(0)
    record.tensors = {
        "a": HostTensor("F32", (6,), data),
        "b": HostTensor("F32", (2, 3), data),
        "c": HostTensor("I32", (6,), data),
    }
    run = make_run(tmp_path, [record])
    assert run.tensor("a").shape == (6,)
    assert run.tensor("b").value(0).tolist() == data.reshape(2, 3).tolist()
    assert run.tensor("c").value(0).tobytes() == data.tobytes()
    assert run.tensor("c").dtype == np.int32


def test_it_counts_once_in_the_queue() -> None:
    record = shared(0)
    assert record.nbytes() == 64 * 64 * 4
    queue = RecordQueue(limit=3 * 64 * 64 * 4, policy="drop")
    assert [queue.put(shared(step)) for step in range(3)] == [True, True, False]


def test_a_name_that_changes_between_alias_and_owner(tmp_path: Path) -> None:
    """The stored name and the alias may change from step to step."""
    first, second = wide(1), wide(2)
    records = [step_record(step) for step in range(3)]
    records[0].tensors = {"a": first, "b": first}
    records[1].tensors = {"b": second, "a": second}
    records[2].tensors = {"a": first, "b": second}
    run = make_run(tmp_path, records)
    assert [float(value[0, 0]) for _, value in run.tensor("a").values()] == [1, 2, 1]
    assert [float(value[0, 0]) for _, value in run.tensor("b").values()] == [1, 2, 2]
    assert run.tensor("b").steps().tolist() == [0, 1, 2]


def test_many_aliases_cost_little(tmp_path: Path) -> None:
    """The header and the index record of a segment of one step have both names, and no more."""
    tensors = {f"outputs/block{number}.activation": wide(number) for number in range(50)}
    aliases = {
        f"inputs/block{number + 1}.convolution": tensors[name]
        for number, name in enumerate(tensors)
    }
    record = step_record(0)
    record.tensors = tensors
    make_run(tmp_path / "without", [record])
    record.tensors = tensors | aliases
    make_run(tmp_path / "with", [record])
    sizes = [
        sum(path.stat().st_size for path in (tmp_path / run).rglob("0000*"))
        for run in ("without", "with")
    ]
    names = sum(map(len, [*tensors, *aliases]))
    assert 0 < sizes[1] - sizes[0] <= 2 * names + 50 * 20
