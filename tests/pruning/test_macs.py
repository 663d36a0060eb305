"""Filters that raise the loss least per operation saved: measured, and chosen by it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.pruning.networks import EXAMPLE, build, losses
from vinedresser.pruning import Limits, PruningError, prune
from vinedresser.pruning.cost import SavedMacs
from vinedresser.pruning.one_round import losses_by_count, ranked
from vinedresser.pruning.ranking import Removal
from vinedresser.pruning.selection import NO_LIMITS


def removal_of(model: nn.Module, limits: Limits = NO_LIMITS) -> Removal:
    return ranked(
        model,
        EXAMPLE,
        criterion="l1",
        losses=None,
        limits=limits,
        kinds=("filters",),
        ignore=(),
    )


@pytest.mark.thorough
def test_each_group_is_measured_alone_up_to_its_limit() -> None:
    model = build()
    removal = removal_of(model, Limits(floor=3))
    measured = losses_by_count(removal, losses)
    assert {name: [*found] for name, found in measured.items()} == {
        "stem": [0, 1],
        "first": [0, 2, 3, 6, 9],
        "grouped": [0, 1, 2, 3],
    }
    for name, found in measured.items():
        for count, loss in found.items():
            pruned = model.eval() if not count else prune(model, EXAMPLE, {name: count}).model
            with torch.no_grad():
                expected = torch.stack([*losses(pruned.eval())]).mean()
            assert loss == pytest.approx(float(expected), rel=1e-5)


def test_operations_saved_one_after_the_other_are_those_of_the_plan() -> None:
    removal = removal_of(build())
    shapes = {name: one.shape for name, one in removal.prunable.tensors().items()}
    saved = SavedMacs(removal.groups, shapes, removal.prunable.uses)
    gone = dict.fromkeys([group.name for group in removal.groups], 0)
    draw = random.Random(0)
    for _ in range(removal.most):
        place = draw.choice(
            [at for at, one in enumerate(removal.groups) if gone[one.name] + 1 < one.size]
        )
        before = removal.cost(removal.plan_each(gone)).macs
        gone[removal.groups[place].name] += 1
        after = removal.cost(removal.plan_each(gone)).macs
        assert saved.saved(place, 1) == before - after
        saved.remove(place, 1)


def early() -> nn.Sequential:
    """Return a network with most operations in its first layers, most parameters in its last."""
    torch.manual_seed(1)
    last = nn.Conv2d(48, 48, 3, padding=1)
    model = nn.Sequential(
        *(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(4), nn.Conv2d(12, 48, 3, padding=1), nn.ReLU()),
        *(last, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(48, 5),
    )
    with torch.no_grad():
        # The last filters have the lowest scores, and almost no operations.
        last.weight[::2] *= 0.3
    return model


def like(model: nn.Module) -> Callable[[nn.Module], Iterator[Tensor]]:
    """Return losses of a model: the distance of its outputs from those of this one."""
    with torch.no_grad():
        wanted = model(EXAMPLE)

    def distances(other: nn.Module) -> Iterator[Tensor]:
        yield (other(EXAMPLE) - wanted).square().mean()

    return distances


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.5, 0.7, 0.85])
def test_a_target_by_operations_costs_less_loss_than_by_scores(share: float) -> None:
    model = early()
    given = like(model)
    target = int(share * prune(model, EXAMPLE, 1).before.macs)
    chosen = prune(model, EXAMPLE, macs=target, losses=given)
    by_score = prune(model, EXAMPLE, macs=target)
    assert chosen.after.macs <= target
    (loss,), (other,) = given(chosen.model), given(by_score.model)
    assert loss < 0.9 * other
    assert chosen.plans[0].count < by_score.plans[0].count
    assert chosen.plans[0].criterion == "l1, loss per MAC"
    assert by_score.plans[0].criterion == "l1"


@pytest.mark.thorough
def test_other_targets_and_amounts_go_by_scores() -> None:
    model = early()
    given = like(model)
    half = prune(model, EXAMPLE, 1).before.parameters // 2
    cases: list[dict[str, Any]] = [
        {"parameters": half},
        {"parameters": half, "macs": 10**9},
        {"size_bytes": 4 * half},
        {"amount": 9},
    ]
    for case in cases:
        assert (
            prune(model, EXAMPLE, **case, losses=given).plans == prune(model, EXAMPLE, **case).plans
        )
    forced = prune(model, EXAMPLE, 9, losses=given, per_mac=True)
    assert forced.plans[0].criterion == "l1, loss per MAC"
    assert forced.plans[0].count == 9


def test_shuffled_batches_are_the_same_each_time() -> None:
    """A loss that draws its batches must not make one group look better than another."""
    model = build()
    data = torch.randn(64, 3, 12, 12), torch.randint(5, (64,))

    def shuffled(other: nn.Module) -> Iterator[Tensor]:
        chosen = torch.randperm(64)[:8]
        assert other.training is False
        yield nn.functional.cross_entropy(other(data[0][chosen]), data[1][chosen])

    state = torch.get_rng_state()
    found = losses_by_count(removal_of(model), shuffled)
    assert torch.equal(torch.get_rng_state(), state)
    assert losses_by_count(removal_of(model), shuffled) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda _: iter(()), "^losses: yields nothing"),
        (lambda _: [1.0], "^losses: batch 0: must be a scalar tensor"),
        (
            lambda one: (loss * math.nan for loss in losses(one)),
            "^losses: a loss of the unpruned .* not fin",
        ),
        (None, "^per_mac measures losses: pass losses, a function"),
    ],
)
def test_losses_that_cannot_be_used_are_refused(given: Any, message: str) -> None:
    with pytest.raises(PruningError, match=message):
        prune(build(), EXAMPLE, 3, losses=given, per_mac=True)
