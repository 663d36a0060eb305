"""A trial of a sweep: its configuration, its values and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from vinedresser.sweeps.dimension import Choice

__all__ = [
    "ALL_BEGUN",
    "LEAST_RESULTS",
    "Line",
    "Proposal",
    "Trial",
    "TrialEnd",
    "TrialState",
    "line_of",
    "results_again",
    "saved_share",
    "spread",
    "told_line",
    "trial_name",
]

# Minimum number of different results of finished trials for the importance of hyperparameters.
LEAST_RESULTS = 4

# Why a sweep whose number of trials was reached begins no other trial.
ALL_BEGUN = "all trials have begun"

# "stopped": by a rule or a person, for its own symptoms; "pruned": by comparison with others;
# "interrupted": the sweep ended before the trial, which continues when it is resumed.
TrialState = Literal["running", "finished", "pruned", "stopped", "failed", "interrupted"]


class Line(NamedTuple):
    """The place of a trial in a population.

    Attributes:
        generation: number of the generation, from 0.
        member: number of the member, from 0.
        parent: number of the trial from whose checkpoint it continues; None: it begins anew.
        copied: whether that is a trial of another member, whose configuration was changed.
    """

    generation: int
    member: int
    parent: int | None = None
    copied: bool = False


@dataclass(frozen=True)
class Proposal:
    """A proposed configuration.

    Attributes:
        number: number of the trial, from 0.
        parameters: values by name; without those whose condition is not met.
        seed: seed to pass to the trial; None: no seed.
        line: its place in a population; None without one.
        age: number of trials in its line, with itself: those from whose checkpoints it continues.
    """

    number: int
    parameters: Mapping[str, Choice]
    seed: int | None = None
    line: Line | None = None
    age: int = 1


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended.

    Attributes:
        state: its final state, or "running".
        reason: why it ended, as one sentence; "" for a finished trial.
        rule: the rule that stopped it, or that found it broken although it was pruned.
        fault: the fault that the rule found; see `rules.faults`.
        remedy: the change that the rule proposes.
    """

    state: TrialState
    reason: str = ""
    rule: str = ""
    fault: str = ""
    remedy: str = ""

    @property
    def why(self) -> str:
        """Why it ended in a few words: the rule that stopped it, or the reason."""
        if self.state == "pruned" and self.rule:
            return f"{self.reason}; broken: {self.rule}"
        return self.rule or self.reason


@dataclass(frozen=True)
class Trial:
    """A trial of a sweep.

    Attributes:
        number: its number, from 0.
        parameters: values by name.
        values: values of the first objective by epoch, from 1.
        result: result of each objective, once it has finished; otherwise empty.
        ending: how it ended, or state "running".
        retried_as: number of the trial that tries it again, as it failed; None: none does.
        excess: of a finished trial by how much it breaks each constraint, by the name of that; at
            most 0 if it does not.
        again: number of the best trial that it trains again, and its seed; None for other trials.
        line: its place in a population; None without one.
    """

    number: int
    parameters: Mapping[str, Choice]
    values: Mapping[int, float] = field(default_factory=dict)
    result: tuple[float, ...] = ()
    ending: TrialEnd = field(default_factory=lambda: TrialEnd("running"))
    retried_as: int | None = None
    excess: Mapping[str, float] = field(default_factory=dict)
    again: tuple[int, int] | None = None
    line: Line | None = None

    @property
    def competes(self) -> bool:
        """Whether it may be the best one: it has finished, and breaks no constraint."""
        return bool(self.result) and self.feasible and self.again is None

    @property
    def feasible(self) -> bool:
        """Whether it breaks no constraint."""
        return all(excess <= 0 for excess in self.excess.values())

    @property
    def name(self) -> str:
        """Its name and that of its first run, such as ``trial-0007``."""
        return trial_name(self.number)

    @property
    def configuration(self) -> str:
        """Its parameters as one line, with numbers to three digits."""
        return ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.parameters.items()
        )

    @property
    def why(self) -> str:
        """Why it ended in a few words, and which trial tries it again; or why it is infeasible."""
        if not self.feasible:
            broken = [f"{name} by {by:.3g}" for name, by in self.excess.items() if by > 0]
            return f"infeasible: breaks {', '.join(broken)}"
        if self.again is not None and not self.ending.why:
            return f"{trial_name(self.again[0])} again with seed {self.again[1]}"
        again = "" if self.retried_as is None else f"again as {trial_name(self.retried_as)}"
        return "; ".join(filter(None, (self.ending.why, again, self.origin)))

    @property
    def origin(self) -> str:
        """From which trial of a population it continues; "" if from none."""
        if self.line is None or self.line.parent is None:
            return ""
        word = "copy of" if self.line.copied else "continues"
        return f"{word} {trial_name(self.line.parent)}"

    @property
    def epochs(self) -> int:
        """Number of epochs completed."""
        return max(self.values, default=0)


def trial_name(number: int) -> str:
    """Return the name of a trial."""
    return f"trial-{number:04d}"


def line_of(trial: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Return a trial of a population after those from whose checkpoints it continues.

    Args:
        trials: all trials of the sweep.
    """
    known = {one.number: one for one in trials}
    found = [trial]
    while (line := found[0].line) is not None and line.parent is not None:
        found.insert(0, known[line.parent])
    return found


def told_line(trial: Trial, trials: Sequence[Trial]) -> str:
    """Return the schedule of a trial of a population: its line, and what changes along it."""
    told: list[str] = []
    before: Mapping[str, Choice] = {}
    for one in line_of(trial, trials):
        new = {name: value for name, value in one.parameters.items() if before.get(name) != value}
        shown = replace(one, parameters=new).configuration
        told.append(f"{one.name} ({shown})" if shown else one.name)
        before = one.parameters
    return ", ".join(told)


def results_again(trials: Sequence[Trial], best: Sequence[Trial]) -> list[float]:
    """Return the results of the trials that have trained the best one again.

    Args:
        trials: trials of a sweep with one objective.
        best: the best one; empty if none has finished.
    """
    if not best:
        return []
    wanted = [trial for trial in trials if trial.again and trial.again[0] == best[0].number]
    return [trial.result[0] for trial in wanted if trial.result]


def spread(values: Sequence[float]) -> str:
    """Return mean, standard deviation and range of some values in words; "" without any."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    deviation = f"{fmean(values):.4g} ± {stdev(values):.2g}"
    return f"{deviation} ({min(values):.4g} to {max(values):.4g})"


def saved_share(trials: Sequence[Trial], epochs: int) -> float:
    """Return the share of the epochs of whole trials that was not run; crashes save nothing.

    Args:
        trials: trials that have ended, at least one.
    """
    lasting = [trial for trial in trials if trial.ending.state != "failed"]
    saved = sum(max(epochs - trial.epochs, 0) for trial in lasting)
    return saved / (epochs * len(trials))
