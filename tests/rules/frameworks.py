"""Which rules apply in which framework, and helpers that the tests of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.paths import TESTS
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.engine import NO_DATA
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run

__all__ = ["ANYWHERE", "DOES_NOT_APPLY", "FRAMEWORKS", "Case", "alarms", "found", "uncovered"]

# In the order of the table in docs/rules.md.
FRAMEWORKS = ("torch", "Keras", "XGBoost", "scikit-learn")


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
    (
        *("tree_depth", "empty_trees", "shrinkage_too_low", "memorised_labels"),
        *("feature_dominance", "unused_features"),
    ),
    "there are no trees",
)
_NO_NETWORK = "there are no layers, activations or gradients to look at"
_MADE_TO_FIT = "the library makes outputs that fit the loss, and refuses labels that do not"
_NO_TERMS = "the library's losses have a minimum"
_NO_GRAPH = "only the graph of PyTorch tells what is between two layers"
_ONE_PROCESS = "weights of several ranks are not captured"
_AFTER = "the first loss and weights that can be seen are those after the first step"
_NO_UPDATES = "how far a step moves the weights is not captured"

# By framework and rule the reason why it does not apply.
DOES_NOT_APPLY: dict[str, dict[str, str]] = {
    "torch": _OF_TREES,
    "Keras": {
        **_OF_TREES,
        "missing_activation": _NO_GRAPH,
        "gradients_not_cleared": "Keras and its tapes hand over the gradient of one step",
        "replica_divergence": _ONE_PROCESS,
    },
    "XGBoost": {
        "unnormalised_inputs": "trees split between values of any scale",
        "unnormalised_targets": "trees begin with the mean of the targets, of any scale",
        "target_leakage": "feature_dominance finds a column that tells the target",
        "unbounded_loss": _NO_TERMS,
        "token_ratio": "a matrix holds features, not tokens",
        "drift": "all rows are there before the first round",
        "perfect_at_once": "a single round has seen all rows",
        "loss_output_mismatch": _MADE_TO_FIT,
        "missing_activation": _NO_GRAPH,
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
        "attention_collapse": _NO_NETWORK,
        "all_zero": _NO_NETWORK,
        "low_variance": _NO_NETWORK,
        "unchanged_tensor": _NO_NETWORK,
        "replica_divergence": _ONE_PROCESS,
        "slow_input": "all rows are there before the first round",
    },
    "scikit-learn": {
        "nonfinite": "scikit-learn raises an error when a number is not finite",
        "unbounded_loss": _NO_TERMS,
        "token_ratio": "estimators take features, not tokens",
        "loss_output_mismatch": _MADE_TO_FIT,
        "missing_activation": _NO_GRAPH,
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
        "attention_collapse": _NO_NETWORK,
        "all_zero": _NO_NETWORK,
        "low_variance": _NO_NETWORK,
        "replica_divergence": _ONE_PROCESS,
        "slow_input": "the loop that calls partial_fit is not watched",
    },
}


def found(run: Run) -> list[Finding]:
    """Return the default rules' findings; assert that none is about a rule itself."""
    findings = judge(run, [kind() for kind in RULES.values()])
    about = [one.seen for one in findings if not one.statistic and one.rule != NO_DATA]
    assert about == []
    return [one for one in findings if one.statistic]


def alarms(findings: Iterable[Finding]) -> list[str]:
    """Return the findings that are more than hints, as text."""
    return [f"{one.rule}: {one.seen}" for one in findings if one.severity != "info"]


def missed(case: Case, folder: Path) -> list[str]:
    """Return the expected rules and faults of a faulty training that were not found."""
    findings = found(case.training.run(folder))
    causes = {root.finding.fault for root in root_causes(findings)}
    faults = {case.fault} if case.fault else set()
    return sorted((case.rules - {one.rule for one in findings}) | (faults - causes))


def wrongly_told(case: Case, folder: Path) -> list[str]:
    """Return the alarms in a sound training, and findings of its case's rules, as text."""
    findings = found(case.training.run(folder))
    return [*alarms(findings), *(one.seen for one in findings if one.rule in case.rules)]


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
