"""ASHA decides as Optuna's own pruner does, and as before after its process ended."""

from __future__ import annotations

import random
from pathlib import Path

import optuna
import pytest
from optuna.pruners import BasePruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from vinedresser.sweeps.pruners import RungPruner
from vinedresser.sweeps.settings import Direction


def decisions(pruner: BasePruner, direction: Direction, seed: int, trials: int = 120) -> list[bool]:
    """Return the decisions on trials of 30 epochs, three of which run at a time."""
    study = optuna.create_study(direction=direction, sampler=RandomSampler(seed=0), pruner=pruner)
    draw = random.Random(seed)
    running = {study.ask(): 0 for _ in range(3)}
    found = []
    while len(study.get_trials(deepcopy=False)) < trials:
        trial = draw.choice(list(running))
        # Some epochs report no value, and equal values occur.
        running[trial] += draw.choice((1, 1, 1, 4))
        trial.report(draw.randrange(40) / 40, running[trial])
        found.append(trial.should_prune())
        if found[-1] or running[trial] >= 30:
            state = optuna.trial.TrialState.PRUNED if found[-1] else None
            study.tell(trial, None if state else 0.0, state=state)
            del running[trial]
            running[study.ask()] = 0
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(("grace", "eta"), [(1, 2), (1, 3), (2, 3), (5, 4)])
def test_the_decisions_are_those_of_optuna(direction: Direction, grace: int, eta: int) -> None:
    for seed in range(3):
        expected = decisions(SuccessiveHalvingPruner(grace, eta), direction, seed)
        assert decisions(RungPruner(grace, eta), direction, seed) == expected
        assert {True, False} == set(expected)


def test_a_study_that_goes_on_knows_the_values_of_earlier_trials(tmp_path: Path) -> None:
    def study(name: str) -> optuna.Study:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(tmp_path / name))),
            study_name="s",
            sampler=RandomSampler(seed=0),
            pruner=RungPruner(1, 3),
            load_if_exists=True,
        )

    def decision(one: optuna.Study, value: float) -> bool:
        trial = one.ask()
        trial.report(value, 3)
        return trial.should_prune()

    draw = random.Random(0)
    values = [draw.random() for _ in range(20)]
    whole = study("whole")
    expected = [decision(whole, value) for value in values]
    assert [decision(study("parts"), value) for value in values] == expected
    assert {True, False} == set(expected)
