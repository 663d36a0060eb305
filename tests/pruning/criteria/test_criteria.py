"""Criteria against plain loops over filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.pruning.small_groups import conv_group
from vinedresser.errors import PruningError
from vinedresser.pruning.criteria.criterion import GroupTensors, Measured
from vinedresser.pruning.criteria.registry import CRITERIA, criterion_named
from vinedresser.pruning.group import Group, Member

C = 5
RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.normal(size=(C, 3, 3, 3)).astype(np.float32)
TENSORS: dict[str, NDArray[Any]] = {
    "a.weight": WEIGHT,
    "a_bn.weight": RANDOM.normal(size=C),
    "b.weight": RANDOM.normal(size=(2, C, 3, 3)),
}
GROUP = conv_group("a", C, reader="b")
# Two steps of 4 and 3 examples.
TAYLOR = [RANDOM.normal(size=(4, C)), RANDOM.normal(size=(3, C))]
WEIGHT_TAYLOR = [RANDOM.normal(size=C), RANDOM.normal(size=C), RANDOM.normal(size=C)]
DATA = GroupTensors(
    GROUP,
    TENSORS,
    {"input_taylor": {"b.weight": TAYLOR}, "weight_taylor": {"a.weight": WEIGHT_TAYLOR}},
)


def filters() -> list[list[float]]:
    return [[float(one) for one in WEIGHT[channel].ravel()] for channel in range(C)]


def over(values: list[float], total: float) -> list[float]:
    return [value / total for value in values]


def l1() -> list[float]:
    norms = [sum(map(abs, one)) for one in filters()]
    return over(norms, sum(norms) / C)


def l2() -> list[float]:
    norms = [math.sqrt(sum(x * x for x in one)) for one in filters()]
    return over(norms, sum(norms) / C)


def geometric_median() -> list[float]:
    sums = [sum(math.dist(one, other) for other in filters()) for one in filters()]
    return over(sums, sum(sums) / C)


def lamp() -> list[float]:
    squares = [sum(x * x for x in one) for one in filters()]
    return [square / sum(other for other in squares if other >= square) for square in squares]


def taylor_activation() -> list[float]:
    means = [
        sum(abs(float(example[channel])) for step in TAYLOR for example in step) / 7
        for channel in range(C)
    ]
    return over(means, math.sqrt(sum(x * x for x in means)))


def taylor_signed() -> list[float]:
    sums = [
        abs(sum(sum(float(one[channel]) for one in step) / len(step) for step in TAYLOR))
        for channel in range(C)
    ]
    return over(sums, math.sqrt(sum(x * x for x in sums)))


def taylor_weight() -> list[float]:
    return [sum(float(one[channel]) ** 2 for one in WEIGHT_TAYLOR) / 3 for channel in range(C)]


EXPECTED: dict[str, Callable[[], list[float]]] = {
    "l1": l1,
    "l2": l2,
    "geometric_median": geometric_median,
    "lamp": lamp,
    "taylor_activation": taylor_activation,
    "taylor_signed": taylor_signed,
    "taylor_weight": taylor_weight,
    "batch_norm_scale": lambda: [abs(float(one)) for one in TENSORS["a_bn.weight"]],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_scores(name: str) -> None:
    np.testing.assert_allclose(criterion_named(name).score(DATA), EXPECTED[name](), rtol=1e-6)


def test_every_criterion_but_random_has_a_reference() -> None:
    assert set(CRITERIA) - set(EXPECTED) == {"random"}


def test_random_scores_depend_on_the_seed_and_the_name_only() -> None:
    first = criterion_named("random").score(DATA)
    assert (first == criterion_named("random").score(DATA)).all()
    other = GroupTensors(conv_group("c", C), {})
    assert (first != criterion_named("random").score(other)).any()
    assert (first != CRITERIA["random"](seed=1).score(DATA)).any()  # type: ignore[call-arg]


def test_tied_filters_count_together() -> None:
    channels = np.arange(C)[:, None]
    tied = Group("a", "filters", C, (*GROUP.members, Member("d.weight", 1, channels, "filter")))
    d = RANDOM.normal(size=(2, C, 1, 1))
    scores = criterion_named("l1").score(GroupTensors(tied, {**TENSORS, "d.weight": d}))
    sums = np.abs(WEIGHT).sum(axis=(1, 2, 3)) + np.abs(d).sum(axis=(0, 2, 3))
    np.testing.assert_allclose(scores, sums / sums.mean(), rtol=1e-6)


def test_positions_of_a_flattened_channel_are_averaged() -> None:
    # Channels first: channel 1 of 2 lies at 3, 4, 5 of the flattened axis.
    group = Group("a", "filters", 2, (Member("fc.weight", 1, np.arange(6).reshape(2, 3), "input"),))
    taylor = {"fc.weight": [np.array([[1.0, 2.0, 3.0, -10.0, -20.0, -30.0]])]}
    data = GroupTensors(group, {"fc.weight": np.zeros((4, 6))}, {"input_taylor": taylor})
    norm = math.hypot(2, 20)
    scores = criterion_named("taylor_activation").score(data)
    np.testing.assert_allclose(scores, [2 / norm, 20 / norm])


def test_a_grouped_reader_is_averaged_over_its_groups() -> None:
    # Two groups read channels 0, 1 and 2, 3 with the indices 0, 1 of the weight's axis.
    member = Member("b.weight", 1, np.array([[0], [1]]), "input")
    group = Group("a", "filters", 2, (member,))
    taylor = {"b.weight": [np.array([[1.0, 10.0, 3.0, 30.0]])]}
    data = GroupTensors(group, {"b.weight": np.zeros((4, 2, 1, 1))}, {"input_taylor": taylor})
    norm = math.hypot(2, 20)
    np.testing.assert_allclose(criterion_named("taylor_signed").score(data), [2 / norm, 20 / norm])


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"batch_norm_scale"}))
def test_a_group_of_zeros_has_finite_scores(name: str) -> None:
    zeros = {key: np.zeros_like(value) for key, value in TENSORS.items()}
    taylor: Measured = {
        "input_taylor": {"b.weight": [np.zeros((2, C))]},
        "weight_taylor": {"a.weight": [np.zeros(C)]},
    }
    assert np.isfinite(criterion_named(name).score(GroupTensors(GROUP, zeros, taylor))).all()


@pytest.mark.parametrize("name", ["taylor_activation", "taylor_signed", "taylor_weight"])
def test_what_was_not_measured_is_named(name: str) -> None:
    with pytest.raises(PruningError, match=r"^a: (input|weight)_taylor was not measured; .*weight"):
        criterion_named(name).score(GroupTensors(GROUP, TENSORS))


def test_a_group_without_normalisation_has_no_scale() -> None:
    group = Group("a", "filters", C, (GROUP.members[0],))
    with pytest.raises(PruningError, match=r"^a: criterion batch_norm_scale needs"):
        criterion_named("batch_norm_scale").score(GroupTensors(group, TENSORS))


def test_unknown_criteria_are_refused_with_the_nearest() -> None:
    with pytest.raises(PruningError, match=r"'geometric_mean' .* geometric_median"):
        criterion_named("geometric_mean")
