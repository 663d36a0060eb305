"""The rule `expectation` on real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.stated.points import train
from vinedresser.errors import ConfigError
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

MET = (
    "accuracy > 0.8 by epoch 5, else stop",
    "eval/accuracy > 0.8 from epoch 5",
    "loss falls",
    "accuracy rises by end",
    "first trained by step 100",
    "loss < 5",
    "0.2 < mean(labels) < 0.8",
    "share(labels == 1) > 0.2 and share(labels == 0) > 0.2",
)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("expectation") / "healthy")


def findings(run: Path, *lines: str) -> list[Finding]:
    return list(judge(open_run(run), rules_from_table({"expectation": {"lines": [*lines]}})))


def test_expectations_that_are_met_are_silent(healthy: Path) -> None:
    assert findings(healthy, *MET) == []


@pytest.mark.parametrize(
    ("line", "step", "since", "name"),
    [
        # The first step after the second evaluation.
        ("accuracy > 0.999 by epoch 2, else stop", 100, 50, "accuracy"),
        ("accuracy > 0.999 by step 70", 70, 50, "accuracy"),
        ("accuracy > 0.999 by end", 300, 50, "accuracy"),
        ("step_of_none == 1 and loss < 5", 300, 300, ""),
        ("eval/accuracy > 0.999 from epoch 3", 150, 150, "eval/accuracy"),
        ("train/loss rises, else info", 300, 0, "train/loss"),
        ("first frozen", 20, 20, "first"),
        ("mean(labels) > 0.9", 0, 0, "mean(labels)"),
    ],
)
def test_a_breach_quotes_the_line(
    healthy: Path, line: str, step: int, since: int, name: str
) -> None:
    (found,) = findings(healthy, line)
    assert line in found.seen
    assert (found.rule, found.tensor) == ("expectation", name)
    severity = line.partition(", else ")[2] or "warning"
    assert found.severity == severity
    if name:
        assert (found.step, found.since) == (step, since)


def test_parameters_that_stand_still_are_a_breach(tmp_path: Path) -> None:
    run = train(tmp_path / "run", frozen=True, epochs=2)
    (found,) = findings(run, "* trained by step 60", "first frozen")
    assert found.tensor == "first"
    assert found.evidence["expected"] == ["* trained by step 60"]


def test_what_never_came_cannot_be_told(healthy: Path) -> None:
    (found,) = findings(healthy, "acuracy > 0.5", "encoder.* trained")
    assert found.severity == "warning"
    assert found.fault == ""
    assert "did you mean accuracy" in found.seen
    assert "eval/accuracy" in found.seen
    assert "first, second" in found.seen


def test_what_is_not_reached_is_no_breach(healthy: Path) -> None:
    (found,) = findings(healthy, "accuracy > 0.999 by epoch 100")
    assert found.severity == "info"
    assert "ended before epoch 100" in found.seen


def test_a_script_states_what_it_expects(tmp_path: Path) -> None:
    run = train(tmp_path / "run", rate=1e-4, epochs=3, expect=("accuracy > 0.9 by epoch 2",))
    (found,) = judge(open_run(run), rules_from_table({"expectation": {}}))
    assert found.step == 100
    with pytest.raises(ConfigError, match="not a comparison"):
        train(tmp_path / "other", expect=("accuracy",))
