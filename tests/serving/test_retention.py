"""What a service keeps is bounded in size and age; only the oldest goes, and nothing living."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until
from vinedresser.serving import Limits, RequestRecorder, RequestStore
from vinedresser.serving.storing.layout import ServiceFolder, run_started
from vinedresser.serving.storing.retention import enforce_limits

FAST = Limits(flush_seconds=0.05, rate=1e9, cost=1.0)


def record(recorder: RequestRecorder, *ids: object, columns: int = 2) -> None:
    for one in ids:
        recorder.record(np.zeros((1, columns)), None, [one])
    assert recorder.flush(60)


def enforce(folder: ServiceFolder, *, most_bytes: int = 1 << 40, age: float = 1e9) -> list[str]:
    return enforce_limits(
        folder, most_bytes=most_bytes, most_seconds=age, each_bytes=1 << 30, own=set()
    )


def test_a_full_run_directory_is_closed_and_another_begun(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=replace(FAST, store_bytes=1 << 20))
    for number in range(12):
        record(recorder, number, columns=250)
    runs = ServiceFolder(tmp_path, "service").runs("requests")
    assert len(runs) > 2
    assert runs == sorted(runs)
    for run in runs[:-1]:
        beat = json.loads((tmp_path / "service" / run / "heartbeat/0.json").read_text())
        # 1 MiB / 32, and one write more at most.
        assert beat["closed"]
        assert 32_768 <= beat["bytes"] < 65_536
        assert (tmp_path / "service" / run / "exit.json").exists()
    assert RequestStore(recorder.location).after(None)[0].ids == tuple(map(str, range(12)))
    recorder.close()


def test_the_oldest_runs_go_first_and_living_ones_stay(tmp_path: Path) -> None:
    for name in "abc":
        recorder = RequestRecorder(tmp_path, "service", limits=FAST)
        record(recorder, name)
        recorder.close()
    living = RequestRecorder(tmp_path, "service", limits=FAST)
    record(living, "living")
    folder = ServiceFolder(tmp_path, "service")
    runs = folder.runs("requests")
    assert enforce(folder) == []
    sizes = [
        json.loads((tmp_path / "service" / run / "heartbeat/0.json").read_text())["bytes"]
        for run in runs
    ]
    assert enforce(folder, most_bytes=sum(sizes) - 1) == runs[:1]
    assert enforce(folder, most_bytes=1) == runs[1:3]
    assert not (tmp_path / "service" / runs[0]).exists()
    record(living, "still")
    assert RequestStore(living.location).after(None)[0].ids == ("living", "still")
    living.close()


def test_old_runs_labels_and_alerts_are_removed(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    record(recorder, "a")
    store = RequestStore(recorder.location)
    for number in range(3):
        store.add_labels(["a"], [number])
        store.ask_for_inputs(str(number), ["a"])
    until(lambda: all(one and one.answers for one in map(store.alert_state, "012")))
    recorder.close()
    folder = ServiceFolder(tmp_path, "service")
    enforce(folder, age=0.0)
    assert folder.runs("requests") == []
    assert folder.runs("inputs") == []
    # The last of each remains, so that numbers are not used again.
    assert folder.storage.list("labels/") == ["labels/000002.json"]
    assert folder.storage.list("alerts/") == ["alerts/000002.json"]
    assert [key.split("/")[1] for key in folder.storage.list("alert_answers/")] == ["000002"]


@pytest.mark.parametrize("claim", [10**30, -(10**30)])
def test_a_heartbeat_cannot_claim_more_than_a_run_directory_may_have(
    tmp_path: Path, claim: int
) -> None:
    for name in "ab":
        recorder = RequestRecorder(tmp_path, "service", limits=FAST)
        record(recorder, name)
        recorder.close()
    folder = ServiceFolder(tmp_path, "service")
    _, second = folder.runs("requests")
    beat = tmp_path / "service" / second / "heartbeat/0.json"
    beat.write_text(json.dumps(json.loads(beat.read_text()) | {"bytes": claim}))
    assert enforce(folder, most_bytes=3 << 30) == []


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    record(recorder, "a")
    recorder.close()
    for name in ("mine", "requests-mine", "requests-20200101T000000000-host-1-zzzzzzzz"):
        (tmp_path / "service" / name).mkdir()
        (tmp_path / "service" / name / "file").write_text("kept")
    folder = ServiceFolder(tmp_path, "service")
    enforce(folder, most_bytes=1, age=0.0)
    kept = sorted(path.name for path in (tmp_path / "service").iterdir() if path.is_dir())
    assert [name for name in kept if name != "labels"] == [
        "mine",
        "requests-20200101T000000000-host-1-zzzzzzzz",
        "requests-mine",
    ]


def test_a_run_directory_that_was_removed_half_way_is_removed(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=FAST)
    record(recorder, "a")
    run = next((tmp_path / "service").glob("requests-*"))
    recorder.close()
    old = run.with_name("requests-20200101T000000000-host-1-00000000")
    run.rename(old)
    for name in ("run.json", "heartbeat/0.json"):
        os.unlink(old / name)
    assert run_started(old.name) < time.time() - 1e6
    assert enforce(ServiceFolder(tmp_path, "service"), most_bytes=1) == [old.name]
    assert not old.exists()
