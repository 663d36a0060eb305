"""`unbounded_loss`: losses that fall without bound, and negative losses that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.trainings import batches, diabetes, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.unbounded_loss import UnboundedLoss
from vinedresser.store.finding import Finding


def found(
    path: Path,
    model: nn.Module,
    x: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    rate: float = 1e-2,
    steps: int = 500,
) -> list[Finding]:
    """Return the findings in a training that minimises a function of inputs and row numbers."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    rows = batches(len(x), 64)
    with Hook(path / "run") as hook:
        for _ in range(steps):
            chosen = next(rows)
            value = loss(x[chosen], chosen)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            hook.step(loss=value.item())
    return judge(open_run(path / "run"), [UnboundedLoss()])


def mlp(wide: int, out: int) -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return nn.Sequential(nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, out))


def test_a_squared_error_with_the_wrong_sign(tmp_path: Path) -> None:
    data = diabetes()
    model, y = mlp(10, 1), (data.y - 152) / 77
    (finding,) = found(
        tmp_path, model, data.x, lambda x, rows: -functional.mse_loss(model(x), y[rows])
    )
    assert (finding.fault, finding.severity) == ("unbounded_loss", "warning")
    assert finding.since < finding.step < 400
    assert "wrong sign" in finding.cause


def test_a_term_with_the_wrong_sign(tmp_path: Path) -> None:
    data, model = digits(), mlp(64, 10)

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        outputs: Tensor = model(x)
        return functional.cross_entropy(outputs, data.y[rows]) - 0.1 * outputs.square().mean()

    assert [one.fault for one in found(tmp_path, model, data.x, loss)] == ["unbounded_loss"]


@pytest.mark.thorough
def test_a_negative_likelihood_of_densities(tmp_path: Path) -> None:
    # The targets have no noise, so that the deviation that is learned goes to 0.
    data = diabetes()
    model, target = mlp(10, 2), data.x @ torch.linspace(-1, 1, 10)

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        mean, logarithm = model(x).unbind(1)
        return functional.gaussian_nll_loss(mean, target[rows], logarithm.exp(), eps=1e-12)

    assert found(tmp_path, model, data.x, loss, steps=1500) == []


@pytest.mark.thorough
def test_a_reward_that_is_bounded(tmp_path: Path) -> None:
    # REINFORCE without a baseline: the loss is negative where actions are likely.
    data, model = digits(), mlp(64, 10)

    def loss(x: Tensor, rows: Tensor) -> Tensor:
        policy = torch.distributions.Categorical(logits=model(x))
        reward = 200.0 * policy.probs.gather(1, data.y[rows][:, None])
        return -reward.mean()

    assert found(tmp_path, model, data.x, loss) == []


def slowing(step: int) -> float:
    """Return a loss that falls to -20 at once, and then slowly to -150."""
    return 1.0 if step < 20 else -20 - 130 * (step - 20) / 580


@pytest.mark.parametrize(("loss", "fires"), [(lambda step: -step * step, True), (slowing, False)])
def test_a_fall_that_slows_down(loss: Callable[[int], float], fires: bool, tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for step in range(600):
            hook.step(loss=loss(step))
    assert bool(judge(open_run(tmp_path / "run"), [UnboundedLoss()])) == fires
