"""When a pruning ends, and which round is its result."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.rounds.ending import choose, ending
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.settings import PruneTable

TABLE = PruneTable(model="a:b", example="a:b", train="a:b", evaluate="a:b", rounds=5)


def rounds(*figures: float, share: float = 0.8) -> list[RoundRecord]:
    """Return rounds with these figures, of which each has a share of the last one's costs."""
    return [
        RoundRecord(
            number=number,
            run=f"round-{number}",
            removed=10 if number else 0,
            parameters=round(1000 * share**number),
            macs=round(5000 * share**number),
            size=round(4000 * share**number),
            # The machine is twice as slow in later rounds, for both models.
            latency=0.01 * (1 + number) * (1 - 0.1 * number),
            original_latency=0.01 * (1 + number),
            before=figure / 2,
            figure=figure,
        )
        for number, figure in enumerate(figures)
    ]


def table(**settings: Any) -> PruneTable:
    return dataclasses.replace(TABLE, **settings)


@pytest.mark.parametrize(
    ("settings", "figures", "rule"),
    [
        ({}, (0.9,), None),
        ({}, (0.9, 0.1), None),
        ({}, (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), "rounds"),
        ({"max_drop": 0.1}, (0.9, 0.8), None),
        ({"max_drop": 0.1}, (0.9, 0.79), "accuracy_drop"),
        ({"max_drop": 0.0}, (0.9, 0.9), None),
        ({"max_drop": 0.1}, (-2.0, -2.05), None),
        ({"max_drop": 0.1}, (-2.0, -2.2), "accuracy_drop"),
        ({"max_round_drop": 0.05}, (0.9, 0.85, 0.8), None),
        ({"max_round_drop": 0.05}, (0.9, 0.85, 0.79), "accuracy_drop"),
        ({"parameters": "80%"}, (0.9, 0.9), "target_reached"),
        ({"parameters": 799}, (0.9, 0.9), None),
        ({"parameters": "80%", "macs": 3000}, (0.9, 0.9), None),
        ({"parameters": "80%", "macs": 4000}, (0.9, 0.9), "target_reached"),
        ({"latency": "85%"}, (0.9, 0.9), None),
        ({"latency": "81%"}, (0.9, 0.9, 0.9), "target_reached"),
        ({"size": 3200}, (0.9, 0.9), "target_reached"),
        # What costs too much accuracy has not reached the target.
        ({"parameters": "80%", "max_drop": 0.1}, (0.9, 0.7), "accuracy_drop"),
    ],
)
def test_the_end(settings: dict[str, Any], figures: tuple[float, ...], rule: str | None) -> None:
    found = ending(rounds(*figures), table(**settings))
    assert (found.rule if found is not None else None) == rule


@pytest.mark.parametrize(
    ("settings", "figures", "best", "why"),
    [
        ({}, (0.9,), 0, "no round was completed"),
        ({}, (0.9, 0.95, 0.5), 2, "64 % of its parameters"),
        ({"max_drop": 0.1}, (0.9, 0.95, 0.5), 1, "the smallest model of the 1 within the limits"),
        (
            {"max_drop": 0.1},
            (0.9, 0.2),
            0,
            "no round is within the limits; this is the unpruned model",
        ),
        ({"max_drop": 0.1}, (0.9, 0.7, 0.9), 2, "0.9 against 0.9 unpruned"),
        (
            {"macs": "50%"},
            (0.9, 0.9, 0.9),
            2,
            "64 % of its macs; not reached: 50 % of its macs, by the end of round 2",
        ),
        (
            {"macs": "50%", "parameters": 700, "max_drop": 0.1},
            (0.9, 0.9, 0.7),
            1,
            (
                "80 % of its parameters; not reached: 70 % of its parameters and 50 % of its macs, "
                "within the limits: round 2 (64 % of its parameters, 64 % of its macs): 0.7, 0.9 "
                "unpruned; max_drop is 0.1"
            ),
        ),
        (
            {"latency": "90%", "max_round_drop": 0.1},
            (0.9, 0.7),
            0,
            (
                "this is the unpruned model; not reached: 90 % of its latency, within the limits: "
                "round 1 (90 % of its latency): 0.7, 0.9 before; max_round_drop is 0.1"
            ),
        ),
        ({"latency": "90%"}, (0.9, 0.9, 0.9), 2, "80 % of its latency"),
    ],
)
def test_the_result(
    settings: dict[str, Any], figures: tuple[float, ...], best: int, why: str
) -> None:
    found = choose(rounds(*figures), table(**settings))
    assert found is not None
    assert found.round == best
    assert why in found.why


def with_latencies(first: float, second: float, **bounds: Any) -> list[RoundRecord]:
    """Return rounds 0 and 1; the unpruned model beside itself, and the pruned one beside it."""
    zero, one = rounds(0.9, 0.9)
    zero = dataclasses.replace(zero, latency=first, original_latency=1.0)
    return [zero, dataclasses.replace(one, latency=second, original_latency=1.0, **bounds)]


def test_the_noise_of_round_0_does_not_count() -> None:
    """Each round is measured beside the unpruned model, and not on the occasion of round 0."""
    found = with_latencies(150.0, 1.81, latency_low=1.8, latency_high=1.82)
    assert found[1].costs["latency"] == 1.81
    assert ending(found, table(latency="50%", rounds=1)) == ("rounds", "all 1 rounds are done")
    chosen = choose(found, table(latency="50%"))
    assert chosen is not None
    assert chosen.round == 0


def test_a_latency_that_cannot_be_told_reaches_no_target() -> None:
    clear = with_latencies(1.0, 0.4, latency_low=0.39, latency_high=0.41)
    wide = with_latencies(1.0, 0.4, latency_low=0.1, latency_high=0.9)
    reached = ending(clear, table(latency="50%"))
    assert reached == ("target_reached", "round 1: 40 % (39 to 41 %) of its latency")
    assert ending(wide, table(latency="50%")) is None
    chosen = choose(wide, table(latency="50%"))
    assert chosen is not None
    assert re.search(r"cannot tell \(10 to 90 %\).*; not reached: 50 % .*latency", chosen.why)


def test_without_a_round_there_is_no_result() -> None:
    assert choose([], TABLE) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"parameters": 0},
        {"latency": float("nan")},
        {"number": -1},
        {"left": {"conv": "many"}},
        {"latency_low": 0.0},
        {"notes": [1]},
    ],
)
def test_a_damaged_record_is_refused(damage: dict[str, Any]) -> None:
    (record,) = rounds(0.9)
    with pytest.raises((TypeError, ValueError)):
        RoundRecord.from_json(record.to_json() | damage)


def test_a_damaged_result_is_refused() -> None:
    """It says which model is loaded; a record of an earlier version has no checksum."""
    document = ResultRecord(1, "the best").to_json()
    assert ResultRecord.from_json(document) == ResultRecord(1, "the best")
    with pytest.raises(ValueError, match="damaged: its checksum"):
        ResultRecord.from_json(document | {"round": 3})
    assert ResultRecord.from_json({"round": 3, "why": ""}) == ResultRecord(3, "")
