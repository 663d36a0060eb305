"""Which rules apply in which framework, and helpers that the tests of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.paths import TESTS
from vinedresser.rules.applicability import FRAMEWORKS
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run

__all__ = ["ANYWHERE", "DOES_NOT_APPLY", "Case", "alarms", "found", "uncovered"]


class Training(Protocol):
    """A training that leaves a run."""

    def run(self, directory: Path) -> Run:
        """Train, and capture the needs of the default rules."""


@dataclass(frozen=True)
class Case:
    """A training, and the rules that it tests.

    Attributes:
        training: the training.
        rules: for a faulty training, the rules that fire; for a sound one, rules that nearly fire.
        fault: fault of the root cause of a faulty training; "" if its rules only give hints.
    """

    training: Training
    rules: frozenset[str]
    fault: str = ""


# Rules that depend only on the times or statistics of steps in any framework, with their tests.
ANYWHERE: dict[str, tuple[str, str]] = {
    "step_outlier": (
        "rules/system/test_system.py::test_periodic_slow_steps_are_found",
        "rules/system/test_system.py::test_noise_rare_outliers_and_pace_changes_are_ignored",
    ),
    "stalled_training": (
        "rules/system/test_system.py::test_silence_is_found_by_step_times",
        "rules/system/test_system.py::test_usual_pauses_and_the_end_are_no_silence",
    ),
    "expectation": (
        "rules/stated/test_expectation.py::test_a_breach_quotes_the_line",
        "rules/stated/test_expectation.py::test_expectations_that_are_met_are_silent",
    ),
    "reference": (
        "rules/stated/test_reference.py::test_shuffled_labels_are_worse_and_found_early",
        "rules/stated/test_reference.py::test_another_seed_is_as_the_good_runs",
    ),
}

# By framework and rule the reason why it does not apply.
DOES_NOT_APPLY: dict[str, dict[str, str]] = {
    framework: {
        name: rule.inapplicable[place] for name, rule in RULES.items() if rule.inapplicable[place]
    }
    for place, framework in enumerate(FRAMEWORKS)
}


def found(run: Run) -> list[Finding]:
    """Return the default rules' findings; assert that none is about a rule itself."""
    findings = judge(run, [kind() for kind in RULES.values()])
    about = [finding.seen for finding in findings if not finding.statistic]
    assert about == []
    return [finding for finding in findings if finding.statistic]


def alarms(findings: Iterable[Finding]) -> list[str]:
    """Return the findings that are more than hints, as text."""
    return [f"{finding.rule}: {finding.seen}" for finding in findings if finding.severity != "info"]


def missed(case: Case, folder: Path) -> list[str]:
    """Return the expected rules and faults of a faulty training that were not found."""
    findings = found(case.training.run(folder))
    causes = {root.finding.fault for root in root_causes(findings)}
    faults = {case.fault} if case.fault else set()
    return sorted((case.rules - {finding.rule for finding in findings}) | (faults - causes))


def wrongly_told(case: Case, folder: Path) -> list[str]:
    """Return the alarms in a sound training, and findings of its case's rules, as text."""
    findings = found(case.training.run(folder))
    return [
        *alarms(findings),
        *(finding.seen for finding in findings if finding.rule in case.rules),
    ]


def uncovered(
    framework: str,
    faulty: Mapping[str, Case],
    sound: Mapping[str, Case],
    elsewhere: Mapping[str, tuple[str, str]],
) -> list[str]:
    """Return rules with neither a case of each kind nor a reason, and rules with both.

    Args:
        framework: key of `DOES_NOT_APPLY`.
        faulty: cases by name.
        sound: cases by name.
        elsewhere: by rule a test that fires and one that does not, ``file.py::function``.
    """
    fires = {rule for case in faulty.values() for rule in case.rules}
    silent = {rule for case in sound.values() for rule in case.rules}
    tests = {**ANYWHERE, **elsewhere}
    missing = [test for pair in tests.values() for test in pair if not _is_there(test)]
    covered = (fires & silent) | set(tests)
    reasons = set(DOES_NOT_APPLY[framework])
    wrong = [name for name in RULES if (name in covered) == (name in reasons)]
    unknown = (fires | silent | set(tests) | reasons) - set(RULES)
    return [*missing, *wrong, *sorted(unknown), *sorted(fires & reasons)]


def _is_there(test: str) -> bool:
    """Return whether a test ``file.py::function`` exists."""
    file, _, function = test.partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")
    return f"def {function}(" in text
