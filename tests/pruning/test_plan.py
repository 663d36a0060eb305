"""Plans as files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.pruning.small_groups import conv_group
from vinedresser.errors import PruningError
from vinedresser.pruning.cost import cost
from vinedresser.pruning.plan import Plan, architecture_digest, make_plan, plan_from_json

SHAPES: dict[str, tuple[int, ...]] = {
    "a.weight": (4, 3, 3, 3),
    "a_bn.weight": (4,),
    "b.weight": (8, 4, 3, 3),
}


def a_plan(channels: tuple[int, ...] = (2, 0)) -> Plan:
    group = conv_group("a", 4, reader="b")
    return make_plan(
        {"a": channels},
        {"a": group},
        architecture=architecture_digest(SHAPES),
        criterion="l1",
        scores={"a": np.array([0.1, 0.5, 0.2, 1 / 3])},
        attributes={},
    )


def test_a_plan_names_what_goes_from_each_tensor() -> None:
    plan = a_plan()
    assert plan.count == 2
    assert plan.channels == {"a": [0, 2]}
    assert plan.tensors == {
        "a.weight": {"0": [0, 2]},
        "a_bn.weight": {"0": [0, 2]},
        "b.weight": {"1": [0, 2]},
    }


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = a_plan()
    assert plan_from_json(plan.to_json(), source="plan.json") == plan


def test_the_digest_depends_on_names_and_shapes_only() -> None:
    assert architecture_digest(SHAPES) == architecture_digest(dict(reversed(SHAPES.items())))
    assert architecture_digest(SHAPES) != architecture_digest({**SHAPES, "a_bn.weight": (5,)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version is 2"),
        ({"channels": {"a": [2, 0]}}, "not sorted"),
        ({"channels": {"a": [0, 0]}}, "repeated"),
        ({"channels": {"a": []}}, "missing"),
        ({"tensors": {"a.weight": {"0": [-1]}}}, "below 0"),
        ({"tensors": {"a.weight": {"x": [1]}}}, "'x' is not an axis"),
        ({"channels": [1]}, "channels"),
        ({"architecture": 1}, "architecture"),
    ],
)
def test_damaged_plans_are_refused(change: dict[str, object], message: str) -> None:
    document = json.loads(a_plan().to_json()) | change
    with pytest.raises(PruningError, match=rf"^plan\.json: not a valid pruning plan: .*{message}"):
        plan_from_json(json.dumps(document), source="plan.json")


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(PruningError, match=r"^plan\.json: not a valid pruning plan"):
        plan_from_json("[" * 100_000, source="plan.json")


@pytest.mark.parametrize(
    ("name", "channels", "message"),
    [
        ("c", (0,), r"^c: no such group; the model has a"),
        ("a", (4,), r"^a: has channels 0 to 3, not 4"),
        ("a", (0, 1, 2, 3), r"^a: all 4 channels would be removed"),
    ],
)
def test_impossible_removals_are_refused(
    name: str, channels: tuple[int, ...], message: str
) -> None:
    groups = {"a": conv_group("a", 4)}
    with pytest.raises(PruningError, match=message):
        make_plan({name: channels}, groups, architecture="", criterion="", scores={}, attributes={})


def test_costs_before_and_after() -> None:
    parameters = frozenset(SHAPES)
    uses = {"a.weight": 100, "b.weight": 25}
    item_sizes = dict.fromkeys(SHAPES, 4) | {"b.weight": 2}
    before = cost(SHAPES, parameters, uses, item_sizes)
    after = cost(SHAPES, parameters, uses, item_sizes, a_plan())
    assert (before.parameters, before.macs) == (108 + 4 + 288, 10_800 + 7_200)
    assert (after.parameters, after.macs) == (54 + 2 + 144, 5_400 + 3_600)
    assert before.size_bytes == 4 * (108 + 4) + 2 * 288
    assert after.size_bytes == 4 * (54 + 2) + 2 * 144
