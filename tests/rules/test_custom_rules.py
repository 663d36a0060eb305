"""Custom rules from a user's file: loading, errors with line numbers, checks, and judging."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.errors import ConfigError
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.rule_check import try_rules
from vinedresser.testing.runs import end_run, make_run, step_record

MY_RULES = '''
from dataclasses import dataclass

from vinedresser.capture import Finding, Step
from vinedresser.rules import Need, Rule

seen = []


class Above(Rule):
    """A loss lies above a limit."""

    needs = (Need("losses"),)

    def __init__(self, limit: float = 2.0) -> None:
        self.limit = limit

    def update(self, step: Step) -> Finding | None:
        value = max(step.scalars_of("losses").values(), default=0.0)
        if value <= self.limit:
            return None
        return self.found(
            step, since=step.step, tensor="losses/l", statistic="loss", value=value,
            threshold=self.limit, confidence=1.0, seen=f"it is {value:g}", cause="c", remedy="r",
            evidence={},
        )


class Forgetful(Above):
    """Stores state outside of itself, which a rule must not do."""

    def update(self, step: Step) -> Finding | None:
        seen.append(step.step)
        return super().update(step) if len(seen) < 3 else None


class Broken(Above):
    """Fails."""

    def update(self, step: Step) -> Finding | None:
        return 1 / 0


@dataclass
class NoRule:
    """Not a rule."""
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "my_rules.py"
    path.write_text(MY_RULES, encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    make_run(path, [step_record(step, scalars={"losses/l": float(step)}) for step in range(5)])
    return path


def test_a_rule_is_named_by_file_and_class(mine: Path) -> None:
    table = {"my_rules.py:Above": {"limit": 3.0, "severity": "warning"}, "nonfinite": {}}
    nonfinite, above = rules_from_table(table, base=mine.parent)
    assert nonfinite.name == "nonfinite"
    assert (above.name, above.params, above.severity) == ("above", {"limit": 3.0}, "warning")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:Above", "rules.none.py:Above: {path}/none.py: no such file"),
        (
            "my_rules.py:Abov",
            "rules.my_rules.py:Abov: {path}/my_rules.py: does not define Abov; did you mean",
        ),
        ("my_rules.py:NoRule", "NoRule is not a rule; a rule is a subclass of Rule"),
        ("my_rules.py:Rule", "does not define Rule|Rule is not a rule"),
    ],
)
def test_an_invalid_name_is_explained(mine: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.format(path=mine.parent)):
        rules_from_table({name: {}}, base=mine.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", r"fails.py:2: ZeroDivisionError: division by zero"),
        ("def f(:\n", r"fails.py:1: SyntaxError"),
        ("import nothing_like_this\n", r"fails.py:1: ModuleNotFoundError"),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fails.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        rules_from_table({f"{path}:Any": {}})


def test_a_check_tells_sound_rules_from_others(mine: Path, run: Path) -> None:
    sound = try_rules({f"{mine}:Above": {"limit": 2.5}}, str(run))
    assert (sound.checks.rules, sound.steps, sound.sound) == (["above"], 5, True)
    assert [finding.step for finding in sound.findings] == [3, 4]
    forgetful = try_rules({f"{mine}:Forgetful": {"limit": -1.0}}, str(run))
    assert not forgetful.same
    broken = try_rules({f"{mine}:Broken": {}}, str(run))
    assert broken.failed == ("broken",)
    # All rules of the file.
    assert try_rules({str(mine): {}}, str(run)).checks.rules == ["above", "forgetful", "broken"]


@pytest.mark.thorough
def test_the_command_tries_rules(mine: Path, run: Path) -> None:
    said = vinedresser("rules", "test", f"{mine}:Above:limit=2.5", "--run", str(run))
    assert said.returncode == 0
    assert "above since step 3: it is 3" in said.stdout
    assert vinedresser("rules", "test", str(mine), "--run", str(run)).returncode == 1
    missing = vinedresser("rules", "test", f"{mine}:None", "--run", str(run))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "does not define None" in missing.stderr


@pytest.mark.thorough
def test_judge_accepts_a_custom_rule(mine: Path, run: Path) -> None:
    said = vinedresser("judge", str(run), "--rule", f"{mine}:Above:limit=3.5")
    assert "above since step 4: it is 4" in said.stdout
    end_run(run)


@pytest.mark.thorough
def test_list_and_describe() -> None:
    assert "vanishing_gradient" in vinedresser("rules", "list").stdout
    said = vinedresser("rules", "describe", "overfitting").stdout
    assert said.startswith("overfitting(ratio = 0.1, patience = 5, plateau = 10, delta = 0.01)")
    assert "Args:" in said
