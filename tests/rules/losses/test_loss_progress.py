"""When a loss counts as learned, flat or blown up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.capture import Hook, open_run
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.rules.signals.losses.loss_progress import LossProgress, spread
from vinedresser.rules.signals.outcomes.learning_outcome import MetricTrend
from vinedresser.rules.signals.outcomes.metric_scale import direction

Series = NDArray[np.float64]
T = np.arange(2000)


def noisy(level: Series | float, share: float, seed: int = 3) -> Series:
    """Return a loss with relative normal noise."""
    return np.asarray(level * (1 + share * np.random.default_rng(seed).normal(size=len(T))))


def verdict(values: Iterable[float]) -> tuple[str, int]:
    """Return the first verdict on a loss and its step, or the last state."""
    progress = LossProgress(patience=200, drop=0.1)
    for step, value in enumerate(values):
        if progress.add(step, value):
            if progress.blown_up(1.0):
                return "blown up", step
            if progress.stuck():
                return "stuck", step
    return "learned" if progress.learned(0.1) else "open", -1


def test_spread_excludes_a_trend() -> None:
    noise = np.random.default_rng(0).normal(size=5000)
    trend = np.linspace(0, 100, 5000)
    assert spread(list(noise + trend)) == pytest.approx(noise.std(), rel=0.05)
    assert spread([1.0]) == math.inf


@pytest.mark.parametrize(("noise", "latest"), [(0.0, 200), (0.005, 250), (0.05, 600), (0.1, 900)])
def test_noise_delays_the_finding_of_a_flat_loss(noise: float, latest: int) -> None:
    verdicts = [verdict(noisy(2.3, noise, seed)) for seed in range(9)]
    assert {what for what, _ in verdicts} == {"stuck"}
    assert median(step for _, step in verdicts) <= latest


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(0.3 + 2 * np.exp(-T / 100), id="learns and converges"),
        pytest.param(0.1 + 2.2 * np.exp(-T / 1.0), id="learns within three steps"),
        pytest.param(0.3 + 2 * np.exp(-np.maximum(0, T - 130) / 200), id="warms up for 130 steps"),
        pytest.param(1.9 * (1 - 0.2 * T / 2000), id="learns slowly"),
        pytest.param(
            2.3 * np.exp(-T / 300) + 20 * np.exp(-((T - 15) ** 2) / 200), id="spike first"
        ),
        pytest.param(
            0.2 + 2 * np.exp(-T / 100) + 3 * np.exp(-abs(T - 700) / 20), id="spike in between"
        ),
        pytest.param(0.3 + 0.3 * abs(np.sin(T / 150)) + 1.7 * np.exp(-T / 80), id="warm restarts"),
        pytest.param(5 - 8 * (1 - np.exp(-T / 200)), id="falls below zero"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.02])
def test_a_decreasing_loss_is_not_stuck(loss: Series, noise: float) -> None:
    assert verdict(noisy(loss, noise))[0] == "learned"


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_a_sloping_plateau_is_not_stuck(noise: float) -> None:
    loss = 0.693 * (1 - 0.5 / (1 + np.exp(-(T - 500) / 80)))
    assert verdict(noisy(loss, noise))[0] == "learned"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        pytest.param(np.where(T < 3, 2.3, 12.0), "blown up", id="stays five times as high"),
        pytest.param(np.where(T < 1, 2.3, 1e20 * (1.0 + T)), "blown up", id="rises for ever"),
        pytest.param(
            np.where(T < 1, 2.3, 2.4 + 1e3 * np.exp(-T / 3)), "stuck", id="comes back no further"
        ),
        pytest.param(
            np.where(T < 600, 0.2 + 2.3 * np.exp(-T / 100), 2.45), "stuck", id="learned and lost it"
        ),
        pytest.param(
            2.3 * (1 + 0.06 * np.exp(-T / 30)), "stuck", id="learns the class shares only"
        ),
    ],
)
def test_a_loss_that_does_not_decrease_is_found(loss: Series, expected: str) -> None:
    assert verdict(noisy(loss, 0.01))[0] == expected


def test_noise_of_single_samples_causes_no_finding() -> None:
    generator = np.random.default_rng(1)
    loss = (0.3 + 0.7 * np.exp(-T / 200)) * generator.chisquare(1, size=len(T))
    assert verdict(loss)[0] != "stuck"


def test_the_rise_of_a_loss_from_exactly_zero_says_nothing() -> None:
    # The first values after it are much smaller than the later ones, too.
    rising = np.concatenate([np.zeros(3), np.linspace(0, 0.05, 100), noisy(0.05, 0.3)])
    assert verdict(rising) == ("open", -1)
    assert verdict(rising + 1e-3)[0] != "open"


def test_a_first_batch_without_a_rare_class_is_no_low_start() -> None:
    rare = np.random.default_rng(0).random(len(T)) < 0.7
    rare[0] = False
    # What is learned of the class costs the other batches a little.
    loss = np.where(rare, 0.12 + 4 * np.exp(-T / 80), 0.1 - 0.098 * np.exp(-T / 1000))
    assert verdict(noisy(loss, 0.05))[0] == "learned"


def test_nonfinite_values_are_ignored() -> None:
    progress = LossProgress(patience=20, drop=0.1)
    for step, value in enumerate([1.0, math.nan, math.inf, 1.0]):
        progress.add(step, value)
    assert progress.values == 2


def test_a_loss_without_a_finite_value_says_nothing(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for _ in range(30):
            hook.step(loss=math.nan)
    found = judge(open_run(tmp_path / "run"), [LearningRateTooHigh(), LossNotDecreasing()])
    assert found == []


def test_sparse_losses_fill_blocks_by_steps() -> None:
    progress = LossProgress(patience=200, drop=0.1)
    completed = [progress.add(step, 1.0) for step in range(0, 100, 5)]
    assert sum(completed) == 9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metrics/accuracy", 1),
        ("metrics/val_acc", 1),
        ("metrics/f1-macro", 1),
        ("metrics/word_error", -1),
        ("metrics/perplexity", -1),
        ("metrics/lr", 0),
    ],
)
def test_direction_of_a_metric_by_name(name: str, expected: int) -> None:
    assert direction(name) == expected


@pytest.mark.parametrize("length", [16, 5000])
def test_a_metric_improves_or_does_not(length: int) -> None:
    generator = np.random.default_rng(0)
    noise = 0.02 * generator.normal(size=length)
    rising, flat = MetricTrend("metrics/accuracy"), MetricTrend("metrics/accuracy")
    unknown = MetricTrend("metrics/temperature")
    for share, chance in zip(np.linspace(0.1, 0.9, length), noise, strict=True):
        rising.add(share + chance)
        flat.add(0.1 + chance)
        unknown.add(share)
    assert rising.improving()
    assert not flat.improving()
    assert not unknown.improving()


@pytest.mark.parametrize(("start", "recovered"), [(0.9, False), (0.01, True)])
def test_a_loss_that_began_near_zero_does_not_come_back(start: float, recovered: bool) -> None:
    progress = LossProgress(patience=200, drop=0.1)
    # Those of a value function rise as it learns, and then fall.
    for step, value in enumerate([start, *[1000.0] * 10, *noisy(1.0, 0.01)[:60]]):
        progress.add(step, value)
    assert (progress.unrecovered() is None) == recovered
