"""Rules and tests agree on which rules apply in which framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import TESTS
from tests.rules.frameworks import ANYWHERE, DOES_NOT_APPLY, Case, uncovered
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import Run


@pytest.mark.parametrize(
    "name", sorted(RULES.keys() - DOES_NOT_APPLY["torch"].keys() - ANYWHERE.keys())
)
def test_each_rule_is_asked_of_trainings_with_torch(name: str) -> None:
    """A test with a torch training creates the rule or expects it by its name."""
    files = [path.read_text(encoding="utf-8") for path in (TESTS / "rules").rglob("test_*.py")]
    named = (f"{RULES[name].__name__}(", f'"{name}"')
    torch = [text for text in files if "torch" in text or "tests.rules.trainings" in text]
    assert any(one in text for text in torch for one in named)


class _Nothing:
    """A training that is never run."""

    def run(self, directory: Path) -> Run:
        raise AssertionError(directory)


def test_a_rule_without_a_case_and_without_a_reason_is_named() -> None:
    missing = uncovered("torch", {}, {}, {})
    assert set(missing) == set(RULES) - set(ANYWHERE) - set(DOES_NOT_APPLY["torch"])
    rule = "nonfinite"

    case = {"a case": Case(_Nothing(), frozenset({rule}))}
    assert rule in uncovered("torch", case, {}, {})
    assert rule not in uncovered("torch", case, case, {})
    unknown = {"a case": Case(_Nothing(), frozenset({"no_such_rule"}))}
    assert "no_such_rule" in uncovered("torch", unknown, {}, {})
