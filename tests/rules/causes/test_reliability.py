"""The confidence of findings: that of the symptom, times how often its fault is the cause."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from tests.benchmarks.faults.test_verdict import finding
from vinedresser.rules.causes.reliability import calibrated
from vinedresser.rules.faults import FAULTS


def test_the_shares_are_those_of_faults() -> None:
    text = (
        files("vinedresser.rules.causes").joinpath("reliability.json").read_text(encoding="utf-8")
    )
    shares = json.loads(text)
    assert set(shares) <= set(FAULTS)
    assert all(0 < share < 1 for share in shares.values())


def test_a_finding_states_how_often_its_fault_is_the_cause() -> None:
    """A rate is blamed for what other faults do, too; a fault that was not measured stays."""
    said = [finding(fault=fault) for fault in ("gradients_not_cleared", "learning_rate_too_high")]
    sure, doubtful = (calibrated(one).confidence for one in said)
    assert doubtful < sure < said[0].confidence
    assert calibrated(finding(fault="slow_input")).confidence == pytest.approx(0.9)
