"""Expectations that a good run suggests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.stated.points import train
from vinedresser.errors import ConfigError
from vinedresser.explain.proposing import proposed_expectations
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.reading.reader import open_run


def test_other_good_runs_meet_them_and_bad_ones_do_not(tmp_path: Path) -> None:
    lines = proposed_expectations(open_run(train(tmp_path / "good", seed=1)))
    assert "train/loss falls" in lines
    assert any(line.startswith("eval/accuracy > 0.") for line in lines)
    rules = rules_from_table({"expectation": {"lines": lines}})
    assert [*judge(open_run(train(tmp_path / "other", seed=2)), rules)] == []
    (found, *_) = judge(open_run(train(tmp_path / "bad", seed=2, shuffled=True)), rules)
    assert found.severity == "warning"


def test_a_run_that_crashed_suggests_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"could not broadcast|shapes"):
        train(tmp_path / "run", rate=[0.1, 0.2, 0.3])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no good run: crashed"):
        proposed_expectations(open_run(tmp_path / "run"))
