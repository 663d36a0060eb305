"""Full inputs are written for an alert only: those it names, and off again by itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import until
from vinedresser.errors import ConfigError
from vinedresser.serving import Limits, RequestRecorder, RequestStore
from vinedresser.store.reading.reader import open_run

FAST = Limits(flush_seconds=0.02, rate=1e9, cost=1.0)


def serve(recorder: RequestRecorder, *numbers: int) -> None:
    """Record requests whose id and input are a number, one call each, and commit them."""
    for number in numbers:
        recorder.record(np.full((1, 2, 2), number, np.float32), None, [number])
    assert recorder.flush(60)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def answered(store: RequestStore, alert: str) -> Any:
    until(lambda: (state := store.alert_state(alert)) and state.answers)
    return store.alert_state(alert)


def test_exactly_the_inputs_of_the_window_and_of_those_that_follow(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(recorder, *range(20))
    store = RequestStore(recorder.location)
    assert not [*tmp_path.glob("service/inputs-*")]
    store.ask_for_inputs("drift-1", [3, 5, "gone"], following=2)
    state = answered(store, "drift-1")
    assert (state.found, state.following, state.done) == (2, 0, False)
    serve(recorder, 20, 21, 22)
    state = store.alert_state("drift-1")
    assert state is not None
    assert (state.found, state.following, state.done) == (2, 2, True)
    inputs = store.inputs_of(range(30))
    assert sorted(map(int, inputs)) == [3, 5, 20, 21]
    assert all(np.array_equal(value, np.full((2, 2), int(n))) for n, value in inputs.items())
    # Off again: the run is closed, and nothing is added to it.
    (run,) = tmp_path.glob("service/inputs-*")
    before = files(run)
    serve(recorder, *range(30, 40))
    assert files(run) == before
    assert open_run(run).status.state == "finished"
    recorder.close()


def test_records_and_several_arguments_are_captured_by_name(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    recorder.record([{"age": 3, "tags": ["a", "b"]}], None, ["record"])
    recorder.record({"image": np.ones((1, 2)), "n": [7]}, None, ["parts"])
    recorder.flush()
    store = RequestStore(recorder.location)
    store.ask_for_inputs("alert", ["record", "parts"])
    answered(store, "alert")
    inputs = store.inputs_of(["record", "parts"])
    assert inputs["record"] == {"age": 3, "tags": ["a", "b"]}
    assert inputs["parts"]["image"].tolist() == [1.0, 1.0]
    assert inputs["parts"]["n"] == 7
    recorder.close()


def test_the_same_alert_is_answered_once(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(recorder, 1)
    store = RequestStore(recorder.location)
    for _ in range(3):
        store.ask_for_inputs("alert", [1])
    answered(store, "alert")
    assert [path.name for path in tmp_path.glob("service/alerts/*")] == ["000000.json"]
    assert len([*tmp_path.glob("service/inputs-*")]) == 1
    recorder.close()


def test_the_wait_for_further_requests_ends_by_itself(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(recorder, 1)
    store = RequestStore(recorder.location)
    store.ask_for_inputs("alert", [1], following=100, until=time.time() + 0.5)
    answered(store, "alert")
    end = tmp_path / "service/alert_answers/000000"
    until(lambda: all(json.loads(path.read_text())["done"] for path in end.iterdir()))
    serve(recorder, 2)
    assert [*store.inputs_of([1, 2])] == ["1"]
    recorder.close()


def test_inputs_are_bounded_in_memory_and_in_the_store(tmp_path: Path) -> None:
    limits = Limits(flush_seconds=0.02, rate=1e9, cost=1.0, input_bytes=4000)
    recorder = RequestRecorder(tmp_path, "service", limits=limits)
    for number in range(20):
        recorder.record(np.full((1, 100), number, np.float64), None, [number])
        recorder.flush()
    store = RequestStore(recorder.location)
    store.ask_for_inputs("alert", range(20), following=100)
    state = answered(store, "alert")
    # 928 bytes each.
    assert state.found == 4
    for number in range(20, 30):
        recorder.record(np.full((1, 100), number, np.float64), None, [number])
    recorder.flush()
    state = store.alert_state("alert")
    assert state is not None
    assert state.done
    assert state.refused == ("more than 4000 bytes of inputs",)
    assert sorted(map(int, store.inputs_of(range(30)))) == [16, 17, 18, 19]
    recorder.close()


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[1]",
        "not JSON",
        json.dumps({"alert": "x", "ids": [], "following": 10**9, "until": 1e12, "time": 1.0}),
        json.dumps({"alert": "x", "ids": [1], "following": 1, "until": 1e10, "time": 1.0}),
        json.dumps({"alert": "x", "ids": ["a"], "following": -1, "until": 1e10, "time": 1.0}),
    ],
)
def test_an_alert_that_asks_for_too_much_is_ignored(tmp_path: Path, content: str) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(recorder, 1)
    (tmp_path / "service/alerts").mkdir()
    (tmp_path / "service/alerts/000000.json").write_text(content)
    store = RequestStore(recorder.location)
    store.ask_for_inputs("real", [1])
    assert answered(store, "real").found == 1
    assert any("000000.json" in problem for problem in recorder.problems)
    assert not [*tmp_path.glob("service/inputs-000000-*")]
    recorder.close()


def test_an_old_alert_is_not_answered_by_a_new_process(tmp_path: Path) -> None:
    first = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(first, 1)
    store = RequestStore(first.location)
    store.ask_for_inputs("old", [1], until=time.time() + 0.05)
    first.close()
    second = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(second, 1)
    record = json.loads((tmp_path / "service/alerts/000000.json").read_text())
    until(lambda: time.time() > record["until"])
    store.ask_for_inputs("new", [1])
    answered(store, "new")
    assert len([*tmp_path.glob("service/inputs-000001-*")]) == 1
    second.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ids": range(10_001)}, "at most 10000"),
        ({"ids": [], "following": -1}, "at most 10000"),
        ({"ids": [], "until": 5.0}, "within a week"),
        ({"ids": [], "until": time.time() + 1e7}, "within a week"),
    ],
)
def test_what_exceeds_the_limits_is_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    serve(recorder, 1)
    with pytest.raises(ConfigError, match=message):
        RequestStore(recorder.location).ask_for_inputs("alert", **arguments)
    recorder.close()
