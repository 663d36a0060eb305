"""Requests are recorded as they were, and nothing reaches the service."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.unlimited import UNLIMITED
from tests.waiting import until
from vinedresser.errors import ConfigError
from vinedresser.serving import Limits, RequestRecorder, Requests, RequestStore, describe

FAST = Limits(flush_seconds=0.05)


def recorded(recorder: RequestRecorder) -> Requests:
    """Return all requests of a recorder's service."""
    assert recorder.flush(60)
    return RequestStore(recorder.location).after(None)[0]


def test_requests_are_read_back_with_the_columns_of_describe(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    inputs = np.random.default_rng(0).normal(size=(30, 4))
    outputs = inputs @ np.ones((4, 3))
    for first in range(0, 30, 5):
        rows = slice(first, first + 5)
        recorder.record(inputs[rows], outputs[rows], ids=range(first, first + 5))
    found = recorded(recorder)
    assert found.ids == tuple(map(str, range(30)))
    for name, values in describe(inputs, outputs).items():
        np.testing.assert_array_equal(found.columns[name], values)
    assert found.probabilities.tolist() == [1.0] * 30
    assert recorder.problems == []
    recorder.close()


def test_a_later_change_of_the_inputs_is_not_recorded(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    array, record = np.zeros((1, 2)), [{"age": 1}]
    recorder.record(array, ids=["array"])
    recorder.record(record, ids=["record"])
    array += 5
    record[0]["age"] = 5
    found = recorded(recorder)
    assert found.columns["x0"][0] == 0.0
    assert found.columns["age"][1] == 1.0
    recorder.close()


@pytest.mark.parametrize(
    ("inputs", "outputs", "ids", "message"),
    [
        (np.zeros((2, 3)), np.zeros(3), None, "2 requests, but outputs of 3"),
        (np.zeros((2, 3)), np.zeros(2), ["a"], "1 ids for 2 requests"),
        (object(), object(), None, ""),
        (np.array([[object()]]), None, None, ""),
        ({"a": [1, 2], "b": [1]}, None, None, "one row per request"),
        (np.zeros((2, 3)), {"a": {1, 2}}, None, ""),
        (iter([1]), 1, None, ""),
    ],
)
def test_nothing_is_raised_into_the_service(
    tmp_path: Path, inputs: Any, outputs: Any, ids: Any, message: str
) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    recorder.record(inputs, outputs, ids)
    recorder.record(np.zeros((1, 3)), np.zeros(1), ["last"])
    assert recorded(recorder).ids[-1] == "last"
    assert message in "".join(recorder.problems)
    recorder.close()


def test_a_problem_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    with caplog.at_level(logging.WARNING, "vinedresser.serving"):
        for _ in range(50):
            recorder.record(np.zeros((2, 3)), None, ["only one"])
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("recording requests of service: recording a request failed")
    assert message.endswith("ValueError: 1 ids for 2 requests")
    assert recorder.faults.counts.total() == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a/b"}, "name of the service"),
        ({"sample": 0}, "sample: 0 is not a share"),
        ({"features": "age"}, "features: 'age' is not a list"),
        ({"classify": "max"}, "classify: 'max'"),
        ({"store": "ftp://host/store"}, "ftp:// is not supported"),
    ],
)
def test_invalid_arguments_are_refused_at_the_start(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RequestRecorder(**{"store": tmp_path, "name": "service", **arguments})


def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path) -> None:
    recorder = RequestRecorder(
        tmp_path,
        "service",
        limits=Limits(queue_bytes=100_000, flush_seconds=3600, rate=1e9, cost=1),
    )
    for number in range(2000):
        recorder.record(np.zeros((1, 100)), None, [number])
    until(recorder.flush)
    until(recorder.flush)
    kept = RequestStore(recorder.location).after(None)[0]
    assert recorder.dropped > 0
    assert len(kept) + recorder.dropped == 2000
    assert any("dropped" in problem for problem in recorder.problems)
    recorder.close()


@pytest.mark.thorough
def test_a_recorder_may_be_collected_on_its_own_thread(tmp_path: Path) -> None:
    others = {*threading.enumerate()}
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    location = recorder.location
    released, collected = threading.Event(), threading.Event()
    collectors: list[threading.Thread] = []

    def read() -> tuple[np.ndarray, np.ndarray]:
        released.wait(30)
        collectors.append(threading.current_thread())
        gc.collect()
        return np.zeros((1, 2)), np.zeros((1, 2))

    item = recorder.choose("one")
    assert item is not None
    item.read = read
    recorder.record_later(item)
    (thread,) = {*threading.enumerate()} - others
    gc.disable()
    try:
        weakref.finalize(recorder, collected.set)
        del recorder
        assert not collected.is_set()
        released.set()
        assert collected.wait(30)
    finally:
        gc.enable()
    thread.join(30)
    assert not thread.is_alive()
    assert collectors == [thread]
    assert RequestStore(location).after(None)[0].ids == ("one",)


def test_threads_record_at_once(tmp_path: Path) -> None:
    recorder = RequestRecorder(
        tmp_path, "service", limits=Limits(flush_seconds=0.01, rate=1e9, cost=1)
    )

    def serve(thread: int) -> None:
        for number in range(200):
            recorder.record(np.full((1, 2), number), None, [f"{thread}-{number}"])

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = recorded(recorder)
    assert sorted(found.ids) == sorted(f"{t}-{n}" for t in range(4) for n in range(200))
    assert all(
        found.columns["x0"][row] == int(one.split("-")[1]) for row, one in enumerate(found.ids)
    )
    recorder.close()


def test_a_removed_service_is_reported_once_and_not_created_again(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    recorder.record(np.zeros((1, 2)), None, ["first"])
    assert recorder.flush()
    shutil.rmtree(recorder.location)
    for number in range(3):
        recorder.record(np.zeros((1, 2)), None, [number])
        recorder.flush()
    assert not Path(recorder.location).exists()
    assert len(recorder.problems) == 1
    assert "was removed" in recorder.problems[0]
    assert recorder.dropped == 3
    recorder.close()


def test_a_removed_run_directory_is_replaced(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    recorder.record(np.zeros((1, 2)), None, ["first"])
    assert recorder.flush()
    shutil.rmtree(next(Path(recorder.location).glob("requests-*")))
    recorder.record(np.zeros((1, 2)), None, ["second"])
    assert recorded(recorder).ids == ("second",)
    assert recorder.problems == []
    recorder.close()


def test_a_fork_records_into_a_run_directory_of_its_own(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    recorder.record(np.zeros((1, 2)), None, ["parent"])
    child = os.fork()
    if not child:
        recorder.record(np.zeros((1, 2)), None, ["child"])
        os._exit(0 if recorder.close() else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.record(np.zeros((1, 2)), None, ["parent again"])
    assert set(recorded(recorder).ids) == {"parent", "child", "parent again"}
    runs = sorted(path.name for path in Path(recorder.location).glob("requests-*"))
    assert {run.split("-")[3] for run in runs} == {str(os.getpid()), str(child)}
    recorder.close()


def test_the_end_of_the_process_writes_what_is_left(tmp_path: Path) -> None:
    code = (
        "import numpy as np, sys; from vinedresser.serving import RequestRecorder, Limits\n"
        "r = RequestRecorder(sys.argv[1], 'service', limits=Limits(flush_seconds=3600))\n"
        "r.record(np.zeros((1, 2)), None, ['last'])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    store = RequestStore(tmp_path / "service")
    requests, cursor = store.after(None)
    assert requests.ids == ("last",)
    assert [*cursor["runs"].values()] == [[1, 0, True]]


def test_requests_that_came_were_recorded_or_were_lost_are_counted(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", sample=0.25, limits=UNLIMITED)
    store = RequestStore(recorder.location)
    for place in range(400):
        recorder.record(np.zeros((1, 2)), ids=[f"id-{place}"])
    chosen = len(recorded(recorder))
    assert 50 < chosen < 150
    # A flush tells of all of them.
    assert store.counts() == (400, chosen, 0, True)
    for place in range(8):
        # Ids that are not as many as the requests.
        recorder.record(np.zeros((3, 2)), ids=[f"id-{place}"])
    recorder.close()
    came, kept, lost, exact = store.counts()
    assert (came, kept, exact) == (400 + 8 * 3, chosen, True)
    assert lost == recorder.dropped == 8 * 3
    recorder.record(np.zeros((1, 2)))
    assert store.counts() == (came, kept, lost, exact)


def test_a_service_of_which_nothing_is_recorded_tells_how_many_requests_came(
    tmp_path: Path,
) -> None:
    recorder = RequestRecorder(tmp_path, "service", sample=1e-12, limits=UNLIMITED)
    for _ in range(50):
        recorder.record(np.zeros((1, 2)))
    assert len(recorded(recorder)) == 0
    assert RequestStore(recorder.location).counts() == (50, 0, 0, True)
    recorder.close()


def test_counts_of_a_killed_process_are_not_exact(tmp_path: Path) -> None:
    code = (
        "import os, sys, numpy as np\n"
        "from vinedresser.serving import RequestRecorder\n"
        "recorder = RequestRecorder(sys.argv[1], 'service')\n"
        "recorder.record(np.zeros((1, 2)))\n"
        "assert recorder.flush(60)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    found = RequestStore(tmp_path / "service").counts()
    assert (found.came, found.recorded, found.exact) == (1, 1, False)
    [beat] = tmp_path.glob("service/requests-*/heartbeat/*")
    old = json.loads(beat.read_text()) | {"seen": None, "recorded": None}
    beat.write_text(json.dumps(old))
    found = RequestStore(tmp_path / "service").counts()
    assert (found.came, found.recorded, found.lost) == (None, None, 0)


def test_calls_without_rows_are_not_recorded(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    empty: list[Any] = [np.zeros((0, 3)), [], {"x0": np.zeros(0)}]
    for inputs in empty:
        recorder.record(inputs, np.zeros((0, 2)))
        recorder.record(inputs, np.zeros((0, 2)), ids=[])
        assert recorder.flush(60)
    recorder.record(np.ones((1, 3)), np.ones((1, 2)), ids=["one"])
    recorder.record(empty[0], np.zeros((0, 2)))
    assert recorded(recorder).ids == ("one",)
    assert recorder.problems == []
    assert recorder.dropped == 0
    recorder.close()
