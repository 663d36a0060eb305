"""Trials that break a constraint are infeasible: never the best, and told to the sampler."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.sweeps.studies import FINISHED, begin, study
from vinedresser.errors import ConfigError
from vinedresser.sweeps.enough import enough
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study

SPACE = Space.parse({"x": {"float": [0.0, 1.0]}, "y": {"float": [0.0, 1.0]}}, "space")
LIMITS = [{"metric": "latency", "max": 1.0}]
SEED, TRIALS, STARTUP = 5, 25, 6


def latency(x: float, y: float) -> float:
    return 2 * x + y


def made(path: Path | None = None, **more: Any) -> Study:
    sampler = {"name": "tpe", "startup": STARTUP}
    settings = {"constraints": LIMITS, "trials": TRIALS, "pruner": "none", **more}
    return study(path, space=SPACE, sampler=sampler, seed=SEED, **settings)


def run(sweep: Study) -> None:
    while (proposal := sweep.ask()) is not None:
        x, y = (float(proposal.parameters[name]) for name in "xy")
        sweep.tell(proposal.number, FINISHED, [x + y], [latency(x, y)])


def test_a_sweep_with_constraints_tries_what_optuna_tries() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direct = optuna.create_study(direction="maximize")
    for number in range(TRIALS):
        seed = zlib.crc32(f"{SEED} {number}".encode())
        direct.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        trial = direct.ask()
        x, y = (trial.suggest_float(name, 0.0, 1.0) for name in "xy")
        trial.set_constraint("latency <= 1", latency(x, y) - 1)
        direct.tell(trial, x + y)
    sweep = made()
    run(sweep)
    assert [one.parameters for one in sweep.trials()] == [one.params for one in direct.trials]
    (best,) = sweep.best()
    assert (best.number, best.result[0]) == (direct.best_trial.number, direct.best_value)
    assert latency(**best.parameters) <= 1  # type: ignore[arg-type]
    # Without a constraint, the best has a larger value.
    assert max(trial.result[0] for trial in sweep.trials()) > best.result[0]


def test_an_infeasible_trial_says_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    limits = [*LIMITS, {"metric": "recall", "min": 0.8}]
    sweep = made(path, constraints=limits)
    sweep.tell(begin(sweep).number, FINISHED, [0.9], [1.5, 0.85])
    assert sweep.best() == []
    sweep.tell(begin(sweep).number, FINISHED, [0.5], [1.0, 0.8])
    sweep.close()
    resumed = made(path, constraints=limits)
    first, second = resumed.trials()
    assert first.why == "infeasible: breaks latency <= 1 by 0.5"
    assert second.feasible
    assert second.why == ""
    assert [one.number for one in resumed.best()] == [1]
    resumed.close()


def test_a_trial_that_was_killed_while_it_was_told_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    sweep = made(path)
    begin(sweep)
    # The last line of the journal is the end of the trial.
    sweep.tell(0, FINISHED, [0.9], [1.5])
    sweep.close()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    resumed = made(path)
    (again,) = resumed.again()
    told = resumed.tell(again.number, FINISHED, [0.9], [1.5])
    assert told.excess == {"latency <= 1": 0.5}
    resumed.close()


def test_infeasible_trials_reach_no_target_and_improve_nothing() -> None:
    sweep = made(target=0.8, plateau=2)
    for value, bound in ((0.5, 0.5), (0.9, 2.0), (0.95, 3.0)):
        sweep.tell(begin(sweep).number, FINISHED, [value], [bound])
    said = enough(sweep.settings, sweep.ended)
    assert said == "2 trials in a row have not improved accuracy, since trial-0000"


def test_the_front_has_feasible_trials_only() -> None:
    goals = [{"metric": one, "direction": "maximize"} for one in ("accuracy", "speed")]
    sweep = made(metric="", objectives=goals)
    for result, bound in (((0.5, 0.5), 0.5), ((0.9, 0.9), 2.0), ((0.4, 0.6), 1.0)):
        sweep.tell(begin(sweep).number, FINISHED, result, [bound])
    assert sorted(one.number for one in sweep.best()) == [0, 2]


def test_a_value_that_is_not_finite_stops_the_trial() -> None:
    sweep = made()
    told = sweep.tell(begin(sweep).number, FINISHED, [0.5], [float("nan")])
    assert (told.ending.state, told.ending.reason) == (
        "stopped",
        "no finite value of latency at its end",
    )


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ([{"metric": "latency"}], "give either max or min"),
        ([{"metric": "latency", "max": 1, "min": 0}], "give either max or min"),
        ([{"metric": "latency", "max": float("inf")}], "must be finite"),
        ([{"metric": "latency", "max": 1, "mod": "train"}], r"constraints\.0\.mod: no such key"),
        ([{"max": 1}], "metric"),
        ([*LIMITS, *LIMITS], "constraints: latency <= 1 is given twice"),
    ],
)
def test_an_invalid_constraint_is_named(constraints: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(constraints=constraints)


def test_constraints_of_one_metric_differ_in_value_and_mode() -> None:
    limits = [
        {"metric": "latency", "max": 1234567.0},
        {"metric": "latency", "max": 1234568.0},
        {"metric": "latency", "max": 1234567.0, "value": "mean"},
        {"metric": "latency", "max": 1234567.0, "value": "mean", "mode": "train"},
    ]
    sweep = made(constraints=limits)
    told = sweep.tell(begin(sweep).number, FINISHED, [0.9], [0.0, 0.0, 1234569.0, 0.0])
    assert told.why == "infeasible: breaks latency (mean) <= 1234567 by 2"
    assert list(told.excess) == [
        "latency <= 1234567",
        "latency <= 1234568",
        "latency (mean) <= 1234567",
        "latency (mean, train) <= 1234567",
    ]


def test_a_plateau_says_that_no_trial_keeps_to_the_constraints() -> None:
    sweep = made(plateau=2)
    for _ in range(2):
        sweep.tell(begin(sweep).number, FINISHED, [0.9], [2.0])
    said = enough(sweep.settings, sweep.ended)
    assert said == "none of 2 trials has finished within the constraints"


def test_cma_es_takes_no_constraints() -> None:
    with pytest.raises(ConfigError, match="constraints: CMA-ES does not support them"):
        study(space=SPACE, sampler="cmaes", constraints=LIMITS)
