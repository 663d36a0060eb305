"""What a sweep hears of the judges of a trial when it is to be compared."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from vinedresser.objects import LocalStorage
from vinedresser.rules.causes.suspicions import SuspicionRecord
from vinedresser.store.records import suspicions_key, write_record
from vinedresser.sweeps.trial import TrialEnd
from vinedresser.tasks.sweeping import suspecting
from vinedresser.tasks.sweeping.suspecting import Suspects

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
    found = Suspects(storage, ["a", "b"], "trial-0001").at(7)
    assert found == TrialEnd("stopped", "w is zero", "all_zero", "dead", "do not")
    assert Suspects(storage, ["a"], "trial-0001").at(7) is None


def test_a_judge_that_is_behind_is_told_of_once_and_keeps_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(suspecting, "_PATIENCE", 0.1)
    storage = LocalStorage(tmp_path)
    suspects = Suspects(storage, ["a"], "trial-0001")
    found: list[TrialEnd | None] = []
    # As in a sweep it is a thread that asks.
    asking = threading.Thread(target=lambda: found.extend(suspects.at(step) for step in (1, 2)))
    with caplog.at_level(logging.WARNING):
        asking.start()
        asking.join()
    assert found == [None, None]
    (message,) = caplog.messages
    assert message.startswith("trial-0001: its judge a is behind")
    write(storage, "a", 3, FINDING)
    assert suspects.at(3) is not None


def test_a_judge_is_waited_for_again_when_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    with monkeypatch.context() as soon:
        soon.setattr(suspecting, "_PATIENCE", 0.05)
        suspects = Suspects(storage, ["a"], "trial-0001")
        assert suspects.at(1) is None
    write(storage, "a", 3, FINDING)
    assert suspects.at(3) is not None
    threading.Timer(0.2, write, (storage, "a", 4, FINDING)).start()
    assert suspects.at(4) is not None
