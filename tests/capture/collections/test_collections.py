"""The tensors of a collection, and the union of several collections."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinedresser.capture import CaptureConfig, Collection, SaveConfig
from vinedresser.capture.config.capture_config import DEFAULT, NOTHING
from vinedresser.errors import ConfigError


@pytest.mark.parametrize(
    ("collection", "name", "holds"),
    [
        (Collection("weights"), "weights/conv1.weight", True),
        (Collection("weights"), "gradients/weights/x", False),
        (Collection("weights"), "weightsx/y", False),
        (Collection("relus", regex=r"relu\d"), "outputs/layer.relu1", True),
        (Collection("relus", regex=r"^relu"), "outputs/relu1", False),
        (Collection("relus", regex=r"^relu"), "relus/of_my_own", True),
    ],
)
def test_membership(collection: Collection, name: str, holds: bool) -> None:
    assert collection.holds(name) == holds


@pytest.mark.parametrize(
    ("collection", "kind", "reaches"),
    [
        (Collection("weights"), "weights", True),
        (Collection("weights"), "outputs", False),
        (Collection("any", regex="conv"), "outputs", True),
        (Collection("some", regex="^gradients/fc"), "outputs", False),
        (Collection("some", regex="gradients/fc"), "outputs", False),
        (Collection("some", regex="^outputs/fc"), "outputs", True),
        (Collection("some", regex="layer/fc"), "outputs", True),
    ],
)
def test_kinds_that_a_collection_may_hold(collection: Collection, kind: str, reaches: bool) -> None:
    assert collection.reaches(kind) == reaches


def test_a_tensor_gets_the_union_of_its_due_collections() -> None:
    config = CaptureConfig.of(
        {
            "gradients": SaveConfig(every=2, reductions=("l2",)),
            "first": Collection(
                regex=r"gradients/0\.",
                save=(SaveConfig(every=3), SaveConfig(every=0, steps=(4,), reductions=("std",))),
            ),
        }
    )
    asks = [config.asks("gradients/0.weight", step, "train") for step in range(7)]
    assert [(ask.tensor, sorted(ask.reductions)) for ask in asks] == [
        (True, ["l2"]), (False, []), (False, ["l2"]), (True, []), (False, ["l2", "std"]),
        (False, []), (True, ["l2"]),
    ]  # fmt: skip
    assert config.asks("gradients/1.weight", 3, "train") is NOTHING
    assert not config.asks("weights/0.weight", 0, "train")
    assert config.due(1, "train") is config.due(5, "train")
    assert not config.due(1, "train")


def test_losses_metrics_and_user_values_are_saved_by_default() -> None:
    config = CaptureConfig.of({"losses": SaveConfig(every=10)}).with_defaults()
    assert set(config.collections) == {"losses", "metrics", "saved"}
    assert not config.asks("losses/x", 1, "train")
    assert config.asks("metrics/x", 1, "train")
    assert CaptureConfig().with_defaults() == DEFAULT


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"gradiens": {}}, "gradiens: no such collection.*did you mean gradients"),
        ({"mine": {"every": 3}}, "mine: no such collection, and no regex"),
        ({"mine": {"regex": "("}}, r"mine: invalid regex '\(': missing"),
        ({"mine": {"regex": 3}}, "mine: invalid regex 3"),
        ({"losses": {"regex": "x"}}, "losses: a built-in collection takes no regex"),
        ({"a/b": {"regex": "x"}}, "invalid collection name 'a/b'"),
        ({"losses": {"evry": 3}}, "losses.evry: no such key; did you mean every"),
        ({"losses": {"every": -3}}, "losses.every = -3"),
        ({"losses": 3}, "losses = 3: must be a table"),
        ({"losses": {"save": {"every": 3}}}, "losses.save = .* must be a list of tables"),
        ({"losses": {"save": [], "every": 3}}, "losses.every: conflicts with save"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CaptureConfig.from_json(document)


def test_two_patterns_for_one_collection_are_refused() -> None:
    one, other = (CaptureConfig.of({"mine": Collection(regex=regex)}) for regex in "ab")
    with pytest.raises(ConfigError, match="mine: defined with two regexes, 'a' and 'b'"):
        one.merged(other)
    with pytest.raises(ConfigError, match="the collection has another name, relus"):
        CaptureConfig.of({"mine": Collection("relus", regex="relu")})


SAVES = st.builds(
    SaveConfig,
    every=st.integers(0, 4),
    steps=st.tuples(st.integers(0, 6)),
    modes=st.sampled_from([("train",), ("eval",), ("train", "eval")]),
    reductions=st.sampled_from([(), ("l2",), ("min", "max")]),
)
COLLECTIONS = st.one_of(
    st.tuples(st.sampled_from(["losses", "weights"]), st.builds(Collection, save=SAVES)),
    st.tuples(st.just("mine"), st.builds(Collection, regex=st.just("^weights/a"), save=SAVES)),
)
CONFIGS = st.lists(COLLECTIONS, max_size=3).map(lambda pairs: CaptureConfig.of(dict(pairs)))


@pytest.mark.thorough
@given(CONFIGS, CONFIGS)
def test_merging_gives_the_union(one: CaptureConfig, other: CaptureConfig) -> None:
    both = one.merged(other)
    assert both == other.merged(one)
    assert both.digest() == other.merged(one).digest()
    assert both == both.merged(one)
    assert CaptureConfig.from_json(json.loads(json.dumps(both.to_json()))) == both
    for name in ("weights/a", "weights/b", "losses/x"):
        for mode in ("train", "eval"):
            for step in range(7):
                asks = [config.asks(name, step, mode) for config in (both, one, other)]
                assert asks[0].tensor == (asks[1].tensor or asks[2].tensor)
                assert asks[0].reductions == asks[1].reductions | asks[2].reductions
                assert bool(asks[0]) == (bool(asks[1]) or bool(asks[2]))
