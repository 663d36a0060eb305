"""Rules by name, and the errors of invalid tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from vinedresser.errors import ConfigError
from vinedresser.rules.contracts.contract import Contract
from vinedresser.rules.registry import RULES, describe, find_rules, rules_from_table

SHOWN = '("vinedresser rules list" shows all; a custom rule is path/to/file.py:Name)'
TABLES: list[tuple[dict[str, Any], str]] = [
    (
        {"vanishing_gradent": {}},
        (f"rules.vanishing_gradent: no such rule; did you mean vanishing_gradient? {SHOWN}"),
    ),
    (
        {"xyz": {}},
        f"rules.xyz: no such rule {SHOWN}",
    ),
    (
        {"vanish": {}},
        f"rules.vanish: no such rule; did you mean vanishing_gradient? {SHOWN}",
    ),
    (
        {"vanishing_gradient": {"ration": 1e-4}},
        "rules.vanishing_gradient.ration: no such parameter; did you mean ratio, actions?",
    ),
    (
        {"nonfinite": {"zzz": 1}},
        (
            "rules.nonfinite.zzz: no such parameter; "
            "the parameters are every, severity, group, actions"
        ),
    ),
    (
        {"vanishing_gradient": {"ratio": "small"}},
        "rules.vanishing_gradient.ratio: must be a number, not 'small'",
    ),
    (
        {"nonfinite": {"every": True}},
        "rules.nonfinite.every: must be an integer, not True",
    ),
    ({"nonfinite": {"every": 2.5}}, "rules.nonfinite.every: must be an integer, not 2.5"),
    ({"nonfinite": {"every": 0}}, "rules.nonfinite: every = 0: must be at least 1 step"),
    (
        {"loss_not_decreasing": {"drop": 2}},
        "rules.loss_not_decreasing: drop = 2: must lie between 0 and 1",
    ),
    (
        {"overfitting": {"patience": 1}},
        "rules.overfitting: patience = 1: must be at least 2",
    ),
    (
        {"nonfinite": {"severity": "fatal"}},
        "rules.nonfinite.severity: must be one of info, warning, stop, not 'fatal'",
    ),
    ({"nonfinite": 3}, "rules.nonfinite: must be a table of parameters, not 3"),
]


@pytest.mark.parametrize(("table", "message"), TABLES)
def test_a_wrong_table_is_refused_by_name(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_from_table(table)
    assert str(caught.value) == message


def test_messages_start_with_the_location_of_the_table() -> None:
    with pytest.raises(ConfigError, match=r"^a\.toml: rules\.nonfinit: no such rule"):
        rules_from_table({"nonfinit": {}}, where="a.toml: rules")


def test_rules_get_their_parameters_and_severity() -> None:
    table = {
        "overfitting": {"ratio": 1, "severity": "stop", "group": "slow"},
        "nonfinite": {},
    }
    nonfinite, overfitting = rules_from_table(table)
    assert (nonfinite.name, nonfinite.params, nonfinite.severity) == (
        "nonfinite",
        {"every": 20},
        "stop",
    )
    assert (overfitting.params, overfitting.severity) == (
        {"ratio": 1, "patience": 5, "plateau": 10, "delta": 0.01},
        "stop",
    )
    assert RULES["overfitting"].severity == "warning"


def test_rules_are_in_a_strict_order() -> None:
    positions = [rule.position for rule in RULES.values()]
    assert positions[0] > 0
    assert all(first < second for first, second in itertools.pairwise(positions))


def test_a_former_name_sets_the_rule_that_has_replaced_it() -> None:
    table = {"feature_dominance": {"patience": 4, "share": 0.7}, "unused_features": {"share": 0.9}}
    (rule,) = rules_from_table(table)
    assert (rule.name, rule.params["patience"], rule.params["share"]) == (
        *("feature_dominance", 4),
        0.9,
    )
    (rule,) = rules_from_table({**table, "unused_features": {"severity": "stop"}})
    assert rule.severity == "info"
    (rule,) = rules_from_table({"unused_features": {"severity": "stop"}})
    assert rule.severity == "stop"
    assert find_rules("unused_features") == [RULES["feature_dominance"]]
    assert not RULES.keys() & {name for one in RULES.values() for name in one.former_names}


def test_names_of_the_predecessor_set_the_rules_that_follow_it() -> None:
    table: dict[str, dict[str, Any]] = {
        "dead_relu": {"layer": 0.7},
        "weight_update_ratio": {"patience": 9},
        "all_zero": {},
    }
    rules = {rule.name: rule.params for rule in rules_from_table(table)}
    rates = ["learning_rate_too_high", "learning_rate_too_low"]
    assert list(rules) == [*rates, "dying_relu", "no_signal"]
    assert rules["dying_relu"]["layer"] == 0.7
    assert [rules[name]["patience"] for name in rates] == [9, 9]
    for rule in RULES.values():
        assert all(rule in find_rules(name) for name in rule.predecessors)


def test_a_rule_that_is_a_command_now_is_named_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r"similar_across_runs.*vinedresser compare"):
        rules_from_table({"similar_across_runs": {"other": "runs/a"}})


@pytest.mark.parametrize("name", RULES)
def test_each_rule_is_described_with_its_parameters(name: str) -> None:
    kind = RULES[name]
    assert kind.name == name
    text = describe(kind)
    assert text.startswith(f"{name}(")
    parameters = kind().params
    # What holds in any training has no threshold.
    assert bool(parameters) is not issubclass(kind, Contract)
    for parameter, value in parameters.items():
        assert f"{parameter} = {value!r}" in text
        assert f"\n    {parameter}: " in text
