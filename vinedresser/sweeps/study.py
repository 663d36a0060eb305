"""The study of a sweep: proposes configurations, ends trials early, and ranks results.

The same code decides in a flow and in a replay of recorded curves. Only the process of the flow
uses Optuna; trainings never do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from vinedresser.errors import CorruptData
from vinedresser.store.json_values import DAMAGE
from vinedresser.sweeps.agenda import Agenda
from vinedresser.sweeps.journal import SweepJournal, SweepStorage
from vinedresser.sweeps.pareto import pareto_front
from vinedresser.sweeps.peers import behind_sound_trials
from vinedresser.sweeps.proposer import CHOSEN, KNOWN, Proposer
from vinedresser.sweeps.pruners import ENDING, make_pruner
from vinedresser.sweeps.samplers import sampler_maker
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.stored_trial import AGAIN, EPOCH, line, reported, stored_trial
from vinedresser.sweeps.trial import LEAST_RESULTS, Line, Proposal, Trial, TrialEnd

_STATES: dict[str, OptunaState] = {
    "finished": OptunaState.COMPLETE,
    "pruned": OptunaState.PRUNED,
    "stopped": OptunaState.PRUNED,
    "failed": OptunaState.FAIL,
}
_NAME = "sweep"
# Keys of a trial's user attributes in Optuna: how it is to end, and the rule that suspected it.
_CUT, _SUSPECTED = "cut", "suspected"
# And the name of the flow that runs it.
_FLOW = "flow"


class Study:
    """The state of a sweep and its decisions.

    Every trial that is ended early is reported to Optuna as pruned, with its last value. A value
    that is not finite is not reported, so no trial is compared with it and samplers avoid it.

    Every decision is a function of the settings and the journal. A study that is resumed, or whose
    number of trials was raised, continues as if it had never been closed. No configuration is
    proposed again, unless each is to have several trials (`SweepTable.repeats`).

    Args:
        path: path of the journal; None: keep the study in memory, as for a replay.
        join: run the sweep beside another process; then use it in a `turn` only.
        where: prefix of messages, such as ``sweep.toml: sweep``.

    Attributes:
        space: the search space.
        ended: the trials that have ended, in order; those of an earlier process come first.

    Raises:
        ConfigError: an invalid setting of the sampler or pruner, or an invalid point.
        MissingDependency: a package that the sampler needs is not installed.
        StillRunning: another process is running this sweep, and `join` is not set.
    """

    def __init__(
        self,
        settings: SweepTable,
        space: Space,
        path: Path | None = None,
        *,
        where: str = "sweep",
        join: bool = False,
    ) -> None:
        # Optuna warns about spaces with conditions or choices.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.settings = settings
        self.space = space
        self._pruner = make_pruner(settings.pruner, settings.epochs, f"{where}.pruner")
        self._agenda = Agenda(settings, space, where)
        make = sampler_maker(
            settings.sampler, objectives=len(settings.goals), where=f"{where}.sampler"
        )
        self._journal = SweepJournal(path, space, join=join) if path is not None else None
        # In one turn: the storage knows all that the journal has read.
        with self._journal.turn() if self._journal else nullcontext():
            self._storage = SweepStorage(self._journal) if self._journal else InMemoryStorage()
            self._study = optuna.create_study(
                storage=self._storage,
                sampler=Proposer(make, settings.seed, space, self._agenda.tried),
                pruner=self._pruner.make(),
                study_name=_NAME,
                directions=[goal.direction for goal in settings.goals],
                load_if_exists=True,
            )
        self._running: dict[int, optuna.Trial] = {}
        # Trials of an earlier process, which may not have decided on their last values.
        self._undecided: set[int] = set()
        if len(self._study._storage.get_all_studies()) > 1:
            raise CorruptData(f"{path}: holds the study of something else")
        try:
            self._agenda.restore(self._study)
            self.ended = [trial for trial in self.trials() if trial.ending.state != "running"]
        except DAMAGE as error:
            raise CorruptData(f"{path}: not the journal of this sweep: {error}") from error

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Decide while no other process does, and know what they have decided; not to be nested.

        Raises:
            CorruptData: the journal is damaged.
            StoreError: it cannot be read.
        """
        if self._journal is None:
            yield
            return
        with self._journal.turn() as changed:
            if changed:
                self._renew()
            yield

    def _renew(self) -> None:
        """Take in what other processes wrote."""
        if isinstance(self._storage, SweepStorage):
            self._storage.renew()
        # The old one remembers values.
        self._study.pruner = self._pruner.make()
        self._agenda.restore(self._study)
        known = {one.number for one in self.ended}
        new = [one for one in self._own() if one.number not in known and one.state.is_finished()]
        self.ended += [stored_trial(one, self._agenda.retried) for one in new]

    def hosts(self) -> bool:
        """Return whether this process reports on the sweep, which it does if no other one can."""
        return self._journal is None or self._journal.hosts()

    def others(self) -> set[int]:
        """Return the numbers of the trials that other, living processes run."""
        running = self._found(OptunaState.RUNNING)
        return {
            one.number for one in running if one.number not in self._running and self._is_run(one)
        }

    def ask(self) -> Proposal | None:
        """Return the next configuration; None if there is none, for the reason in `over`.

        Points come first, then, up to the number of trials, the configurations of a grid, or those
        that the sampler proposes. A population also has none while its next trial depends on one
        that has not ended; then `over` is "".
        """
        return self._choose(self._study.ask()) if self._agenda.advance() else None

    def train_again(self) -> Proposal | None:
        """Return a trial that trains the best one again with another seed; None if all have.

        Call it when no other trial runs or begins.
        """
        best = self.best()
        if not best or not self._agenda.train_again(best[0].number, best[0].parameters):
            return None
        return self._choose(self._study.ask())

    def enqueue(self, given: object) -> None:
        """Add a point, which is tried next; one that was tried is not tried again.

        Raises:
            ConfigError: a value is not in the space.
        """
        self._agenda.enqueue(self.space.point(given, "enqueued"))

    def learn(self, known: Sequence[FrozenTrial]) -> None:
        """Add trials of another sweep, from which the sampler learns; they are none of this one.

        Args:
            known: see `known_trials`; those that were added before are left out.
        """
        before = {one.user_attrs.get(KNOWN) for one in self._found()}
        for trial in known:
            if trial.user_attrs[KNOWN] not in before:
                self._study.add_trial(trial)

    def retry_failed(self) -> int:
        """Queue another trial for each failed one that was not tried again; return their number.

        They come next, with the configuration and the seed of the failed trial. They are in the
        journal at once, so that a process that is killed leaves them to the next one.
        """
        return self._agenda.retry_failed()

    @property
    def members(self) -> int | None:
        """Number of members of its population; None without one."""
        return self._agenda.members

    @property
    def over(self) -> str:
        """Why `ask` returned None; "" before."""
        return self._agenda.over

    @property
    def planned(self) -> int | None:
        """Number of trials that the study will have at most; None if that is unknown."""
        return self._agenda.planned

    def again(self) -> list[Proposal]:
        """Return the trials that were running when another process of the sweep ended.

        From now on this process runs them.
        """
        found = [
            one
            for one in self._found(OptunaState.RUNNING)
            if one.number not in self._running and not self._is_run(one)
        ]
        # If that process was killed in between, what is missing is suggested and decided now.
        self._undecided |= {one.number for one in found}
        return [self._choose(optuna.Trial(self._study, one._trial_id)) for one in found]

    def _is_run(self, trial: FrozenTrial) -> bool:
        """Return whether a living process runs a trial."""
        return self._journal is not None and self._journal.lives(trial.user_attrs.get(_FLOW))

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
        (`behind_sound_trials`). If it is behind them, other trials are not compared with it. A
        trial that trains the best one again is compared with none.

        Args:
            epoch: epoch of the value, from 1; ignored unless above all earlier ones.
            suspicion: how a rule would end the trial if its outcome were poor.

        Returns:
            How the trial ends; None: it continues, or was told to end before. Values that it
            reports after that are kept, but no trial is compared with them.
        """
        trial = self._running[number]
        frozen = self._frozen(number)
        newest = max(reported(frozen), default=0)
        if epoch < newest or (epoch == newest and number not in self._undecided):
            return None
        self._undecided.discard(number)
        if not math.isfinite(value):
            metric = self.settings.goals[0].metric
            return TrialEnd("stopped", f"{metric} is {value} at epoch {epoch}", fault="nonfinite")
        if len(self.settings.goals) > 1:
            # Optuna supports neither intermediate values nor pruning with several objectives.
            trial.set_user_attr(f"{EPOCH}{epoch}", value)
            return None
        if epoch > newest:
            trial.report(value, epoch)
        if (cut := frozen.user_attrs.get(_CUT)) is not None:
            # It may still report for a while. A process that resumes the sweep ends it again.
            return TrialEnd(**cut) if epoch == newest else None
        whole = self.settings.epochs is not None and epoch >= self.settings.epochs
        if whole or AGAIN in frozen.user_attrs:
            # After the last epoch there is nothing to save: the trial finishes. With another seed,
            # so does the best one: without the worse results, the spread would be too small.
            return None
        ending = self._compared(trial, epoch, value, suspicion)
        if ending is not None:
            trial.set_user_attr(_CUT, asdict(ending))
        return ending

    def tell(
        self,
        number: int,
        ending: TrialEnd,
        result: Sequence[float] = (),
        bounded: Sequence[float] = (),
    ) -> Trial:
        """Record the end of a trial.

        Args:
            result: the value of each objective, if it finished.
            bounded: the value of the metric of each constraint, if it finished.

        Returns:
            The trial; if it finished without a finite value for each objective and constraint, it
            is stopped.
        """
        trial = self._running[number]
        watched, values = self.settings.watched, [*result, *bounded]
        complete = len(values) == len(watched) and all(map(math.isfinite, values))
        if ending.state == "finished" and not complete:
            paired = len(values) == len(watched)
            bad = [
                goal.metric
                for number, goal in enumerate(watched)
                if not paired or not math.isfinite(values[number])
            ]
            said = f"no finite value of {', '.join(dict.fromkeys(bad))} at its end"
            ending = TrialEnd("stopped", said, fault="nonfinite")
        trial.set_user_attr(ENDING, asdict(ending))
        finished = ending.state == "finished"
        if finished:
            self._constrain(trial, bounded)
        told = list(result) if finished else None
        self._study.tell(trial, values=told, state=_STATES[ending.state])
        del self._running[number]
        self.ended.append(self.trial(number))
        return self.ended[-1]

    def _constrain(self, trial: optuna.Trial, bounded: Sequence[float]) -> None:
        """Store by how much a trial breaks the constraints; known if a process was killed here."""
        known = self._frozen(trial.number).constraints
        for one, value in zip(self.settings.constraints, bounded, strict=True):
            if one.name not in known:
                trial.set_constraint(one.name, one.excess(value))

    def trial(self, number: int) -> Trial:
        """Return a trial."""
        return stored_trial(self._frozen(number), self._agenda.retried)

    def running(self) -> list[Trial]:
        """Return the running trials, by number, also those of other processes."""
        running = self._own(OptunaState.RUNNING)
        return [stored_trial(one, self._agenda.retried) for one in running]

    def trials(self) -> list[Trial]:
        """Return all trials that have started, by number."""
        begun = [one for one in self._own() if one.state is not OptunaState.WAITING]
        return [stored_trial(one, self._agenda.retried) for one in begun]

    def best(self) -> list[Trial]:
        """Return the best finished trial, the first of equal ones; [] if none has finished.

        With several objectives, return the Pareto front. Trials that break a constraint do not
        count.
        """
        done = [stored_trial(one, self._agenda.retried) for one in self._own(OptunaState.COMPLETE)]
        done = [trial for trial in done if trial.competes]
        goals = self.settings.goals
        if len(goals) > 1:
            return [done[one] for one in pareto_front([trial.result for trial in done], goals)]
        return sorted(done, key=lambda trial: goals[0].gain(0.0, trial.result[0]))[:1]

    def importance(self) -> dict[str, float]:
        """Return the importance of each hyperparameter for the objective, from 0 to 1.

        PED-ANOVA (Watanabe et al., IJCAI 2023) over the finished trials, of several objectives for
        the first; empty if they have too few distinct values. Also empty for a population, whose
        values depend on the generation.
        """
        done = self._found(OptunaState.COMPLETE)
        if self.members is not None or len({one.values[0] for one in done}) < LEAST_RESULTS:
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
        number = trial.number
        parameters = trial.user_attrs.get(CHOSEN)
        if parameters is None or parameters.keys() != trial.params.keys():
            chosen = self.space.suggest(trial)
            if CHOSEN not in trial.user_attrs:
                # In the order of the space, which Optuna's own parameters do not keep.
                trial.set_user_attr(CHOSEN, chosen)
            if parameters is None:
                self._agenda.note(number, chosen)
            parameters = chosen
        self._running[number] = trial
        if self._journal is not None:
            trial.set_user_attr(_FLOW, self._journal.flow)
        place = line(self._frozen(number))
        return Proposal(number, parameters, self._agenda.seed(number), place, self._age(place))

    def _age(self, place: Line | None) -> int:
        """Return the number of trials in the line of a trial, with itself."""
        age = 1
        while place is not None and place.parent is not None:
            place, age = line(self._frozen(place.parent)), age + 1
        return age

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
            if trial.user_attrs.get(ENDING, {}).get("state") == "stopped":
                continue
            values = trial.intermediate_values
            reported = [value for value in values if value <= epoch]
            if reported:
                found.append((values[min(reported)], values[max(reported)]))
        return found

    def _found(self, *states: OptunaState) -> list[FrozenTrial]:
        """Return all trials, or those in some states, without copying them."""
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _own(self, *states: OptunaState) -> list[FrozenTrial]:
        """Return the trials of this sweep, or those in some states."""
        return [one for one in self._found(*states) if KNOWN not in one.user_attrs]

    def _frozen(self, number: int) -> FrozenTrial:
        storage = self._study._storage
        study = self._study._study_id
        return storage.get_trial(storage.get_trial_id_from_study_id_trial_number(study, number))
