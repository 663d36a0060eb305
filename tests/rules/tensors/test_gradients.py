"""Vanishing gradients, as opposed to plateaus and trainings that learn."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, sgd
from vinedresser.rules.tensors.vanishing_gradient import VanishingGradient

SIGMOIDS = (64, *[32] * 8, 10)


@pytest.mark.thorough
def test_a_temporary_plateau_is_no_vanishing_gradient(tmp_path: Path) -> None:
    """Nine sigmoid layers whose gradient ratio is 3e-5 for 400 steps, and which then learn."""
    rule = VanishingGradient()
    model = lambda: stack(SIGMOIDS, nn.Sigmoid)  # noqa: E731
    run = captured(tmp_path, [rule], model, adam(6e-4), steps=1000, total=None)
    profile = run.reductions("abs_mean", "gradients")
    shallow = max(profile[f"gradients/{layer}.weight"].values[15] for layer in (0, 2))
    deep = max(profile[f"gradients/{layer}.weight"].values[15] for layer in (14, 16))
    assert shallow / deep < rule.ratio
    losses = next(iter(run.scalars("losses").values())).values
    assert losses[:400].min() > 2.2
    assert losses[-50:].mean() < 2.0
    assert found(run, rule) == []


@pytest.mark.thorough
def test_a_gradient_too_small_for_the_optimizer_is_found_early(tmp_path: Path) -> None:
    rule = VanishingGradient()
    model = lambda: stack(SIGMOIDS, nn.Sigmoid)  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(0.1)), rule)
    assert finding.fault == "vanishing_gradient"
    assert finding.since == 0
    # Gradients this small do not move the first layers, so the rule does not wait.
    assert finding.step < 300
    assert "activations saturate" in finding.cause


@pytest.mark.thorough
def test_a_learning_deep_tanh_network_is_ignored(tmp_path: Path) -> None:
    rule = VanishingGradient()
    model = lambda: stack((64, *[32] * 10, 10), nn.Tanh)  # noqa: E731
    assert found(captured(tmp_path, [rule], model, adam(3e-3)), rule) == []
