"""The run of a trial is judged as one that was killed after its steps, if the check ended it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vinedresser.preflight.trial_run import TrialRun
from vinedresser.preflight.verdict import FINE, SUSPICIOUS, UNCHECKED, Verdict
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import new_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import step_record

# Two rules: the first fires at the end of a whole training, the second fails at its third step.
OWN = """
from vinedresser.rules import Rule


class AtEnd(Rule):
    name = "at_end"
    last = None

    def update(self, step):
        self.last = step

    def finish(self):
        return self.found(
            self.last, since=0, tensor="losses/loss", statistic="value", value=1.0, threshold=0.0,
            confidence=0.9, seen="seen", cause="cause", remedy="remedy", evidence={},
        )


class Breaks(Rule):
    name = "breaks"

    def update(self, step):
        if step.step == 2:
            raise ZeroDivisionError("broken")
"""


def verdicts(
    tmp_path: Path,
    skip: tuple[str, ...] = (),
    *,
    steps: int = 8,
    cut: bool = True,
    change: float = -0.1,
) -> list[Verdict]:
    """Return what both rules say of a trial, whose loss changes at each step."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    rules: dict[str, dict[str, Any]] = {
        f"{tmp_path}/own.py:{name}": {} for name in ("AtEnd", "Breaks")
    }
    trial = TrialRun(tmp_path / "run", new_run("digits"), rules, skip)
    writer = RunWriter(open_run(trial.directory).storage, 0)
    for step in range(steps):
        writer.add(step_record(step, scalars={"losses/loss": 1.0 + change * step}))
    writer.close()
    found = trial.verdicts(0, cut=cut)
    assert len({one.check for one in found}) == len(found)
    return found


def states(tmp_path: Path, *arguments: Any, **options: Any) -> dict[str, str]:
    """Return the states that both rules give to a trial (`verdicts`)."""
    return {one.check: one.state for one in verdicts(tmp_path, *arguments, **options)}


def test_a_trial_that_was_ended_has_no_outcome_and_a_broken_rule_blames_nobody(
    tmp_path: Path,
) -> None:
    assert states(tmp_path) == {"breaks": UNCHECKED, "rules": FINE}


def test_a_script_that_ended_by_itself_was_a_whole_training(tmp_path: Path) -> None:
    assert states(tmp_path, cut=False) == {
        "at_end": SUSPICIOUS,
        "breaks": UNCHECKED,
        "rules": FINE,
    }


@pytest.mark.parametrize("change", [0.0, 0.1])
def test_no_finding_in_a_trial_whose_loss_does_not_fall_is_not_fine(
    tmp_path: Path, change: float
) -> None:
    assert states(tmp_path, change=change)["rules"] == UNCHECKED


def test_a_few_steps_are_not_fine(tmp_path: Path) -> None:
    (rules,) = [one for one in verdicts(tmp_path, steps=4) if one.check == "rules"]
    assert rules.state == UNCHECKED
    assert rules.evidence.endswith("too few to tell whether it learns: loss was 1 and is 0.7")


def test_nothing_is_said_of_steps_that_were_not_captured(tmp_path: Path) -> None:
    assert states(tmp_path, steps=0) == {"rules": UNCHECKED}
    assert states(tmp_path / "other", ("rules",)) == {}
