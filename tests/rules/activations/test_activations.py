"""Dead or saturated units, and lagging statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import Data, adam, digits, sgd
from vinedresser.rules.activations.dying_relu import DyingRelu
from vinedresser.rules.activations.saturated_activation import SaturatedActivation, mean_slope
from vinedresser.rules.activations.stale_batch_norm import StaleBatchNorm
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record


def noise() -> Data:
    """Return digits with random labels."""
    data = digits()
    order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(3))
    return Data(data.x, data.y[order], data.x_eval, data.y_eval)


class FunctionalRelu(nn.Module):
    """A network that calls the function instead of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.last = nn.Linear(64, 10)
        nn.init.constant_(self.first.bias, -10.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.relu(self.first(x)))
        return out


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model", [lambda: stack((64, 64, 10), nn.ReLU, bias=-10.0), FunctionalRelu]
)
def test_dead_units_are_found(tmp_path: Path, model: type[nn.Module]) -> None:
    rule = DyingRelu()
    early, finding = found(captured(tmp_path, [rule], model, adam(1e-3)), rule)
    assert (early.severity, finding.severity) == ("warning", "stop")
    assert early.step <= 100
    assert (finding.fault, finding.value) == ("dying_relu", 1.0)
    assert "lr 0.0001 instead of 0.001" in finding.remedy


@pytest.mark.thorough
def test_units_that_a_step_has_killed_blame_the_learning_rate(tmp_path: Path) -> None:
    rule = DyingRelu()
    model = lambda: stack((64, 64, 64, 10), nn.ReLU)  # noqa: E731
    finding = found(captured(tmp_path, [rule], model, adam(3.0)), rule)[0]
    assert finding.fault == "learning_rate_too_high"
    assert "at the first check, and step 0 changed the weights by" in finding.seen
    assert finding.correction["lr"] == pytest.approx(0.3)


@pytest.mark.thorough
def test_sparse_active_units_are_not_dead(tmp_path: Path) -> None:
    """Each unit is zero for most rows, and hardly any is zero for all."""
    rule = DyingRelu()
    model = lambda: stack((64, 64, 10), nn.ReLU, bias=-0.5)  # noqa: E731
    run = captured(tmp_path, [rule], model, sgd(1e-6), data=noise())
    (name,) = run.tensor_names(collection="activations")
    shares = run.tensor(name).channels("zero_share", step=100)
    assert shares.mean() > 0.6
    assert found(run, rule) == []


def relu_record(step: int, zero: list[bool]) -> StepRecord:
    """Return a step with one relu layer with some zero units, and a flat loss."""
    shares = np.where(zero, 1.0, 0.3)
    return step_record(
        step,
        scalars={"losses/a": 1.0 + 0.001 * np.sin(7.0 * step)},
        tensors={"outputs/relu()|channel_zero_share": shares} if step % 20 == 0 else {},
    )


@pytest.mark.parametrize(("same", "fires"), [(True, True), (False, False)])
def test_a_unit_is_dead_if_it_is_zero_at_all_recent_checks(
    tmp_path: Path, *, same: bool, fires: bool
) -> None:
    """Half of the units are zero at each check: always the same ones, or alternating."""
    halves = ([True, False] * 4, [False, True] * 4)
    made = [relu_record(step, halves[0 if same else (step // 20) % 2]) for step in range(400)]
    rule = DyingRelu()
    assert bool(found(make_run(tmp_path / "run", made), rule)) is fires


@pytest.mark.thorough
def test_large_inputs_saturate_the_first_layer(tmp_path: Path) -> None:
    rule = SaturatedActivation()
    data = digits()
    large = Data(data.x * 1000, data.y, data.x_eval, data.y_eval)
    model = lambda: stack((64, 64, 10), nn.Tanh)  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(1e-4), data=large), rule)
    assert (finding.fault, finding.tensor) == ("saturated_activation", "outputs/1")
    assert "the inputs are too large" in finding.cause


def test_large_weights_saturate_a_sigmoid(tmp_path: Path) -> None:
    rule = SaturatedActivation()
    wide = lambda weight: nn.init.normal_(weight, std=10.0)  # noqa: E731
    model = lambda: stack((64, 64, 64, 10), nn.Sigmoid, wide)  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(1e-4)), rule)
    assert "weights" in finding.cause


@pytest.mark.thorough
def test_weights_that_long_steps_have_made_large_blame_the_learning_rate(tmp_path: Path) -> None:
    rule = SaturatedActivation()
    model = lambda: stack((64, 64, 64, 10), nn.Tanh)  # noqa: E731
    finding = found(captured(tmp_path, [rule], model, adam(3.0)), rule)[0]
    assert finding.fault == "learning_rate_too_high"
    assert "at the first check" in finding.seen


@pytest.mark.thorough
def test_unsaturated_layers_are_ignored(tmp_path: Path) -> None:
    rule = SaturatedActivation()
    model = lambda: stack((64, 64, 64, 10), nn.Tanh)  # noqa: E731
    assert found(captured(tmp_path, [rule], model, adam(1e-3), data=noise()), rule) == []


@pytest.mark.parametrize(
    ("function", "torch_function"), [("tanh", torch.tanh), ("sigmoid", torch.sigmoid)]
)
def test_mean_slope_equals_autograd(function: str, torch_function: object) -> None:
    z = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    assert callable(torch_function)
    y = torch_function(3 * z + 1)
    (slope,) = torch.autograd.grad(y.sum(), z)
    greatest = {"tanh": 1.0, "sigmoid": 0.25}[function]
    mean = slope.mean().item() / 3 / greatest
    values = y.detach().numpy()
    assert mean_slope(function, values.mean(), values.std()) == pytest.approx(mean)


def normed(momentum: float) -> nn.Module:
    """Return a network with batch norm."""
    return nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(), nn.Linear(64, 10)
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("momentum", "fires"), [(1e-3, True), (0.1, False), (0.02, False)])
@pytest.mark.parametrize("total", [300, None])
def test_lagging_running_statistics_are_found(
    tmp_path: Path, momentum: float, total: int | None, *, fires: bool
) -> None:
    rule = StaleBatchNorm()
    model = lambda: normed(momentum)  # noqa: E731
    run = captured(tmp_path, [rule], model, adam(1e-3), total=total)
    findings = found(run, rule)
    assert bool(findings) is fires
    if findings:
        (finding,) = findings
        assert finding.fault == "stale_statistics"
        assert 0 <= finding.value < 0.6


@pytest.mark.parametrize("momentum", [1e-4, 1e-3, 2e-3])
def test_covered_distance_matches_the_moving_average(tmp_path: Path, momentum: float) -> None:
    """All batches have the mean 1, in one channel."""
    name = "buffers/bn.running_mean"
    made = [
        step_record(step, reductions={name: {"l2": 1 - (1 - momentum) ** step}})
        for step in range(0, 400, 20)
    ]
    (finding,) = found(make_run(tmp_path / "run", made, total_steps=400), StaleBatchNorm())
    assert finding.step == 200
    assert finding.value == pytest.approx(1 - (1 - momentum) ** 200)


@pytest.mark.parametrize(
    ("start", "spread", "momentum", "fires"),
    [
        (0.0, 0.5, 0.1, False),
        (1.0, 1.0, 0.1, False),
        (0.0, 0.5, 1e-4, True),
        (1.0, 1.0, 5e-4, True),
    ],
)
def test_batch_means_that_grow_are_no_small_momentum(
    tmp_path: Path, start: float, spread: float, momentum: float, *, fires: bool
) -> None:
    """As in a generator: from ``start``, the batch means grow in proportion to the step."""
    norm = nn.BatchNorm1d(16, momentum=momentum)
    draw = torch.Generator().manual_seed(5)
    made = []
    for step in range(400):
        if step % 20 == 0:
            running = {"running_mean": norm.running_mean, "running_var": norm.running_var}
            l2 = {
                f"buffers/bn.{key}": {"l2": float(value.norm())}
                for key, value in running.items()
                if value is not None
            }
            made.append(step_record(step, reductions=l2))
        norm(start + 0.02 * step + spread * torch.randn(32, 16, generator=draw))
    findings = found(make_run(tmp_path / "run", made, total_steps=400), StaleBatchNorm())
    assert bool(findings) is fires


def test_the_beginning_of_a_long_run_is_ignored(tmp_path: Path) -> None:
    """With a momentum of 1e-3 the statistics are correct after several thousand steps."""
    rule = StaleBatchNorm()
    run = captured(tmp_path, [rule], lambda: normed(1e-3), adam(1e-3), total=10_000)
    assert found(run, rule) == []
