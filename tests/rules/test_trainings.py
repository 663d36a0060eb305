"""The built-in rules on real trainings: silent on sound ones, and right about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.trainings import FAULTY, HEALTHY, train
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


def findings_of(name: str, directory: Path) -> list[Finding]:
    return judge(open_run(train(name, directory / name)), [kind() for kind in RULES.values()])


@pytest.mark.parametrize("name", HEALTHY)
def test_a_sound_training_is_left_alone(name: str, tmp_path: Path) -> None:
    assert [one for one in findings_of(name, tmp_path) if one.severity != "info"] == []


# Which rule ends it, by which step at the latest, and words of the reason and of the remedy.
REASONS = {
    "lr_sticks": ("learning_rate_too_high", 300, "too large", "lr 0.1 instead of 10"),
    "lr_momentum": ("learning_rate_too_high", 350, "too large", "lr 0.005 instead of 5"),
    "lr_adam": ("learning_rate_too_high", 300, "too large", "lr 0.001 instead of 1"),
    "lr_cnn": ("learning_rate_too_high", 100, "too large", "lr 0.1 instead of 100"),
    "lr_regression": ("nonfinite", 10, "overflow after growth", "lr 0.0001 instead of 0.01"),
    "lr_too_low": ("learning_rate_too_low", 300, "too small", "lr 0.001 instead of 1e-06"),
    "vanishing": ("vanishing_gradient", 260, "activations saturate", "relu"),
    "vanishing_adam": ("vanishing_gradient", 320, "activations saturate", "relu"),
    "tiny_weights": ("bad_initialisation", 260, "weights are too small", "He or Xavier"),
    "dead_units": ("dying_relu", 300, "receive no gradient", "leaky relu"),
    "mixed_rows": ("loss_not_decreasing", 400, "labels do not belong", "a single batch"),
    "overfit": ("overfitting", 560, "memorises its training data", "stop at step"),
    "nan_sqrt": ("nonfinite", 100, "infinite derivative", "add a small constant"),
    "nan_log": ("nonfinite", 200, "outside its domain", "add a small constant"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_training_is_ended_by_the_right_rule(name: str, tmp_path: Path) -> None:
    rule, latest, cause, remedy = REASONS[name]
    found = findings_of(name, tmp_path)
    first = next(one for one in found if one.severity == "stop" and one.rule == rule)
    assert first.step <= latest
    assert cause in first.cause
    assert remedy in first.remedy
    assert first.since <= first.step
    assert 0.9 < first.confidence <= 1.0


def test_overfitting_names_the_evaluation_to_go_back_to(tmp_path: Path) -> None:
    finding = next(one for one in findings_of("overfit", tmp_path) if one.rule == "overfitting")
    (losses,) = open_run(tmp_path / "overfit").scalars("losses", mode="eval").values()
    best = int(losses.values.argmin())
    assert finding.evidence["best_step"] == losses.steps[best] == finding.since
    assert finding.evidence["best_loss"] == losses.values[best]


def test_a_finding_of_vanishing_gradients_reads_well(tmp_path: Path) -> None:
    finding = findings_of("vanishing", tmp_path)[0]
    assert finding.tensor == "gradients/2.weight"
    assert " |g| " in finding.seen
    assert "20.weight" in finding.seen
    assert "losses/CrossEntropyLoss 2.3" in finding.seen
    sizes = list(finding.evidence["abs_mean"].values())
    assert len(sizes) == 11
    assert finding.value == max(sizes[:2]) / max(sizes[-2:]) < finding.threshold == 1e-4
