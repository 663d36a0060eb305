"""The built-in rules on real trainings: silent on sound ones, correct on faulty ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.rules.runs import RunStore
from tests.rules.trainings import FAULTY, HEALTHY, trained
from vinedresser.rules.causes.reliability import calibrated
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run


def findings_of(name: str, runs: RunStore) -> list[Finding]:
    return judge(open_run(trained(name, runs)), [kind() for kind in RULES.values()])


def found_during(run: Run) -> list[Finding]:
    """Return what the rules find while a run trains, without what they find at its end."""
    engine = Engine([kind() for kind in RULES.values()])
    engine.begin(run.info)
    return [finding for step in run.follow() for finding in engine.update(step)]


THOROUGH = (
    *("autoencoder", "cnn", "converged", "deep_tanh", "mlp", "regression", "tiny_batches"),
    *("warm_up",),
    *("lr_adam", "lr_sticks", "lr_too_low", "mixed_rows", "nan_sqrt", "overfit", "tiny_weights"),
)
# Of kinds that others of these have, or `lstm` of the zoo; by `make test-slow`.
SLOW = ("gru", "lr_cnn", "lr_momentum", "vanishing_adam")


def cases(names: Iterable[str]) -> list[object]:
    """Return the names of trainings, those marked that take seconds."""
    marks = dict.fromkeys(THOROUGH, pytest.mark.thorough) | dict.fromkeys(SLOW, pytest.mark.slow)
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


@pytest.mark.parametrize("name", cases(HEALTHY))
def test_a_sound_training_is_left_alone(name: str, runs: RunStore) -> None:
    assert [one for one in findings_of(name, runs) if one.severity != "info"] == []


# By training the rule that finds its fault, and words of the cause and of the remedy.
REASONS = {
    "lr_sticks": ("learning_rate_too_high", "too large", "lr 0.01 instead of 10"),
    "lr_momentum": ("learning_rate_too_high", "too large", "lr 0.005 instead of 5"),
    "lr_adam": ("learning_rate_too_high", "too large", "lr 0.001 instead of 1"),
    "lr_cnn": ("learning_rate_too_high", "too large", "lr 0.1 instead of 100"),
    "lr_regression": ("nonfinite", "overflow after growth", "lr 0.0001 instead of 0.01"),
    "lr_too_low": ("learning_rate_too_low", "too small", "lr 0.001 instead of 1e-6"),
    "vanishing": ("vanishing_gradient", "activations saturate", "relu"),
    "vanishing_adam": ("vanishing_gradient", "activations saturate", "relu"),
    "tiny_weights": ("bad_initialisation", "weights are too small", "He or Xavier"),
    "dead_units": ("dying_relu", "receive no gradient", "leaky relu"),
    "mixed_rows": ("loss_not_decreasing", "labels do not belong", "a single batch"),
    "overfit": ("overfitting", "memorises its training data", "stop at step"),
    "nan_sqrt": ("nonfinite", "infinite derivative", "add a small constant"),
    "nan_log": ("nonfinite", "outside its domain", "add a small constant"),
}


@pytest.mark.parametrize("name", cases(FAULTY))
def test_a_faulty_training_is_found_by_the_right_rule(name: str, runs: RunStore) -> None:
    rule, cause, remedy = REASONS[name]
    found = found_during(open_run(trained(name, runs)))
    first = next(one for one in found if one.rule == rule and one.severity == RULES[rule].severity)
    latest = FAULTY[name].latest
    assert latest is not None
    assert first.step <= latest
    assert cause in first.cause
    assert remedy in first.remedy
    assert first.since <= first.step
    # As sure as of the symptom, and as its fault is of the measured trainings.
    assert 0.9 < first.confidence / calibrated(replace(first, confidence=1.0)).confidence <= 1.0


@pytest.mark.thorough
def test_overfitting_names_the_evaluation_to_go_back_to(runs: RunStore) -> None:
    finding = next(one for one in findings_of("overfit", runs) if one.rule == "overfitting")
    (losses,) = open_run(trained("overfit", runs)).scalars("losses", mode="eval").values()
    best = int(losses.values.argmin())
    assert finding.evidence["best_step"] == losses.steps[best] == finding.since
    assert finding.evidence["best_loss"] == losses.values[best]


@pytest.mark.thorough
def test_a_finding_of_vanishing_gradients_reads_well(runs: RunStore) -> None:
    finding = findings_of("vanishing", runs)[0]
    assert finding.tensor == "gradients/2.weight"
    for part in (
        "gradients of 2.weight",
        "than those of 20.weight",
        "CrossEntropyLoss went from 2.3",
    ):
        assert part in finding.seen
    sizes = list(finding.evidence["abs_mean"].values())
    assert len(sizes) == 11
    assert finding.value == max(sizes[:2]) / max(sizes[-2:]) < finding.threshold == 1e-4
