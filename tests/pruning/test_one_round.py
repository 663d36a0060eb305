"""Pruning rounds from ranking to proof."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from tests.pruning.networks import EXAMPLE, batches, build, losses
from vinedresser.pruning import (
    GroupTensors,
    Limits,
    PruningError,
    amounts_within,
    prune,
    scan,
)
from vinedresser.pruning.criteria.registry import CRITERIA


def state(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.thorough
@pytest.mark.parametrize("criterion", sorted(set(CRITERIA) - {"batch_norm_scale"}))
def test_every_criterion_removes_exactly_the_number_asked_for(criterion: str) -> None:
    model = build().train()
    before = state(model)
    pruned = prune(model, EXAMPLE, 7, criterion=criterion, losses=losses)
    assert pruned.plans[0].count == 7
    assert pruned.plans[0].criterion == criterion
    assert pruned.after.parameters == sum(
        parameter.numel() for parameter in pruned.model.parameters()
    )
    assert pruned.before.parameters == sum(parameter.numel() for parameter in model.parameters())
    # The original is as it was, with its mode and without gradients.
    assert same(before, state(model))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_taylor_weight_is_the_derivative_by_a_scale_of_the_filter() -> None:
    """An independent definition: the squared derivative of the loss by a factor on each filter."""
    model = build().eval()
    expected = torch.zeros(12)
    for x, y in batches():
        scale = torch.ones(12, requires_grad=True)
        weights = {"first.weight": model.first.weight * scale[:, None, None, None]}
        loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
        expected += torch.autograd.grad(loss, scale)[0] ** 2 / 3
    pruned = prune(model, EXAMPLE, 1, criterion="taylor_weight", losses=losses)
    found = pruned.plans[0].scores
    if "first" in found:
        np.testing.assert_allclose(found["first"], expected.numpy(), rtol=1e-4)
    full = prune(model, EXAMPLE, {"first": 3}, criterion="taylor_weight", losses=losses)
    np.testing.assert_allclose(full.plans[0].scores["first"], expected.numpy(), rtol=1e-4)


def test_taylor_activation_is_the_derivative_by_a_gate_of_the_channel() -> None:
    """A factor on a channel of the reader's input has the sum over space as its derivative."""
    model = build().eval()
    means = torch.zeros(12)
    for x, y in batches():
        gate = torch.ones(4, 12, 1, 1, requires_grad=True)
        stem = F.relu(model.stem(x))
        inner = F.relu(model.norm(model.first(stem))) * gate
        middle = F.relu(stem + model.second(inner))
        logits = model.head(F.relu(model.grouped(middle)).mean((2, 3)))
        derivative = torch.autograd.grad(F.cross_entropy(logits, y), gate)[0].flatten(1)
        means += derivative.abs().mean(0) / 144 / 3
    pruned = prune(model, EXAMPLE, {"first": 3}, criterion="taylor_activation", losses=losses)
    expected = (means / means.norm()).numpy()
    np.testing.assert_allclose(pruned.plans[0].scores["first"], expected, rtol=1e-4)


def test_rounds_go_on_from_each_other() -> None:
    model = build()
    first = prune(model, EXAMPLE, 5)
    second = prune(first, EXAMPLE, 5)
    assert [plan.count for plan in second.plans] == [5, 5]
    assert second.before == first.after
    assert second.after.parameters < first.after.parameters


def test_a_number_of_parameters_is_reached_with_as_few_filters_as_possible() -> None:
    model = build()
    target = int(0.6 * sum(parameter.numel() for parameter in model.parameters()))
    pruned = prune(model, EXAMPLE, parameters=target)
    assert pruned.after.parameters <= target
    fewer = prune(model, EXAMPLE, pruned.plans[0].count - 1)
    assert fewer.after.parameters > target


def test_a_number_of_bytes_is_reached_with_as_few_filters_as_possible() -> None:
    model = build()

    def size(one: nn.Module) -> int:
        return sum(
            each.numel() * each.element_size() for each in [*one.parameters(), *one.buffers()]
        )

    assert {each.dtype for each in model.state_dict().values()} == {torch.float32, torch.int64}

    target = int(0.6 * size(model))
    pruned = prune(model, EXAMPLE, size_bytes=target)
    assert pruned.before.size_bytes == size(model)
    assert pruned.after.size_bytes == size(pruned.model) <= target
    fewer = prune(model, EXAMPLE, pruned.plans[0].count - 1)
    assert fewer.after.size_bytes > target


def test_multiply_accumulate_operations_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = build().eval()
    pruned = prune(model, EXAMPLE, 6)
    for one, macs in ((model, pruned.before.macs), (pruned.model.eval(), pruned.after.macs)):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            one(EXAMPLE[:1])
        assert counter.get_total_flops() == 2 * macs


def test_a_criterion_of_ones_own() -> None:
    def by_number(group: GroupTensors) -> np.ndarray:
        return np.arange(group.group.size, dtype=np.float64)

    pruned = prune(build(), EXAMPLE, {"first": 4}, criterion=by_number)
    assert pruned.plans[0].channels == {"first": [0, 1, 2, 3]}
    assert pruned.plans[0].criterion == "by_number"


def test_limits_and_ignored_layers() -> None:
    pruned = prune(build(), EXAMPLE, 8, limits=Limits(round_to=4), ignore=["second"])
    # The second convolution shares its channels with the stem.
    assert set(pruned.plans[0].channels) <= {"first", "grouped"}
    assert pruned.model.first.out_channels % 4 == 0
    assert 8 - 4 < pruned.plans[0].count <= 8


def no_losses(_: nn.Module) -> Iterator[Tensor]:
    yield from ()


def nan_losses(model: nn.Module) -> Iterator[Tensor]:
    yield model(EXAMPLE).sum() * float("nan")


def not_scalar(model: nn.Module) -> Iterator[Tensor]:
    yield model(EXAMPLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"amount": 0}, r"^amount: must be a number above 0 or a share .*, not 0$"),
        ({"amount": "100%"}, r"^amount: must be .*, not '100%'$"),
        ({"amount": "ten"}, r"^amount: must be .*, not 'ten'$"),
        ({"amount": 100}, r"^100 filters were to be removed, but the limits allow \d+"),
        ({}, r"^pass amount, or parameters, macs"),
        ({"amount": 3, "latency": 0.5}, r"^amount: with a target by latency"),
        ({"parameters": 10}, r"^parameters: 10 cannot be reached: the limits leave \d+"),
        ({"parameters": 10**9}, r"^the model costs no more than that already"),
        ({"amount": 3, "ignore": ["frist"]}, r"^ignore: 'frist' is not a layer .*first"),
        ({"amount": {"frist": 1}}, r"^amount: 'frist' is not a group to choose from.*first"),
        ({"amount": 3, "criterion": "l3"}, r"^'l3' is not a criterion"),
        ({"amount": 3, "criterion": "batch_norm_scale"}, r"^stem: .* needs a normalisation"),
        ({"amount": 3, "criterion": "taylor_weight"}, r"measures gradients: pass losses"),
        (
            {"amount": 3, "criterion": "taylor_weight", "losses": no_losses},
            r"^losses: yields nothing",
        ),
        (
            {"amount": 3, "criterion": "taylor_weight", "losses": nan_losses},
            r"^losses: batch 0: the loss is nan",
        ),
        (
            {"amount": 3, "criterion": "taylor_activation", "losses": not_scalar},
            r"^losses: batch 0: must be a scalar tensor",
        ),
        ({"amount": 3, "kinds": ["heads"]}, r"^no filters can be removed: head: "),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: dict[str, object], message: str) -> None:
    model = build()
    before = state(model)
    with pytest.raises(PruningError, match=message):
        prune(model, EXAMPLE, **arguments)  # type: ignore[arg-type]
    assert same(before, state(model))


@pytest.mark.parametrize(
    ("model", "example"),
    [
        ("a word", EXAMPLE),
        (build(), torch.randn(4, 4, 12, 12)),
        (build(), "a word"),
        (nn.Sequential(nn.ReLU()), EXAMPLE),
    ],
)
def test_models_that_cannot_be_pruned(model: object, example: object) -> None:
    with pytest.raises(PruningError):
        prune(model, example, 3)


def test_a_scan_gives_an_amount_for_each_group() -> None:
    model = build().eval()
    with torch.no_grad():
        logits = model(EXAMPLE)

    def agreement(other: nn.Module) -> float:
        with torch.no_grad():
            return float((other.eval()(EXAMPLE) - logits).abs().mean().neg())

    scanned = scan(model, EXAMPLE, agreement, shares=(0.25, 0.5))
    assert {name: sorted(figures) for name, figures in scanned.items()} == {
        "first": [0, 3, 6],
        # Both groups of the grouped convolution read and make the same channels.
        "stem": [0, 1, 2],
        "grouped": [0, 2, 3],
    }
    assert all(figures[0] == 0 for figures in scanned.values())
    assert amounts_within(scanned, drop=np.inf) == {"stem": 2, "first": 6, "grouped": 3}
    assert amounts_within(scanned, drop=0.0) == {}
    pruned = prune(model, EXAMPLE, amounts_within(scanned, drop=np.inf))
    assert pruned.plans[0].count == 11


def test_an_old_optimizer_does_not_train_the_pruned_model() -> None:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruned = prune(model, EXAMPLE, 7).model
    before = state(pruned)
    F.cross_entropy(pruned(EXAMPLE), torch.zeros(4, dtype=torch.int64)).backward()
    optimizer.step()
    trained = dict(pruned.named_parameters())
    assert all(torch.equal(before[name], one) for name, one in trained.items())
    torch.optim.SGD(pruned.parameters(), lr=0.1).step()
    assert not any(
        torch.equal(before[name], one) for name, one in trained.items() if one.grad.any()
    )
