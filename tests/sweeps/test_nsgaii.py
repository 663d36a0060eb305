"""NSGA-II in a sweep proposes what Optuna's does, however often the sweep is resumed."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.sweeps.studies import FINISHED, begin, study
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study

NAMES = ("a", "b", "c", "d", "e")
SPACE = Space.parse({name: {"float": [0.0, 1.0]} for name in NAMES}, "space")
GOALS = [
    {"metric": "accuracy", "direction": "maximize"},
    {"metric": "latency", "direction": "minimize"},
]
POPULATION, TRIALS, SEED = 6, 30, 3
POINTS = [dict.fromkeys(NAMES, 0.25), dict.fromkeys(NAMES, 0.5)]


def results(parameters: Any) -> list[float]:
    """Return two objectives that conflict."""
    a, b, c, d, e = (float(parameters[name]) for name in NAMES)
    return [1 - (a - 0.2) ** 2 - (b - 0.7) ** 2 - c**2, (a - 0.9) ** 2 + (d + e) / 5]


def size(parameters: Any) -> float:
    """Return what a constraint bounds."""
    return sum(float(parameters[name]) for name in NAMES)


def directly(points: list[dict[str, float]], limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the configurations that Optuna's sampler proposes, with the seeds of a sweep."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direct = optuna.create_study(directions=["maximize", "minimize"])
    for point in points:
        direct.enqueue_trial(point)
    for number in range(TRIALS):
        seed = zlib.crc32(f"{SEED} {number}".encode())
        direct.sampler = optuna.samplers.NSGAIISampler(seed=seed, population_size=POPULATION)
        trial = direct.ask()
        for name in NAMES:
            trial.suggest_float(name, 0.0, 1.0)
        for limit in limits:
            trial.set_constraint("size", size(trial.params) - limit["max"])
        direct.tell(trial, results(trial.params))
    return [trial.params for trial in direct.trials]


def made(path: Path | None = None, **more: Any) -> Study:
    sampler = {"name": "nsgaii", "population": POPULATION}
    settings = {"metric": "", "objectives": GOALS, "pruner": "none", "trials": TRIALS, **more}
    return study(path, space=SPACE, sampler=sampler, seed=SEED, **settings)


def run(sweep: Study) -> list[dict[str, Any]]:
    """Run all trials of a sweep; return their configurations."""
    while (proposal := sweep.ask()) is not None:
        bounded = [size(proposal.parameters)] * len(sweep.settings.constraints)
        sweep.tell(proposal.number, FINISHED, results(proposal.parameters), bounded)
    return [dict(trial.parameters) for trial in sweep.trials()]


# About half of the random configurations break it.
LIMITS = [{"metric": "size", "max": 2.5}]


@pytest.mark.parametrize(("points", "limits"), [([], []), (POINTS, []), ([], LIMITS)])
def test_a_sweep_tries_what_optuna_tries(
    points: list[dict[str, float]], limits: list[dict[str, Any]]
) -> None:
    expected = directly(points, limits)
    tried = run(made(points=points, constraints=limits))
    # Of a configuration that Optuna proposes again, the sweep tries another one instead.
    first = next((n for n, one in enumerate(expected) if one in expected[:n]), TRIALS)
    assert first >= 3 * POPULATION
    assert tried[:first] == expected[:first]
    assert len({tuple(one.values()) for one in tried}) == TRIALS


@pytest.mark.thorough
def test_a_sweep_that_is_resumed_after_each_trial_tries_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    for number in range(TRIALS):
        sweep = made(path)
        # A process that was killed leaves a trial that has begun.
        proposal = begin(sweep)
        sweep.close()
        sweep = made(path)
        (again,) = sweep.again()
        assert (again.number, again.parameters) == (number, proposal.parameters)
        sweep.tell(number, FINISHED, results(again.parameters))
        sweep.close()
    resumed = made(path)
    assert run(resumed) == run(made())
    front = {trial.number for trial in resumed.best()}
    resumed.close()
    assert len(front) > 2


def test_the_front_is_what_no_trial_dominates() -> None:
    sweep = made()
    run(sweep)
    done = [trial.result for trial in sweep.trials()]
    front = {
        one
        for one in done
        if not any(other[0] >= one[0] and other[1] <= one[1] and other != one for other in done)
    }
    assert {trial.result for trial in sweep.best()} == front
