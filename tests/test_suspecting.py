"""What a sweep hears of the judges of a trial when it is to be compared."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from vinedresser.infra.run_directory import suspicions_key, write_record
from vinedresser.infra.storage import LocalStorage
from vinedresser.rules.suspicions import SuspicionRecord
from vinedresser.sweeps.trial import Ending
from vinedresser.tasks import suspecting
from vinedresser.tasks.suspecting import suspicion_at

FINDING = {
    "rule": "all_zero",
    "severity": "stop",
    "step": 4,
    "since": 0,
    "mode": "train",
    "rank": 0,
    "tensor": "w",
    "statistic": "l2",
    "value": 0.0,
    "threshold": 0.0,
    "confidence": 1.0,
    "seen": "w is zero",
    "cause": "",
    "remedy": "do not",
    "fault": "dead",
}


def write(storage: LocalStorage, group: str, step: int, *findings: dict[str, object]) -> None:
    """Write down what a group suspects."""
    record = SuspicionRecord(step, [*findings])
    write_record(storage, record, key=suspicions_key(group))


def test_it_is_waited_for_until_all_judges_have_seen_the_step(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    write(storage, "a", 3, {**FINDING, "rule": "of_an_earlier_step"})
    write(storage, "b", 7, FINDING)
    asked = threading.Timer(0.2, write, (storage, "a", 7))
    asked.start()
    found = suspicion_at(storage, ["a", "b"], 7, "trial-0001")
    assert found == Ending("stopped", "w is zero", "all_zero", "dead", "do not")
    assert suspicion_at(storage, ["a"], 7, "trial-0001") is None


def test_a_judge_that_is_behind_is_told_of_and_keeps_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(suspecting, "_PATIENCE", 0.1)
    found: list[Ending | None] = []
    # As in a sweep it is a thread that asks.
    asking = threading.Thread(
        target=lambda: found.append(suspicion_at(LocalStorage(tmp_path), ["a"], 1, "trial-0001"))
    )
    with caplog.at_level(logging.WARNING):
        asking.start()
        asking.join()
    assert found == [None]
    assert caplog.messages == [
        "trial-0001: its judge a is behind; compared without what it suspects"
    ]
