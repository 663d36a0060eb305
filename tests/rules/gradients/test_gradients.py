"""Vanishing or exploding gradients, as opposed to plateaus and trainings that learn."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.rules.trainings import adam, digits, sgd
from tests.rules.weights.inside_trainings import captured, found, stack
from vinedresser.capture import Hook, open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.base import capture_for
from vinedresser.rules.gradients.exploding_gradient import ExplodingGradient
from vinedresser.rules.gradients.vanishing_gradient import VanishingGradient
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

SIGMOIDS = (64, *[32] * 8, 10)


def steps_of(norms: list[float], sizes: list[list[float]]) -> list[StepRecord]:
    """Return a training without labels and with a flat loss, with gradients of these sizes."""
    made = []
    for step in range(len(norms) * 20):
        look, rest = divmod(step, 20)
        reductions = {
            f"gradients/{layer}.weight": {"l2": norms[look], "abs_mean": size}
            for layer, size in enumerate(sizes[look])
        }
        jitter = 0.001 * math.sin(7.0 * step)
        made.append(
            step_record(
                step, scalars={"losses/a": 1.0 + jitter}, reductions={} if rest else reductions
            )
        )
    return made


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
def test_a_gradient_that_grows_with_depth_explodes(tmp_path: Path) -> None:
    """Sixteen tanh layers whose weights are so large that each about doubles the gradient."""
    rule = ExplodingGradient()

    def model() -> nn.Module:
        return stack((64, *[32] * 16, 10), nn.Tanh, lambda weight: nn.init.normal_(weight, std=1.5))

    run = captured(tmp_path, [rule], model, sgd(1e-6))
    (finding,) = found(run, rule)
    assert (finding.fault, finding.statistic) == ("exploding_gradient", "abs_mean")
    assert finding.value > 1e3
    assert "weights are too large" in finding.cause


class Square(nn.Module):
    """Squared error of the outputs against the label's indicator."""

    def forward(self, output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return ((output - nn.functional.one_hot(label, 10)) ** 2).mean()


def test_a_gradient_that_grows_over_steps_explodes_before_overflow(tmp_path: Path) -> None:
    """A linear model with a learning rate slightly above 2 over the largest curvature."""
    rule = ExplodingGradient()
    model = lambda: stack((64, 10), nn.ReLU)  # noqa: E731
    run = captured(tmp_path, [rule], model, sgd(1.0), loss=Square(), steps=200, total=200)
    (finding,) = found(run, rule)
    assert (finding.fault, finding.statistic) == ("exploding_gradient", "l2")
    series = list(run.reductions("l2", "gradients").values())
    totals = [math.hypot(*values) for values in zip(*(one.values for one in series), strict=True)]
    assert all(map(math.isfinite, totals))
    now = totals[list(series[0].steps).index(finding.step)]
    assert finding.value == pytest.approx(now / min(totals[:3]))
    assert "lr 0.01 instead of 1" in finding.remedy
    assert finding.correction == {"lr": 0.01}


@pytest.mark.thorough
def test_a_learning_deep_tanh_network_is_ignored(tmp_path: Path) -> None:
    rules = [VanishingGradient(), ExplodingGradient()]
    model = lambda: stack((64, *[32] * 10, 10), nn.Tanh)  # noqa: E731
    assert found(captured(tmp_path, rules, model, adam(3e-3)), *rules) == []


class Towers(nn.Module):
    """Two towers of sigmoid layers that place a picture and its class at one point."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            stack((first, 64, 64, 64, 32), nn.Sigmoid, partial(nn.init.xavier_uniform_, gain=0.4))
            for first in (64, 10)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the similarities [rows, rows] of pictures [rows, 64] and classes [rows]."""
        pictures, classes = (
            F.normalize(tower(one))
            for tower, one in zip(self.towers, (x, F.one_hot(y, 10).float()), strict=True)
        )
        return pictures @ classes.T


@pytest.mark.thorough
def test_the_gradient_of_a_training_that_leaves_a_plateau_grows_from_almost_nothing(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    data, model, rule = digits(), Towers(), ExplodingGradient()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    losses = []
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(600):
            rows = torch.randperm(len(data.x))[:32]
            similar = model(data.x[rows], data.y[rows])
            loss = F.cross_entropy(similar, torch.arange(32))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    run = open_run(tmp_path / "run")
    norms = [column.values for column in run.reductions("l2", "gradients").values()]
    assert max(one.max() / one[:3].min() for one in norms) > 10 * rule.growth
    assert max(losses[:200]) - min(losses[:200]) < 0.05
    assert losses[-1] < 3.2
    assert found(run, rule) == []


@pytest.mark.parametrize(
    ("norms", "fires"),
    [
        ([1.0] * 20, False),
        # Hundredfold growth at a single check.
        ([1.0] * 15 + [500.0] + [1.0] * 4, False),
        # 99-fold and 101-fold growth over the smallest of the first three.
        ([3.0, 1.0] + [3.0] * 3 + [99.0] * 15, False),
        ([3.0, 1.0] + [3.0] * 3 + [101.0] * 15, True),
        # An overflow of the square of a finite norm.
        ([1.0] * 5 + [math.inf] * 15, True),
        ([0.0] * 5 + [101.0] * 15, False),
    ],
)
def test_growth_is_relative_to_the_first_checks(
    tmp_path: Path, norms: list[float], *, fires: bool
) -> None:
    # One tensor has the whole norm.
    made = steps_of(norms, [[1.0]] * len(norms))
    assert bool(found(make_run(tmp_path / "run", made), ExplodingGradient())) is fires


@pytest.mark.parametrize(
    ("sizes", "fires"),
    [
        ([1.1e3, 1e2, 1e1, 1.0], True),
        ([0.9e3, 1e2, 1e1, 1.0], False),
        # A single unusual layer is no depth.
        ([1.1e3, 1.0, 2.0, 1.0], False),
        ([1.0, 1e1, 1e2, 1.1e3], False),
    ],
)
def test_growth_over_depth_must_be_steady(
    tmp_path: Path, sizes: list[float], *, fires: bool
) -> None:
    made = steps_of([1.0] * 20, [sizes] * 20)
    assert bool(found(make_run(tmp_path / "run", made), ExplodingGradient())) is fires


def test_invalid_parameters_raise() -> None:
    for wrong in ({"growth": 1.0}, {"depth": 0.5}, {"every": 0}, {"patience": 0}):
        with pytest.raises(ConfigError):
            ExplodingGradient(**wrong)
