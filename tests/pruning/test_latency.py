"""Measured latencies of torch models."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from tests.pruning.networks import EXAMPLE, build
from vinedresser.pruning import PruningError
from vinedresser.pruning.latency import Share, compared_latency, measured_latency


class Noted(nn.Module):
    """Notes each forward pass, and what it can see of its surroundings, in a shared list."""

    calls: list[tuple[str, bool, bool]] = []  # noqa: RUF012 (copies of the module share it)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return float [batch, 4, height - 2, width - 2]; adds noise and changes its input."""
        self.calls.append((self.name, self.training, torch.is_inference_mode_enabled()))
        x += 1
        noisy: Tensor = self.layer(x) + torch.rand(1)
        return noisy


@pytest.fixture
def calls() -> list[tuple[str, bool, bool]]:
    Noted.calls.clear()
    return Noted.calls


def test_more_work_takes_longer() -> None:
    """Thousands of times as many operations: no load of the machine makes up for that."""
    small, large = nn.Conv2d(3, 1, 1), nn.Sequential(nn.Conv2d(3, 256, 5), nn.Conv2d(256, 32, 5))
    found = measured_latency([large, small], EXAMPLE, budget=0)
    assert len(found) == 2
    assert all(math.isfinite(one) and one > 0 for one in found)
    assert found[0] > found[1]


def test_models_take_turns_in_evaluation_mode_and_are_warmed_up(
    calls: list[tuple[str, bool, bool]],
) -> None:
    measured_latency([Noted("one").train(), Noted("other").train()], EXAMPLE, budget=0)
    assert {call[1:] for call in calls} == {(False, True)}
    names = [name for name, *_ in calls]
    assert names[:6] == ["one"] * 3 + ["other"] * 3
    turns = [tuple(names[at : at + 2]) for at in range(6, len(names), 2)]
    assert Counter(turns) == {("one", "other"): 6, ("other", "one"): 5}


def test_a_budget_buys_more_turns(calls: list[tuple[str, bool, bool]]) -> None:
    measured_latency([Noted("one")], EXAMPLE, budget=0.2)
    assert len(calls) > 3 + 11


def test_what_runs_only_sometimes_does_not_count() -> None:
    """Other load adds to some turns only: here, each third pass of a model has much more to do."""

    class Disturbed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.load = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 512, 7)
            self.passes = 0

        def forward(self, x: Tensor) -> Tensor:
            self.passes += 1
            if self.passes % 3 == 0:
                self.load(x)
            layer: Tensor = self.layer(x)
            return layer

    always = nn.Conv2d(3, 512, 7)
    found = measured_latency([Disturbed(), always], EXAMPLE, turns=30, budget=0)
    assert found[0] < found[1]


def test_nothing_changes() -> None:
    models = [build().train(), Noted("one").eval()]
    models[0].norm.momentum = 0.5  # type: ignore[union-attr]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    example, random = EXAMPLE.clone(), torch.get_rng_state()
    measured_latency(models, example, budget=0)
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(one, state[name]) for name, one in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
    assert [model.training for model in models] == [True, False]
    assert torch.equal(example, EXAMPLE)
    assert torch.equal(torch.get_rng_state(), random)


def test_a_model_that_does_not_run_is_an_error() -> None:
    with pytest.raises(PruningError, match=r"the model does not run on the example: RuntimeError"):
        measured_latency([nn.Conv2d(5, 4, 3)], EXAMPLE)
    with pytest.raises(PruningError, match=r"must be a torch\.nn\.Module or a keras\.Model"):
        measured_latency([print], EXAMPLE)


class Waiting(nn.Module):
    """Takes as long as it says, and longer in three of four stretches of 20 passes."""

    def __init__(self, seconds: float, load: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.seconds, self.load, self.passes = seconds, load, 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        time.sleep(self.seconds + self.load * (self.passes // 20 % 4 > 0))
        return x


@pytest.mark.thorough
def test_a_share_has_an_interval() -> None:
    found = compared_latency(Waiting(0.004), Waiting(0.008), EXAMPLE)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.share <= found.high
    assert 0.4 < found.low <= found.high < 0.8
    if found.shown.is_clear:
        assert str(found.shown).startswith(f"{100 * found.share:.3g} % ({100 * found.low:.3g} to ")


@pytest.mark.thorough
def test_a_share_with_a_wide_interval_cannot_be_told() -> None:
    """Other load changes one model's times and not the other's: nothing can be said of them."""
    found = compared_latency(Waiting(0.001, load=0.01), Waiting(0.001), EXAMPLE)
    assert not found.shown.is_clear
    assert str(found.shown).startswith("cannot tell (")


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (Share(0.42, 0.41, 0.44), "42 % (41 to 44 %)"),
        (Share(1.81, 0.012, 1.9), "cannot tell (1.2 to 190 %)"),
        (Share(0.5), "50 %"),
    ],
)
def test_what_is_shown_of_a_share(share: Share, told: str) -> None:
    assert str(share) == told
