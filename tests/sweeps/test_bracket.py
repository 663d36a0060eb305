"""TPE with Hyperband, the pairing of BOHB: a model for each bracket."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial

from tests.sweeps.studies import SPACE
from vinedresser.sweeps.proposer import Proposer
from vinedresser.sweeps.pruners import make_pruner
from vinedresser.sweeps.samplers import BoundedTPESampler
from vinedresser.sweeps.tried import Tried


class Watching(BoundedTPESampler):
    """Notes which trials it sees when it proposes for a trial."""

    seen: dict[int, set[int]] = {}  # noqa: RUF012 (for all of its instances)

    def sample_relative(self, study: Any, trial: FrozenTrial, *rest: Any) -> Any:
        """See `optuna.samplers.BaseSampler`."""
        self.seen[trial.number] = {one.number for one in study.get_trials(deepcopy=False)}
        return super().sample_relative(study, trial, *rest)


def test_the_sampler_learns_from_the_trials_of_its_bracket() -> None:
    pruner = make_pruner("hyperband", 9, "sweep.pruner").make()
    assert isinstance(pruner, HyperbandPruner)
    sampler = Proposer(lambda seed: Watching(seed=seed, n_startup_trials=2), 0, SPACE, Tried(SPACE))
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    brackets: dict[int, int] = {}
    for number in range(30):
        trial = study.ask()
        SPACE.suggest(trial)
        (frozen,) = study.get_trials(deepcopy=False)[number:]
        brackets[number] = pruner._get_bracket_id(study, frozen)
        trial.report(float(number % 7), 9)
        study.tell(trial, float(number % 7))
    assert set(brackets.values()) == {0, 1, 2}
    assert len(Watching.seen) == 30
    for number, seen in Watching.seen.items():
        same = {one for one in range(number) if brackets[one] == brackets[number]}
        assert seen - {number} == same
