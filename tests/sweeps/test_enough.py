"""A sweep ends at its target, or when its results have stopped improving."""

from __future__ import annotations

from typing import Any

import pytest

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.sweeps.enough import enough
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.trial import Trial, TrialEnd

ONE = {"metric": "accuracy", "direction": "maximize", "trials": 100}
TWO = {
    "objectives": [
        {"metric": "accuracy", "direction": "maximize"},
        {"metric": "size", "direction": "minimize"},
    ],
    "pruner": "none",
    "trials": 100,
}


def settings(**more: Any) -> SweepTable:
    return build(SweepTable, ONE | more, "sweep.toml: sweep")


def finished(*results: float | tuple[float, ...] | str) -> list[Trial]:
    """Return trials with these results, or that ended otherwise."""
    return [
        Trial(number, {}, ending=TrialEnd(one))  # type: ignore[arg-type]
        if isinstance(one, str)
        else Trial(
            number,
            {},
            result=one if isinstance(one, tuple) else (one,),
            ending=TrialEnd("finished"),
        )
        for number, one in enumerate(results)
    ]


def test_a_target_ends_a_sweep_in_its_direction() -> None:
    trials = finished(0.5, "pruned", 0.9, 0.95)
    said = enough(settings(target=0.9), trials)
    assert said == "trial-0002 has reached the target of 0.9: accuracy 0.9"
    assert enough(settings(target=0.96), trials) == ""
    assert enough(settings(target=0.5, direction="minimize"), trials).startswith("trial-0000 has")
    # A value of a trial that has not finished is no result.
    assert enough(settings(target=0.4), finished("pruned", "stopped", "failed")) == ""


def test_a_plateau_ends_a_sweep() -> None:
    trials = finished(0.5, 0.8, "pruned", 0.7, "stopped", 0.805)
    said = enough(settings(plateau={"trials": 4, "min_delta": 0.01}), trials)
    assert (
        said == "4 trials in a row have not improved accuracy by more than 0.01, since trial-0001"
    )
    # Without the amount, the last one is an improvement.
    assert enough(settings(plateau=4), trials) == ""
    assert enough(settings(plateau=3), trials[:5]).endswith("improved accuracy, since trial-0001")
    assert enough(settings(plateau=4), trials[:5]) == ""


def test_failed_trials_are_no_plateau_and_the_order_of_ends_does_not_matter() -> None:
    trials = finished(0.5, "failed", "failed", "failed", 0.4)
    assert enough(settings(plateau=2), trials) == ""
    assert enough(settings(plateau=1), trials) == enough(settings(plateau=1), trials[::-1]) != ""
    assert enough(settings(plateau=2), finished("pruned", "stopped")) == (
        "none of 2 trials has finished"
    )


def test_with_several_objectives_a_plateau_is_one_of_the_pareto_front() -> None:
    table = build(SweepTable, TWO | {"plateau": 2}, "sweep")
    improving = finished((0.5, 10.0), (0.6, 20.0), (0.4, 5.0), (0.55, 12.0))
    assert enough(table, improving) == ""
    behind = finished((0.5, 10.0), (0.5, 10.0), (0.4, 11.0))
    assert enough(table, behind).endswith("not improved the Pareto front, since trial-0000")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (ONE | {"target": float("inf")}, "sweep: target: must be a finite number"),
        (ONE | {"plateau": 0}, "sweep.plateau"),
        (ONE | {"plateau": True}, "sweep.plateau: must not be true"),
        (ONE | {"trials": True}, "sweep.trials: must not be true"),
        (ONE | {"again": [True, 2]}, "sweep.again: must not be true"),
        (ONE | {"wall_time": True}, "sweep.wall_time: must not be true"),
        (ONE | {"plateau": {"trials": 3, "min_dleta": 0.1}}, "did you mean min_delta"),
        (
            ONE | {"plateau": {"trials": 3, "min_delta": -0.1}},
            "plateau.min_delta: must be at least 0",
        ),
        (TWO | {"target": 0.5}, "target: not supported with several objectives"),
        (TWO | {"plateau": {"trials": 3, "min_delta": 0.1}}, "min_delta: not supported with"),
        ({"metric": "loss"}, "set trials, total_epochs, wall_time or plateau"),
    ],
)
def test_invalid_ends_are_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(SweepTable, table, "sweep.toml: sweep")


def test_a_plateau_alone_bounds_a_sweep() -> None:
    assert build(SweepTable, {"metric": "loss", "plateau": 5}, "sweep").patience is not None
