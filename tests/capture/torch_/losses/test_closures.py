"""Losses of steps whose optimizer evaluates a closure: those of its first evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vinedresser.capture import Hook, SaveConfig, open_run

STEPS = 5


class TwiceEvaluated(torch.optim.SGD):
    """Sharpness-aware: evaluates its closure twice, with other weights the second time."""

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure()
        parameters = [one for group in self.param_groups for one in group["params"]]
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(0.5)
        with torch.enable_grad():
            closure()
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(0.5)
        super().step()
        return loss


class Perturbed(torch.optim.SGD):
    """Sharpness-aware, as it is often written: the first loss has its backward pass before."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for one in self.param_groups[0]["params"]:
                one.add_(0.5)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        with torch.no_grad():
            for one in self.param_groups[0]["params"]:
                one.sub_(0.5)
        return super().step()


class GradientFree(torch.optim.SGD):
    """Estimates the slope from two evaluations without gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        found = []
        for change in (0.0, 0.5):
            for one in self.param_groups[0]["params"]:
                one.add_(change)
            found.append(closure(backward=False))
        return found[0]


class Training:
    """A training whose steps evaluate closures; `wanted` has the loss of each step."""

    def __init__(self, optimizer: type[torch.optim.Optimizer] = torch.optim.SGD) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        # torch declares that closures return a float.
        self.optimizer: Any = optimizer(self.model.parameters(), lr=0.05)  # type: ignore[call-arg]
        self.x, self.y = torch.randn(12, 4), torch.arange(12) % 3
        self.wanted: list[float] = []

    def loss(self) -> Tensor:
        return functional.cross_entropy(self.model(self.x), self.y)

    def note(self, *losses: Tensor) -> None:
        self.wanted.append(sum(loss.item() for loss in losses))


def asked(*kinds: str) -> dict[str, SaveConfig]:
    """Return collections that are due at every step."""
    return dict.fromkeys(kinds, SaveConfig(every=1))


def second_forward(one: Training, *, clear_first: bool = False) -> None:
    evaluations = []

    def closure() -> Tensor:
        if clear_first:
            one.optimizer.zero_grad()
        loss = one.loss()
        accuracy = (one.model(one.x).argmax(1) == one.y).float().mean()
        with torch.no_grad():
            one.model(one.x[:2])
        one.optimizer.zero_grad()
        (loss + 0 * accuracy).backward()
        evaluations.append(loss)
        return loss

    one.optimizer.step(closure)
    one.note(evaluations[0])


def several_losses(one: Training) -> None:
    found = []

    def closure() -> None:
        one.optimizer.zero_grad()
        for part in (one.loss(), one.loss() * 2):
            part.backward()
            found.append(part)

    one.optimizer.step(closure=closure)
    one.note(*found)


def accumulated(one: Training) -> None:
    found = []

    def closure() -> Tensor:
        loss = one.loss() / 3
        loss.backward()
        found.append(loss)
        return loss

    one.optimizer.zero_grad()
    closure()
    closure()
    one.optimizer.step(closure)
    one.note(*found)


def backward_before(one: Training) -> None:
    one.optimizer.zero_grad()
    loss = one.loss()
    loss.backward()
    one.optimizer.step(lambda: loss)
    one.note(loss)


def perturbed(one: Training) -> None:
    backward_before_loss = one.loss()
    one.optimizer.zero_grad()
    backward_before_loss.backward()

    def closure() -> Tensor:
        loss = one.loss()
        loss.backward()
        return loss

    one.optimizer.step(closure)
    one.note(backward_before_loss)


def without_gradients(one: Training) -> None:
    found = []

    def closure(*, backward: bool = True) -> Tensor:
        assert not backward
        found.append(one.loss())
        return found[-1]

    one.optimizer.step(closure)
    one.note(found[0])


def asked_gradients(one: Training) -> None:
    found = []

    def closure() -> float:
        loss = one.loss()
        parameters = list(one.model.parameters())
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            parameter.grad = gradient
        found.append(loss)
        return loss.item()

    one.optimizer.step(closure)
    one.note(found[0])


KINDS: dict[str, tuple[Callable[[Training], None], type[torch.optim.Optimizer]]] = {
    "second forward": (second_forward, torch.optim.Adam),
    "evaluated many times": (second_forward, torch.optim.LBFGS),
    "evaluated twice": (second_forward, TwiceEvaluated),
    "several losses": (several_losses, torch.optim.SGD),
    "accumulated": (accumulated, torch.optim.SGD),
    "backward before": (backward_before, torch.optim.SGD),
    "perturbed": (perturbed, Perturbed),
    "without gradients": (without_gradients, GradientFree),
    "asked gradients": (asked_gradients, torch.optim.SGD),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_the_first_evaluation(kind: str, tmp_path: Path) -> None:
    step, optimizer = KINDS[kind]
    plain = Training(optimizer)
    for _ in range(STEPS):
        step(plain)
    one = Training(optimizer)
    with Hook(tmp_path / "run", collections=asked("losses", "weights")) as hook:
        hook.watch(one.model, optimizer=one.optimizer)
        for _ in range(STEPS):
            step(one)

    run = open_run(tmp_path / "run")
    table = run.scalars("losses").to_pandas()
    assert run.problems == []
    assert table["mode"].tolist() == ["train"] * STEPS
    assert table["value"].tolist() == pytest.approx(one.wanted, rel=1e-6)
    # The training is not changed.
    assert one.wanted == plain.wanted
    for ours, theirs in zip(one.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.LBFGS])
def test_labels_and_passed_losses_are_those_of_the_first_evaluation(
    tmp_path: Path, optimizer: type[torch.optim.Optimizer]
) -> None:
    one = Training(optimizer)
    with Hook(tmp_path / "run", collections=asked("losses", "labels", "predictions")) as hook:
        loss = nn.CrossEntropyLoss()
        hook.watch(one.model, loss, one.optimizer)
        one.loss = lambda: loss(one.model(one.x), one.y)  # type: ignore[method-assign]
        for _ in range(STEPS):
            second_forward(one, clear_first=True)

    run = open_run(tmp_path / "run")
    assert run.scalars("losses").to_pandas()["value"].tolist() == pytest.approx(one.wanted)
    assert torch.equal(
        torch.from_numpy(run.tensor("labels/CrossEntropyLoss").value(0).copy()), one.y
    )
    assert run.tensor("predictions/CrossEntropyLoss").steps("train").tolist() == list(range(STEPS))


def test_two_optimizers_with_closures_have_a_loss_each(tmp_path: Path) -> None:
    one, other = Training(), Training(torch.optim.LBFGS)
    with Hook(tmp_path / "run", collections=asked("losses")) as hook:
        hook.watch(one.model, optimizer=one.optimizer, name="one")
        hook.watch(other.model, optimizer=other.optimizer, name="other")
        for _ in range(STEPS):
            second_forward(one)
            second_forward(other)

    run = open_run(tmp_path / "run")
    for name, training in (("one", one), ("other", other)):
        table = run.scalars("losses").to_pandas()
        values = table[table["name"] == f"losses/{name}"]["value"]
        assert values.tolist() == pytest.approx(training.wanted)
