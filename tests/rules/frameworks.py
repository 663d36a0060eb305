"""Which rules apply in which framework, and what the tests of each one have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.paths import TESTS
from vinedresser.rules.engine import NOT_APPLICABLE
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.rules.root_cause import root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run

__all__ = ["ANYWHERE", "DOES_NOT_APPLY", "FRAMEWORKS", "Case", "alarms", "found", "uncovered"]

# In the order of the table in docs/rules.md.
FRAMEWORKS = ("torch", "Keras", "XGBoost", "scikit-learn")


class Training(Protocol):
    """What trains, and leaves a run."""

    def run(self, directory: Path) -> Run:
        """Train with what the default rules need captured."""


@dataclass(frozen=True)
class Case:
    """A training, and the rules that it is a case of.

    Attributes:
        training: leaves the run.
        rules: of a faulty one, those that fire; of a sound one, those that it comes close to.
        fault: of a faulty one, what is wrong: a root cause, or "" where the rules are hints.
    """

    training: Training
    rules: frozenset[str]
    fault: str = ""


# Rules that go by the times or figures of steps alone, whoever makes them, with their tests.
ANYWHERE: dict[str, tuple[str, str]] = {
    "similar_across_runs": (
        "rules/tensors/test_tensors.py::test_a_repeated_run_is_distinguished_from_a_deviating_one",
        "rules/tensors/test_tensors.py::test_runs_differ_by_more_than_the_tolerance",
    ),
    "step_outlier": (
        "rules/system/test_system.py::test_periodic_slow_steps_are_found",
        "rules/system/test_system.py::test_noise_rare_outliers_and_pace_changes_are_ignored",
    ),
    "stalled_training": (
        "rules/system/test_system.py::test_silence_is_found_by_step_times",
        "rules/system/test_system.py::test_usual_pauses_and_the_end_are_no_silence",
    ),
}

_OF_TREES = dict.fromkeys(
    ("tree_depth", "empty_trees", "feature_dominance", "unused_features"), "there are no trees"
)
_NO_NETWORK = "there are no layers, activations or gradients to look at"
_MADE_TO_FIT = "the library makes outputs that fit the loss, and refuses labels that do not"
_ONE_PROCESS = "weights of several ranks are not captured"
_AFTER = "the first loss and weights that can be seen are those after the first step"
_NO_UPDATES = "how far a step moves the weights is not captured"

# By framework and rule, why it does not apply.
DOES_NOT_APPLY: dict[str, dict[str, str]] = {
    "torch": _OF_TREES,
    "Keras": {
        **_OF_TREES,
        "gradients_not_cleared": "Keras and its tapes hand over the gradient of one step",
        "replica_divergence": _ONE_PROCESS,
    },
    "XGBoost": {
        "unnormalised_inputs": "trees split between values of any scale",
        "unnormalised_targets": "trees begin with the mean of the targets, of any scale",
        "token_ratio": "a matrix holds features, not tokens",
        "perfect_at_once": "a single round has seen all rows",
        "loss_output_mismatch": _MADE_TO_FIT,
        "initial_loss": _AFTER,
        "bad_initialisation": _NO_NETWORK,
        "identical_units": _NO_NETWORK,
        "gradients_not_cleared": _NO_NETWORK,
        "untrained_parameters": _NO_NETWORK,
        "wrong_mode": _NO_NETWORK,
        "over_regularisation": "what regularises too much leaves trees empty: empty_trees says so",
        "mixed_precision": "all is computed in float32 and float64",
        "scheduler_not_stepped": "the learning rate of a round is not captured",
        "learning_rate_too_low": f"{_NO_UPDATES}; loss_not_decreasing and underfitting say so",
        "oscillating_loss": "rounds that are too long make it rise: learning_rate_too_high says so",
        "update_ratio": _NO_UPDATES,
        "stale_batch_norm": _NO_NETWORK,
        "exploding_gradient": _NO_NETWORK,
        "vanishing_gradient": _NO_NETWORK,
        "dying_relu": _NO_NETWORK,
        "saturated_activation": _NO_NETWORK,
        "all_zero": _NO_NETWORK,
        "low_variance": _NO_NETWORK,
        "unchanged_tensor": _NO_NETWORK,
        "replica_divergence": _ONE_PROCESS,
        "slow_input": "all rows are there before the first round",
    },
    "scikit-learn": {
        "nonfinite": "scikit-learn raises an error when a number is not finite",
        "token_ratio": "estimators take features, not tokens",
        "loss_output_mismatch": _MADE_TO_FIT,
        "initial_loss": _AFTER,
        "bad_initialisation": _AFTER,
        "gradients_not_cleared": _NO_NETWORK,
        "untrained_parameters": "an estimator trains all that it has",
        "wrong_mode": "predicting is another call than training",
        "mixed_precision": "all is computed in float64",
        "scheduler_not_stepped": "the learning rate of a step is not captured",
        "learning_rate_too_low": f"{_NO_UPDATES}; underfitting says so",
        "update_ratio": _NO_UPDATES,
        "stale_batch_norm": _NO_NETWORK,
        "exploding_gradient": _NO_NETWORK,
        "vanishing_gradient": _NO_NETWORK,
        "dying_relu": _NO_NETWORK,
        "saturated_activation": _NO_NETWORK,
        "all_zero": _NO_NETWORK,
        "low_variance": _NO_NETWORK,
        "replica_divergence": _ONE_PROCESS,
        "slow_input": "the loop that calls partial_fit is not watched",
    },
}


def found(run: Run) -> list[Finding]:
    """Return what the default rules find in a run; none of them says anything about itself."""
    findings = judge(run, [kind() for kind in RULES.values()])
    about = [one.seen for one in findings if not one.statistic and one.rule != NOT_APPLICABLE]
    assert about == []
    return [one for one in findings if one.statistic]


def alarms(findings: Iterable[Finding]) -> list[str]:
    """Return those that are more than hints, in words."""
    return [f"{one.rule}: {one.seen}" for one in findings if one.severity != "info"]


def missed(case: Case, folder: Path) -> list[str]:
    """Return what a faulty training should be found guilty of, and is not: rules, and the fault."""
    findings = found(case.training.run(folder))
    causes = {root.finding.fault for root in root_causes(findings)}
    faults = {case.fault} if case.fault else set()
    return sorted((case.rules - {one.rule for one in findings}) | (faults - causes))


def wrongly_told(case: Case, folder: Path) -> list[str]:
    """Return the alarms in a sound training, and what its case's rules say of it, in words."""
    findings = found(case.training.run(folder))
    return [*alarms(findings), *(one.seen for one in findings if one.rule in case.rules)]


def uncovered(
    framework: str,
    faulty: Mapping[str, Case],
    sound: Mapping[str, Case],
    elsewhere: Mapping[str, tuple[str, str]],
) -> list[str]:
    """Return the rules that have neither a case of each kind nor a reason, and that have both.

    Args:
        framework: key of `DOES_NOT_APPLY`.
        faulty: cases by name.
        sound: the same.
        elsewhere: by rule, a firing and a silent test, ``file.py::function``.
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
    """Say whether a test ``file.py::function`` exists."""
    file, _, function = test.partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")
    return f"def {function}(" in text
