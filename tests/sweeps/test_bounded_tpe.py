"""The bounded TPE sampler: Optuna's proposals up to its bound, fewer trials beyond."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial

from vinedresser.sweeps import samplers
from vinedresser.sweeps.samplers import BoundedTPESampler

SPACE: dict[str, BaseDistribution] = {
    "x": FloatDistribution(0.0, 1.0),
    "y": FloatDistribution(-1.0, 1.0),
}
BOUND = 60


def study(sampler: BaseSampler, directions: Sequence[str] = ("minimize",)) -> optuna.Study:
    """Return a study with 150 trials that were not proposed by the sampler."""
    made = optuna.create_study(sampler=sampler, directions=list(directions))  # type: ignore[arg-type]
    chosen = optuna.samplers.RandomSampler(seed=1)
    for number in range(150):
        parameters = {
            name: chosen.sample_independent(made, None, name, kind)  # type: ignore[arg-type]
            for name, kind in SPACE.items()
        }
        # The first trials are the best ones of the first objective.
        values = [float(number) + parameters["x"], parameters["y"]][: len(directions)]
        made.add_trial(
            optuna.trial.create_trial(params=parameters, distributions=SPACE, values=values)
        )
    return made


def proposals(sampler: BaseSampler) -> list[dict[str, float]]:
    made = study(sampler)
    return [made.ask(SPACE).params for _ in range(3)]


def test_proposals_are_those_of_optuna_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proposals(BoundedTPESampler(seed=3)) == proposals(TPESampler(seed=3))
    monkeypatch.setattr(samplers, "_MOST", BOUND)
    assert proposals(BoundedTPESampler(seed=3)) != proposals(TPESampler(seed=3))


@pytest.mark.parametrize("directions", [("minimize",), ("maximize",), ("minimize", "maximize")])
def test_beyond_the_bound_the_best_and_the_newest_are_seen(
    directions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "_MOST", BOUND)
    seen: list[list[FrozenTrial]] = []
    original = samplers._bounded

    def noted(
        trials: list[FrozenTrial],
        finished: list[FrozenTrial],
        all_directions: list[optuna.study.StudyDirection],
    ) -> object:
        seen.append(original(trials, finished, all_directions))
        return seen[-1]

    monkeypatch.setattr(samplers, "_bounded", noted)
    made = study(BoundedTPESampler(seed=3), directions)
    made.ask(SPACE)
    assert seen
    for trials in seen:
        numbers = [trial.number for trial in trials]
        assert len(numbers) == BOUND
        assert numbers == sorted(set(numbers))
        for objective, direction in enumerate(directions):
            ranked = sorted(
                made.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)),
                key=lambda trial: trial.values[objective],
                reverse=direction == "maximize",
            )
            assert {one.number for one in ranked[:25]} <= set(numbers)
        # The running trial, 150, counts too.
        newest = set(range(151 - (BOUND - 25 * len(directions)), 150))
        assert newest <= set(numbers)
