"""Replay of recorded trainings through the code that decides in a sweep."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.sweep.curve import Curve
from benchmarks.sweep.spaces import EPOCHS, SPACES
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import TrialEnd

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True)
class Replayed:
    """Result of a replayed sweep.

    Attributes:
        epochs: epochs of all trials, as a share of the maximum.
        best: best result of a finished trial; 0 if none finished.
        ended: number of trials by ending.
        quarter: number of trials in the best quarter, had none been ended early.
        finished: numbers of those of them that finished.
        wrong: number of those of them that a rule stopped.
        seconds: time from the start of the first trial to the end of the last.
    """

    epochs: float
    best: float
    ended: dict[str, int]
    quarter: int
    finished: set[int]
    wrong: int
    seconds: float


def replay(
    space: str, curves: Sequence[Curve], pruner: str, *, rules: bool, max_concurrent: int
) -> Replayed:
    """Run a sweep over known curves.

    Trials run concurrently, each at its recorded speed. The study receives every epoch when it
    ends, and a rule's finding at the step at which the rule fired.

    Args:
        space: name of the search space.
        curves: curves in the order of the trials.
        pruner: early termination by comparison.
        rules: whether rules stop trials.
        max_concurrent: number of concurrent trials.
    """
    settings = SweepTable(
        metric="accuracy",
        direction="maximize",
        trials=len(curves),
        epochs=EPOCHS,
        sampler="random",
        pruner=pruner,
        points=[dict(curve.parameters) for curve in curves],
    )
    study = Study(settings, Space.parse(SPACES[space], space))
    running: list[tuple[float, int, int]] = []
    now = used = 0.0
    while len(running) < max_concurrent and _begin(study, curves, running, now):
        pass
    while running:
        now, number, epoch = heapq.heappop(running)
        curve = curves[number]
        stopped = curve.stopped if rules else None
        if stopped is not None and stopped <= epoch:
            ending: TrialEnd | None = TrialEnd("stopped", curve.seen, curve.rule)
            used += stopped
        else:
            suspicion = _suspicion(curve, epoch) if rules else None
            ending = study.report(number, epoch, curve.accuracies[epoch - 1], suspicion)
            used += epoch if ending or epoch == EPOCHS else 0
        if ending is None and epoch < EPOCHS:
            heapq.heappush(running, (now + curve.seconds / EPOCHS, number, epoch + 1))
            continue
        study.tell(number, ending or TrialEnd("finished"), [curve.accuracies[-1]])
        _begin(study, curves, running, now)
    return _summary(study, curves, used, now)


def _suspicion(curve: Curve, epoch: int) -> TrialEnd | None:
    """Return how a rule would end a trial with a poor outcome."""
    rule = curve.suspected[epoch - 1]
    return TrialEnd("stopped", rule, rule) if rule else None


def _begin(
    study: Study, curves: Sequence[Curve], running: list[tuple[float, int, int]], now: float
) -> bool:
    """Start the next trial, if any; return whether there was one."""
    proposal = study.ask()
    if proposal is None:
        return False
    curve = curves[proposal.number]
    assert proposal.parameters == curve.parameters, "the points come first, in their order"
    heapq.heappush(running, (now + curve.seconds / EPOCHS, proposal.number, 1))
    return True


def _summary(study: Study, curves: Sequence[Curve], used: float, seconds: float) -> Replayed:
    trials = study.trials()
    ended: dict[str, int] = {}
    for trial in trials:
        ended[trial.ending.state] = ended.get(trial.ending.state, 0) + 1
    finals = sorted((curve.accuracies[-1] for curve in curves), reverse=True)
    quarter = len(curves) // 4
    bound = finals[quarter - 1]
    top = [trial for trial in trials if curves[trial.number].accuracies[-1] >= bound]
    best = study.best()
    return Replayed(
        epochs=used / (EPOCHS * len(curves)),
        best=best[0].result[0] if best else 0.0,
        ended=ended,
        quarter=len(top),
        finished={trial.number for trial in top if trial.ending.state == "finished"},
        wrong=sum(trial.ending.state == "stopped" for trial in top),
        seconds=seconds,
    )
