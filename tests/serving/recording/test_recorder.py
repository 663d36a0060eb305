"""Requests are recorded as they were, and nothing reaches the service."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
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
    assert any("dropped" in one for one in recorder.problems)
    recorder.close()


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
