"""The study of a sweep: proposes configurations, ends trials early, and ranks results.

The same code decides in a flow and in a replay of recorded curves. Only the process of the flow
uses Optuna; trainings never do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from vinedresser.sweeps.journal import SweepJournal, SweepStorage
from vinedresser.sweeps.peers import behind_sound_trials
from vinedresser.sweeps.pruners import make_pruner
from vinedresser.sweeps.samplers import make_sampler
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import LEAST_RESULTS, Proposal, Trial, TrialEnd

_STATES: dict[str, OptunaState] = {
    "finished": OptunaState.COMPLETE,
    "pruned": OptunaState.PRUNED,
    "stopped": OptunaState.PRUNED,
    "failed": OptunaState.FAIL,
}
_NAME = "sweep"
# Keys of a trial's user attributes in Optuna.
_ENDING, _CHOSEN, _SUSPECTED = "ending", "parameters", "suspected"
# And the beginning of those of its values with several objectives, before the number of the epoch.
_EPOCH = "epoch "


class Study:
    """The state of a sweep and its decisions.

    Every trial that is ended early is reported to Optuna as pruned, with its last value. A value
    that is not finite is not reported, so no trial is compared with it and samplers avoid it.

    Args:
        settings: settings of the sweep.
        space: the search space.
        path: path of the journal; None: keep the study in memory, as for a replay.
        where: prefix of messages, such as ``sweep.toml: sweep``.

    Attributes:
        settings: settings of the sweep.
        space: the search space.
        ended: the trials that have ended, in order; those of an earlier process come first.

    Raises:
        ConfigError: an invalid setting of the sampler or pruner.
        MissingDependency: a package that the sampler needs is not installed.
        StillRunning: another process is running this sweep.
    """

    def __init__(
        self, settings: SweepTable, space: Space, path: Path | None = None, *, where: str = "sweep"
    ) -> None:
        # Optuna warns about spaces with conditions or choices.
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
            storage=SweepStorage(self._journal) if self._journal else InMemoryStorage(),
            sampler=sampler,
            pruner=self._pruner.make(),
            study_name=_NAME,
            directions=[goal.direction for goal in settings.goals],
            load_if_exists=True,
        )
        self._running: dict[int, optuna.Trial] = {}
        # Trials that were told to end: they may still report for a while.
        self._cut: set[int] = set()
        self.ended = [one for one in self.trials() if one.ending.state != "running"]
        found = self._found()
        if not found:
            for point in points:
                self._study.enqueue_trial(point)
        waiting = sum(one.state is OptunaState.WAITING for one in found)
        self._begun = len(found) - waiting
        self._waiting = waiting if found else len(points)

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close()

    def ask(self) -> Proposal | None:
        """Return the next configuration; None if the budget of trials or the grid is exhausted."""
        # Counted, since asking Optuna takes longer the more trials there are.
        if self.settings.trials is not None and self._begun >= self.settings.trials:
            return None
        if self.settings.sampler_name == "grid" and not self._waiting:
            return None
        trial = self._study.ask()
        self._begun += 1
        self._waiting = max(self._waiting - 1, 0)
        return self._choose(trial)

    def again(self) -> list[Proposal]:
        """Return the trials that were running when an earlier process of the sweep ended."""
        found = self._found(OptunaState.RUNNING)
        # If that process was killed in between, missing values are suggested now.
        return [self._choose(optuna.Trial(self._study, one._trial_id)) for one in found]

    @property
    def comparing(self) -> bool:
        """Whether trials are compared with each other."""
        return self._pruner.comparing and len(self.settings.goals) == 1

    def compares(self, epoch: int) -> bool:
        """Return whether a trial that a rule suspects is compared at an epoch (from 1)."""
        return self.comparing and self._pruner.compares(epoch)

    def report(
        self, number: int, epoch: int, value: float, suspicion: TrialEnd | None = None
    ) -> TrialEnd | None:
        """Add a value of the first objective, and decide whether the trial ends.

        A trial that a rule suspects is compared with the sound trials first
        (`behind_sound_trials`). If it is behind them, other trials are not compared with it.

        Args:
            number: number of the trial.
            epoch: epoch of the value, from 1; ignored unless above all earlier ones.
            value: the reported value.
            suspicion: how a rule would end the trial if its outcome were poor.

        Returns:
            How the trial ends; None: it continues, or was told to end before. Values that it
            reports after that are kept, but no trial is compared with them.
        """
        trial = self._running[number]
        reported = _values(self._frozen(number))
        if epoch <= max(reported, default=0):
            return None
        if not math.isfinite(value):
            metric = self.settings.goals[0].metric
            return TrialEnd("stopped", f"{metric} is {value} at epoch {epoch}", fault="nonfinite")
        if len(self.settings.goals) > 1:
            # Optuna supports neither intermediate values nor pruning with several objectives.
            trial.set_user_attr(f"{_EPOCH}{epoch}", value)
            return None
        trial.report(value, epoch)
        last = self.settings.epochs is not None and epoch >= self.settings.epochs
        if number in self._cut or last:
            # After the last epoch there is nothing to save: the trial finishes.
            return None
        ending = self._compared(trial, epoch, value, suspicion)
        if ending is not None:
            self._cut.add(number)
        return ending

    def tell(self, number: int, ending: TrialEnd, result: Sequence[float] = ()) -> Trial:
        """Record the end of a trial.

        Args:
            number: number of the trial.
            ending: how it ended.
            result: the value of each objective, if it finished.

        Returns:
            The trial; if it finished without a finite value for each objective, it is stopped.
        """
        trial = self._running[number]
        complete = len(result) == len(self.settings.goals) and all(map(math.isfinite, result))
        if ending.state == "finished" and not complete:
            said = ", ".join(goal.metric for goal in self.settings.goals)
            ending = TrialEnd("stopped", f"no finite value of {said} at its end", fault="nonfinite")
        attributes = {"state": ending.state, "reason": ending.reason}
        attributes |= {"rule": ending.rule, "fault": ending.fault, "remedy": ending.remedy}
        trial.set_user_attr(_ENDING, attributes)
        values = list(result) if ending.state == "finished" else None
        self._study.tell(trial, values=values, state=_STATES[ending.state])
        del self._running[number]
        self.ended.append(self.trial(number))
        return self.ended[-1]

    def trial(self, number: int) -> Trial:
        """Return a trial."""
        return _trial(self._frozen(number))

    def running(self) -> list[Trial]:
        """Return the running trials, by number."""
        return [self.trial(number) for number in sorted(self._running)]

    def trials(self) -> list[Trial]:
        """Return all trials that have started, by number."""
        return [_trial(one) for one in self._found() if one.state is not OptunaState.WAITING]

    def best(self) -> list[Trial]:
        """Return the best finished trial, the first of equal ones; [] if none has finished.

        With several objectives, return the Pareto front.
        """
        if not self._found(OptunaState.COMPLETE):
            return []
        if len(self.settings.goals) > 1:
            return [_trial(one) for one in self._study.best_trials]
        return [_trial(self._study.best_trial)]

    def importance(self) -> dict[str, float]:
        """Return the importance of each hyperparameter for the objective, from 0 to 1.

        PED-ANOVA (Watanabe et al., IJCAI 2023) over the finished trials, of several objectives for
        the first; empty if they have too few distinct values.
        """
        done = self._found(OptunaState.COMPLETE)
        if len({one.values[0] for one in done}) < LEAST_RESULTS:
            return {}
        # Here, since it imports scikit-learn, for which no trial should wait.
        from optuna.importance import get_param_importances

        several = len(self.settings.goals) > 1
        with warnings.catch_warnings():
            # It says that low values of a target count as good.
            warnings.simplefilter("ignore", UserWarning)
            found = get_param_importances(self._study, target=self._cost if several else None)
        return {name: float(share) for name, share in found.items()}

    def _cost(self, trial: FrozenTrial) -> float:
        """Return the value of the first objective, negative if it is maximized."""
        sign = -1 if self.settings.goals[0].direction == "maximize" else 1
        return float(sign * trial.values[0])

    def _choose(self, trial: optuna.Trial) -> Proposal:
        """Return a trial's configuration, suggested now unless it was before."""
        parameters = trial.user_attrs.get(_CHOSEN)
        if parameters is None:
            parameters = self.space.suggest(trial)
            # In the order of the space, which Optuna's own parameters do not keep.
            trial.set_user_attr(_CHOSEN, parameters)
        self._running[trial.number] = trial
        seeds = self.settings.seeds
        seed = seeds[trial.number % len(seeds)] if seeds else None
        return Proposal(trial.number, parameters, seed)

    def _compared(
        self, trial: optuna.Trial, epoch: int, value: float, suspicion: TrialEnd | None
    ) -> TrialEnd | None:
        """Return how a trial ends by comparison with others; None: it continues."""
        if suspicion is not None and self.compares(epoch):
            if _SUSPECTED not in self._frozen(trial.number).user_attrs:
                trial.set_user_attr(_SUSPECTED, suspicion.rule)
            ending = behind_sound_trials(
                suspicion, epoch, value, sound=self._sound(epoch), goal=self.settings.goals[0]
            )
            if ending is not None:
                # Without the call below, pruners do not compare other trials with this one.
                return ending
        return TrialEnd("pruned", self._pruner.why(epoch)) if trial.should_prune() else None

    def _sound(self, epoch: int) -> list[tuple[float, float]]:
        """Return the first value and the last value up to an epoch of each sound trial.

        Sound trials are those that no rule has suspected or stopped.
        """
        found = []
        for trial in self._found():
            if _SUSPECTED in trial.user_attrs:
                continue
            if trial.user_attrs.get(_ENDING, {}).get("state") == "stopped":
                continue
            values = trial.intermediate_values
            reported = [one for one in values if one <= epoch]
            if reported:
                found.append((values[min(reported)], values[max(reported)]))
        return found

    def _found(self, *states: OptunaState) -> list[FrozenTrial]:
        """Return all trials, or those in some states, without copying them."""
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _frozen(self, number: int) -> FrozenTrial:
        storage = self._study._storage
        study = self._study._study_id
        return storage.get_trial(storage.get_trial_id_from_study_id_trial_number(study, number))


def _trial(found: FrozenTrial) -> Trial:
    ending = found.user_attrs.get(_ENDING)
    return Trial(
        number=found.number,
        parameters=found.user_attrs.get(_CHOSEN, {}),
        values=_values(found),
        result=tuple(found.values) if found.state is OptunaState.COMPLETE else (),
        ending=TrialEnd(**ending) if ending and found.state.is_finished() else TrialEnd("running"),
    )


def _values(found: FrozenTrial) -> dict[int, float]:
    """Return the values of the first objective by epoch."""
    several = {
        int(name.removeprefix(_EPOCH)): value
        for name, value in found.user_attrs.items()
        if name.startswith(_EPOCH)
    }
    return several or dict(found.intermediate_values)
