"""Targets by latency, and targets that are not valid."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.pruning.networks import EXAMPLE, build
from vinedresser.pruning import Limits, PruningError, prune
from vinedresser.pruning.latency import measured_latency


def large() -> nn.Sequential:
    """Return a network whose forward pass takes long beside the overhead of its calls."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 3), nn.ReLU(), nn.Conv2d(96, 96, 3), nn.ReLU(), nn.Conv2d(96, 8, 3)
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Leave other cores to other tests, so that latencies can be told."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# On a busy machine it refuses to tell.
@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_share_of_the_latency_is_reached() -> None:
    model, example = large(), torch.randn(8, 3, 32, 32)
    pruned = prune(model, example, latency=0.3)
    assert pruned.latency is not None
    assert pruned.latency.share == pruned.latency.after / pruned.latency.before <= 0.3 * 1.05
    assert 1 <= pruned.latency.measurements <= 24
    assert 0 < pruned.plans[0].count < 192
    # Measured again, with a margin for what else the machine does.
    before, after = measured_latency([model, pruned.model], example, budget=0)
    assert after < 0.8 * before


@pytest.mark.thorough
def test_a_latency_that_the_limits_do_not_allow_is_an_error() -> None:
    with pytest.raises(PruningError, match=r"latency: 0\.2 of the model's cannot be reached"):
        prune(large(), torch.randn(4, 3, 16, 16), latency=0.2, limits=Limits(floor=92))


class Disturbed(nn.Module):
    """Takes 4 ms per filter; on its first 14 passes with fewer filters, as long as with 8."""

    passes: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return float [batch, 2, height - 4, width - 4]."""
        filters = len(self.first.weight)
        self.passes[filters] += 1
        time.sleep(0.004 * (8 if self.passes[filters] <= 14 else filters))
        scores: Tensor = self.last(self.first(x).relu())
        return scores


@pytest.mark.thorough
def test_other_load_does_not_make_a_latency_impossible() -> None:
    """With the fewest filters, it takes a quarter of the time once the disturbance is over."""
    Disturbed.passes.clear()
    pruned = prune(Disturbed(), torch.randn(1, 3, 8, 8), latency=0.5, limits=Limits(floor=2))
    assert pruned.latency is not None
    assert pruned.latency.share <= 0.5 * 1.05


@pytest.mark.thorough
def test_with_a_latency_the_other_targets_hold_too() -> None:
    model = large()
    target = sum(parameter.numel() for parameter in model.parameters()) // 20
    pruned = prune(model, torch.randn(4, 3, 16, 16), latency=0.9, parameters=target)
    assert pruned.after.parameters <= target
    assert pruned.latency is not None
    assert pruned.latency.share < 0.9 * 1.05


@pytest.mark.parametrize("latency", [0, 1, -0.5, True, "50%", float("nan")])
def test_a_latency_is_a_share(latency: Any) -> None:
    with pytest.raises(PruningError, match=r"must be a share of the model's latency"):
        prune(build(), EXAMPLE, latency=latency)


@pytest.mark.parametrize(
    "given", [{"amount": 3, "latency": 0.5}, {"amount": {"stem": 1}, "macs": 10}]
)
def test_amounts_and_targets_that_contradict_are_refused(given: Any) -> None:
    with pytest.raises(PruningError, match=r"^amount: with a target by latency"):
        prune(build(), EXAMPLE, **given)


def test_an_amount_is_the_most_that_goes_for_a_target() -> None:
    whole = prune(build(), EXAMPLE, 1).before.parameters
    by_target = prune(build(), EXAMPLE, parameters=int(0.7 * whole))
    many = prune(build(), EXAMPLE, by_target.proof.count + 5, parameters=int(0.7 * whole))
    few = prune(build(), EXAMPLE, 2, parameters=int(0.7 * whole))
    assert many.plans == by_target.plans
    assert few.proof.count == 2
    with pytest.raises(PruningError, match="no filters are to be removed: reached"):
        prune(build(), EXAMPLE, 2, parameters=whole)


@pytest.mark.parametrize("target", ["parameters", "macs", "size_bytes"])
@pytest.mark.parametrize("value", ["50%", True])
def test_a_target_that_is_no_number_is_named(target: str, value: Any) -> None:
    with pytest.raises(PruningError, match=rf"^{target}: '?{value}'? is not a number$"):
        prune(build(), EXAMPLE, **{target: value})


def test_an_amount_below_a_block_is_refused() -> None:
    with pytest.raises(PruningError, match="1 is less than a block of 4"):
        prune(build(), EXAMPLE, 1, limits=Limits(round_to=4))


@pytest.mark.parametrize("target", ["parameters", "macs", "size_bytes"])
def test_a_target_that_the_limits_do_not_allow_is_an_error(target: str) -> None:
    with pytest.raises(PruningError, match=rf"{target}: 0 cannot be reached: the limits leave"):
        prune(build(), EXAMPLE, **{target: 0})  # type: ignore[arg-type]
