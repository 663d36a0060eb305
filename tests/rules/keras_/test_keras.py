"""Each rule that applies to Keras, on a training that it is right about and on one beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.frameworks import Case, alarms, found, missed, uncovered, wrongly_told
from tests.rules.keras_.cases import FAULTY, QUICK, SOUND, THOROUGH
from tests.rules.keras_.trainings import waiting

pytestmark = [
    # Of Keras itself, whenever it makes an array of a variable.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Of Keras too: it takes the logits in front of a softmax instead.
    pytest.mark.filterwarnings("ignore:.*received `from_logits=True`:UserWarning"),
]

# Loops of one's own: of `fit`, the mode is right and all that is trainable is trained.
ELSEWHERE = {
    "untrained_parameters": (
        "rules/optimisation/test_modes_keras.py::test_updated_layers",
        "rules/optimisation/test_modes_keras.py::test_updated_layers",
    ),
    "wrong_mode": (
        "rules/optimisation/test_modes_keras.py::test_training_argument_of_the_call",
        "rules/optimisation/test_modes_keras.py::test_training_argument_of_the_call",
    ),
    "idle_term": (
        "rules/losses/test_idle_term.py::test_a_term_that_trains_nothing_is_named",
        "rules/losses/test_idle_term.py::test_terms_of_a_loop_that_reports_numbers_are_judged",
    ),
    "slow_input": (
        "rules/keras_/test_keras.py::test_a_loop_that_waits_for_its_rows",
        "rules/keras_/test_keras.py::test_a_loop_that_waits_for_its_rows",
    ),
}


def cases(table: dict[str, Case]) -> list[object]:
    """Return the names of cases, marked unless they are quick."""
    deep = {name: pytest.mark.thorough if name in THOROUGH else pytest.mark.slow for name in table}
    return [pytest.param(name, marks=() if name in QUICK else deep[name]) for name in table]


@pytest.mark.parametrize("name", cases(FAULTY))
def test_what_is_wrong_is_found(name: str, tmp_path: Path) -> None:
    assert missed(FAULTY[name], tmp_path / "run") == []


@pytest.mark.parametrize("name", cases(SOUND))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert wrongly_told(SOUND[name], tmp_path / "run") == []


@pytest.mark.slow
def test_a_loop_that_waits_for_its_rows(tmp_path: Path) -> None:
    slow = found(waiting(tmp_path / "slow", 0.02))
    assert "slow_input" in {one.rule for one in slow}
    assert alarms(slow) == []
    quick = found(waiting(tmp_path / "quick", 0.0005))
    assert "slow_input" not in {one.rule for one in quick}


def test_every_rule_has_its_cases_or_a_reason() -> None:
    assert uncovered("Keras", FAULTY, SOUND, ELSEWHERE) == []
