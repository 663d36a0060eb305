"""Search spaces: what a sweep file may say, and what is proposed of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import optuna
import pytest

from vinedresser.errors import ConfigError
from vinedresser.sweeps.space import Space

WHERE = "sweep.toml: space"
TABLE: dict[str, Any] = {
    # Before what it depends on, as a file may have it.
    "momentum": {"float": [0.5, 0.99], "when": {"optimizer": "sgd"}},
    "lr": {"log": [1e-4, 1.0]},
    "width": {"int": [16, 256], "log": True},
    "layers": {"int": [1, 7], "step": 2},
    "dropout": {"float": [0.0, 0.5], "step": 0.25},
    "optimizer": ["sgd", "adam"],
    "bias": [True, False],
}


def test_what_is_proposed_lies_in_the_space_and_meets_its_conditions() -> None:
    space = Space.parse(TABLE, WHERE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    chosen = [space.suggest(study.ask()) for _ in range(300)]
    assert {one["optimizer"] for one in chosen} == {"sgd", "adam"}
    assert {one["layers"] for one in chosen} == {1, 3, 5, 7}
    assert {one["dropout"] for one in chosen} == {0.0, 0.25, 0.5}
    assert {one["bias"] for one in chosen} == {True, False}
    for one in chosen:
        assert ("momentum" in one) is (one["optimizer"] == "sgd")
        assert 0.5 <= float(one.get("momentum", 0.5)) <= 0.99
        assert isinstance(one["width"], int)
    # Uniform in the logarithm: a quarter of the draws in each decade.
    decades = [math.floor(math.log10(float(one["lr"]))) for one in chosen]
    assert all(50 <= decades.count(decade) <= 100 for decade in (-4, -3, -2, -1))


def test_a_grid_has_every_combination_once() -> None:
    table = {
        "lr": {"log": [1e-3, 1.0], "grid": 4},
        "optimizer": ["sgd", "adam"],
        "momentum": {"float": [0.0, 0.9], "grid": 2, "when": {"optimizer": ["sgd"]}},
        "layers": {"int": [1, 3]},
    }
    grid = Space.parse(table, WHERE).grid()
    rates, layers = [1e-3, 1e-2, 1e-1, 1.0], [1, 2, 3]
    adam = [
        {"lr": r, "optimizer": "adam", "layers": n} for r, n in itertools.product(rates, layers)
    ]
    sgd = [
        {"lr": r, "optimizer": "sgd", "momentum": m, "layers": n}
        for r, m, n in itertools.product(rates, [0.0, 0.9], layers)
    ]
    assert len(grid) == len(adam) + len(sgd)
    for wanted in adam + sgd:
        assert sum(_same(one, wanted) for one in grid) == 1


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(
        one[key] == other[key]
        if isinstance(other[key], str)
        else math.isclose(one[key], other[key], rel_tol=1e-12)
        for key in other
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "space: must name at least one hyperparameter"),
        (
            {"lr": 0.1},
            "lr: must be a list of values or a table .* constants belong in",
        ),
        ({"lr": []}, "lr: must be a list of at least one value"),
        ({"lr": [0.1, 0.1]}, "lr: .* has a duplicate value"),
        ({"lr": [{}]}, "lr: must contain numbers, strings, true, false, or lists"),
        ({"lr": {"lgo": [1, 2]}}, "lr.lgo: no such key; did you mean log"),
        ({"lr": {"log": [0.0, 1.0]}}, "lr.log: a logarithmic range must start above 0"),
        ({"lr": {"log": [1.0, 0.1]}}, "lr.log: 1 must be below 0.1"),
        ({"lr": {"float": [1.0]}}, r"lr.float: must be two numbers, \[low, high\]"),
        ({"lr": {"float": [0.0, math.inf]}}, "lr.float: must be two numbers"),
        ({"n": {"int": [1.5, 2]}}, "n.int: must be two integers"),
        ({"n": {"int": [1, 5], "step": 0}}, "n.step: must be an integer above 0"),
        ({"lr": {"log": [0.1, 1.0], "step": 0.1}}, "lr.step: a logarithmic range has no steps"),
        ({"lr": {"log": [0.1, 1.0], "float": [0, 1]}}, "lr: must have one of log, float and int"),
        ({"lr": {"when": {}}}, "lr: must have one of"),
        ({"a": {"int": [1, 2], "when": {"b": 1}}}, "a.when.b: not in the space"),
        (
            {"opt": ["sgd"], "a": {"int": [1, 2], "when": {"otp": "sgd"}}},
            "a.when.otp: not in the space; did you mean opt",
        ),
        (
            {"opt": ["sgd"], "a": {"int": [1, 2], "when": {"opt": "adam"}}},
            "a.when.opt: must be one of 'sgd', not 'adam'",
        ),
        (
            {"a": {"values": [1], "when": {"b": 1}}, "b": {"values": [1], "when": {"a": 1}}},
            "circular conditions of a, b",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"sweep.toml: .*{said}"):
        Space.parse(table, WHERE)


def test_a_range_without_values_makes_no_grid() -> None:
    with pytest.raises(ConfigError, match=r"lr: a grid needs .*grid = 5"):
        Space.parse({"lr": {"float": [0.0, 1.0]}}, WHERE).grid()


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ({"widht": 16}, "widht: not in the space; did you mean width"),
        ({"lr": 2.0}, "lr: must be a number from 0.0001 to 1, not 2.0"),
        ({"width": 16.5}, "width: must be an integer from 16 to 256"),
        ({"bias": 1}, "bias: must be one of True, False, not 1"),
        ([1], "must be a table of hyperparameters"),
    ],
)
def test_a_point_outside_of_the_space_is_refused(point: object, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"points\[0\].*{said}"):
        Space.parse(TABLE, WHERE).point(point, "sweep.toml: sweep.points[0]")


def test_equal_spaces_are_equal_as_data_whatever_their_order() -> None:
    turned = dict(reversed(TABLE.items()))
    assert Space.parse(TABLE, WHERE).to_json() == Space.parse(turned, WHERE).to_json()
    other = TABLE | {"lr": {"log": [1e-4, 0.1]}}
    assert Space.parse(TABLE, WHERE).to_json() != Space.parse(other, WHERE).to_json()
