"""The study of a sweep: which configuration comes next, which trial is cut off, what came out.

This is the code that decides, in a flow as in a replay of recorded curves. Optuna proposes and
compares; who asks it is one process, the flow's: trainings know nothing of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from vinedresser.sweeps.journal import SweepJournal
from vinedresser.sweeps.peers import behind_sound_trials
from vinedresser.sweeps.pruners import make_pruner
from vinedresser.sweeps.samplers import make_sampler
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Proposal, Trial, TrialEnd

__all__ = ["Study"]

_STATES: dict[str, OptunaState] = {
    "finished": OptunaState.COMPLETE,
    "pruned": OptunaState.PRUNED,
    "stopped": OptunaState.PRUNED,
    "failed": OptunaState.FAIL,
}
_NAME = "sweep"
# Of fewer results nothing can be said.
_FEW = 4
# Optuna's words for what we keep with a trial.
_ENDING, _CHOSEN, _SUSPECTED = "ending", "parameters", "suspected"


class Study:
    """A sweep's memory and its decisions.

    A trial that is cut off is told to Optuna as pruned, with the last value that it has reported,
    whoever cut it off; one that reports no number is told without that value, so that nothing is
    compared with it and a sampler keeps away from it.

    Args:
        settings: how the sweep is done.
        space: where configurations come from.
        path: of the journal; None: nothing is kept, which is right for a replay.
        where: what to begin a message with, such as ``sweep.toml: sweep``.

    Attributes:
        settings: how the sweep is done.
        space: where configurations come from.
        ended: the trials that are over, in the order in which the study was told so; those of an
            earlier process first.

    Raises:
        ConfigError: a sampler or pruner has a setting that is not right.
        MissingDependency: a sampler needs a package that is not there.
        StillRunning: another process runs this sweep.
    """

    def __init__(
        self,
        settings: SweepTable,
        space: Space,
        path: Path | None = None,
        *,
        where: str = "sweep",
    ) -> None:
        # It warns of what a space with conditions, or of choices, brings with it.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.settings = settings
        self.space = space
        self._pruner = make_pruner(settings.pruner, settings.epochs, f"{where}.pruner")
        points = [
            space.point(point, f"{where}.points[{number}]")
            for number, point in enumerate(settings.points)
        ]
        if settings.sampler_name == "grid":
            points += space.grid()
        sampler = make_sampler(
            settings.sampler,
            seed=settings.seed,
            objectives=len(settings.goals),
            where=f"{where}.sampler",
        )
        self._journal = SweepJournal(path) if path is not None else None
        self._study = optuna.create_study(
            storage=self._storage(),
            sampler=sampler,
            pruner=self._pruner.make(),
            study_name=_NAME,
            directions=[goal.direction for goal in settings.goals],
            load_if_exists=True,
        )
        self._running: dict[int, optuna.Trial] = {}
        # Those that are to end, and may still report a while.
        self._cut: set[int] = set()
        self.ended = [one for one in self.trials() if one.ending.state != "running"]
        if not self._study.get_trials(deepcopy=False):
            for point in points:
                self._study.enqueue_trial(point)

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()

    def ask(self) -> Proposal | None:
        """Return the next configuration; None when none is left within the budget of trials."""
        waiting = self._study.get_trials(deepcopy=False, states=(OptunaState.WAITING,))
        begun = len(self._study.get_trials(deepcopy=False)) - len(waiting)
        if self.settings.trials is not None and begun >= self.settings.trials:
            return None
        if self.settings.sampler_name == "grid" and not waiting:
            return None
        return self._choose(self._study.ask())

    def again(self) -> list[Proposal]:
        """Return the trials that were running when the process that ran the sweep ended."""
        found = self._study.get_trials(deepcopy=False, states=(OptunaState.RUNNING,))
        # One that was killed while it chose has the rest of its values suggested now.
        return [self._choose(optuna.Trial(self._study, one._trial_id)) for one in found]

    @property
    def comparing(self) -> bool:
        """Whether trials are compared with one another at any epoch."""
        return self._pruner.comparing and len(self.settings.goals) == 1

    def compares(self, epoch: int) -> bool:
        """Say whether a trial that a rule suspects is compared with others at an epoch (from 1)."""
        return self.comparing and self._pruner.compares(epoch)

    def report(
        self, number: int, epoch: int, value: float, suspicion: TrialEnd | None = None
    ) -> TrialEnd | None:
        """Take in a value of the first objective, and say whether the trial is to end.

        One that a rule suspects is compared with the sound ones first (`behind_sound_trials`), and
        when it is behind them its value is none that others are compared with: they compete for
        the places that are left among themselves.

        Args:
            number: of the trial.
            epoch: from 1; one that is not above those reported before changes nothing.
            value: that was reported.
            suspicion: how a rule would end the trial if the outcome agreed.

        Returns:
            How it is to end; None: it goes on, or was to end before. What one that is to end still
            reports is kept, and nobody is compared with it.
        """
        trial = self._running[number]
        reported = self._frozen(number).intermediate_values
        if epoch <= max(reported, default=0):
            return None
        if not math.isfinite(value):
            metric = self.settings.goals[0].metric
            return TrialEnd("stopped", f"{metric} is {value} at epoch {epoch}", fault="nonfinite")
        if len(self.settings.goals) > 1:
            # Optuna keeps no course of several objectives, and compares no trials by them.
            return None
        trial.report(value, epoch)
        if number in self._cut:
            return None
        ending = self._compared(trial, epoch, value, suspicion)
        if ending is not None:
            self._cut.add(number)
        return ending

    def tell(self, number: int, ending: TrialEnd, result: Sequence[float] = ()) -> Trial:
        """Take in the end of a trial.

        Args:
            number: of the trial.
            ending: how it ended.
            result: the value of each objective, of one that finished.

        Returns:
            The trial. One that finished without a number for each objective is stopped.
        """
        trial = self._running[number]
        if ending.state == "finished" and not self._complete(result):
            said = ", ".join(goal.metric for goal in self.settings.goals)
            ending = TrialEnd("stopped", f"it ended without a number for {said}", fault="nonfinite")
        attributes = {"state": ending.state, "reason": ending.reason}
        attributes |= {"rule": ending.rule, "fault": ending.fault, "remedy": ending.remedy}
        trial.set_user_attr(_ENDING, attributes)
        values = list(result) if ending.state == "finished" else None
        self._study.tell(trial, values=values, state=_STATES[ending.state])
        del self._running[number]
        self._cut.discard(number)
        self.ended.append(self.trial(number))
        return self.ended[-1]

    def trial(self, number: int) -> Trial:
        """Return what is known of a trial."""
        return _trial(self._frozen(number))

    def running(self) -> list[Trial]:
        """Return what is known of the trials that have begun and are not over, by number."""
        return [self.trial(number) for number in sorted(self._running)]

    def trials(self) -> list[Trial]:
        """Return what is known of all trials that have begun, by number."""
        found = self._study.get_trials(deepcopy=False)
        return [_trial(one) for one in found if one.state is not OptunaState.WAITING]

    def best(self) -> list[Trial]:
        """Return the best of the trials that finished, of equal ones the first.

        With several objectives these are the Pareto front.
        """
        if not self._study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,)):
            return []
        if len(self.settings.goals) > 1:
            return [_trial(one) for one in self._study.best_trials]
        return [_trial(self._study.best_trial)]

    def importance(self) -> dict[str, float]:
        """Return how much each hyperparameter matters for the first objective, from 0 to 1.

        PED-ANOVA (Watanabe et al., IJCAI 2023), of the trials that finished; empty where they are
        too few, or all alike.
        """
        done = self._study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,))
        if len({one.values[0] for one in done}) < _FEW or len(self.settings.goals) > 1:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            evaluator = PedAnovaImportanceEvaluator()
        found = get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _choose(self, trial: optuna.Trial) -> Proposal:
        """Have the values of a trial suggested, unless they were before."""
        parameters = trial.user_attrs.get(_CHOSEN)
        if parameters is None:
            parameters = self.space.suggest(trial)
            # As they were given, in the order of the space: Optuna's own are sorted by nothing.
            trial.set_user_attr(_CHOSEN, parameters)
        self._running[trial.number] = trial
        return self._proposal(trial.number, parameters)

    def _compared(
        self, trial: optuna.Trial, epoch: int, value: float, suspicion: TrialEnd | None
    ) -> TrialEnd | None:
        """Return how a trial is to end by comparison with others; None: it goes on."""
        if suspicion is not None and self.compares(epoch):
            if _SUSPECTED not in self._frozen(trial.number).user_attrs:
                trial.set_user_attr(_SUSPECTED, suspicion.rule)
            ending = behind_sound_trials(
                suspicion,
                epoch,
                value,
                sound=self._sound(epoch),
                goal=self.settings.goals[0],
            )
            if ending is not None:
                # Pruners compare with those that were asked about, below.
                return ending
        return TrialEnd("pruned", self._pruner.why(epoch)) if trial.should_prune() else None

    def _proposal(self, number: int, parameters: dict[str, Any]) -> Proposal:
        seeds = self.settings.seeds
        return Proposal(number, parameters, seeds[number % len(seeds)] if seeds else None)

    def _complete(self, result: Sequence[float]) -> bool:
        return len(result) == len(self.settings.goals) and all(map(math.isfinite, result))

    def _sound(self, epoch: int) -> list[tuple[float, float]]:
        """Return, of the trials that no rule has suspected or stopped, two of their values.

        The first one, and the last up to an epoch.
        """
        found = []
        for trial in self._study.get_trials(deepcopy=False):
            if _SUSPECTED in trial.user_attrs:
                continue
            if trial.user_attrs.get(_ENDING, {}).get("state") == "stopped":
                continue
            values = trial.intermediate_values
            reported = [one for one in values if one <= epoch]
            if reported:
                found.append((values[min(reported)], values[max(reported)]))
        return found

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _storage(self) -> BaseStorage:
        return InMemoryStorage() if self._journal is None else JournalStorage(self._journal)


def _trial(found: FrozenTrial) -> Trial:
    finished = found.state is OptunaState.COMPLETE
    ending = found.user_attrs.get(_ENDING)
    return Trial(
        number=found.number,
        parameters=found.user_attrs.get(_CHOSEN) or dict(found.params),
        values=dict(found.intermediate_values),
        result=tuple(found.values) if finished and found.values else (),
        ending=TrialEnd(**ending) if ending and found.state.is_finished() else TrialEnd("running"),
    )
