"""Rule: some parameters are not trained, though they should be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.advice import Advice
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.parameter_states import (
    ParameterState,
    ParameterStates,
    Trouble,
)
from vinedresser.store.finding import Finding, Severity

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["UntrainedParameters"]

_ORDER: tuple[Severity, ...] = ("info", "warning", "stop")
# What is more than half of the parameters is what the training is about.
_GREATER_PART = 0.5
# Evaluations before any train step that have to come to the same; and relatively how equal, since
# sums may be taken in another order.
_EVALUATIONS, _SAME = 3, 1e-6
_CONFIDENCE = 0.9
_MOST_NAMES = 3

_ADVICE: dict[Trouble, Advice] = {
    "left_out": Advice(
        "no optimizer has them",
        "hand them to the optimizer: Adam(model.parameters(), …), made when all layers are there; "
        "or say that they are not to be trained: parameter.requires_grad_(False)",
    ),
    "cut_off": Advice(
        "no gradient reaches them: the graph is cut behind them (detach(), torch.no_grad(), "
        ".data, a conversion to numpy), or nothing that the loss depends on uses them",
        "take out the detach() or no_grad() between them and the loss; or say that they are not "
        "to be trained: parameter.requires_grad_(False)",
    ),
    "unmoved": Advice(
        "the learning rate of their parameter group is 0, or their updates are too small for the "
        "precision of the weights",
        "give their parameter group the learning rate of the others, or keep them in float32",
    ),
}


class UntrainedParameters(Rule):
    """Some parameters are not trained, though they should be.

    Of weights that are the same at ``patience`` looks in a row, while others of their model change,
    it says why (`ParameterStates`): no optimizer has them, no gradient reaches them, or their
    updates are zero though their gradients are not. Weights that are declared frozen
    (``requires_grad=False``) are meant to be, and tied ones are one. It is a warning, and with more
    than half of the parameters in a training that learns less than it should a stop. What may well
    be meant is only told of (info), unless the training learns less than it should: where all but
    the last layer is in no optimizer (only a new head is trained), where modules are not used at
    all (no gradient reaches them, but those before them), where weights stop in mid-run, or where
    a group has a learning rate of 0. It is also a finding when no optimizer takes a step at all,
    which shows in evaluations that come to the same again and again before the first one.

    Args:
        every: train steps from one look to the next.
        patience: looks in a row.
    """

    severity: Severity = "warning"
    fault = "untrained_parameters"

    def __init__(self, every: int = 20, patience: int = 4) -> None:
        if every < 1 or patience < 1:
            raise ConfigError(f"every = {every}, patience = {patience}: must be at least 1")
        self.every = every
        self.patience = patience
        self.outcome = Outcome()
        self.parameters = ParameterStates(every)
        self.needs = (Need("losses", modes=("train", "eval")),)
        self._told: dict[Trouble, Severity] = {}
        # Evaluations before the first train step; None as soon as there was one.
        self._evaluations: list[dict[str, float]] | None = []

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if step.rank != 0 or step.mode == "predict":
            return None
        if step.mode == "eval":
            return self._without_steps(step)
        self._evaluations = None
        if not self.parameters.looked:
            return None
        states = {
            name: state
            for name, state in self.parameters.states.items()
            if state.looks >= self.patience
        }
        for trouble in _ADVICE:
            names = [name for name, state in states.items() if state.trouble == trouble]
            severity = self._severity(trouble, names, states) if names else None
            if severity is not None and self._is_news(trouble, severity):
                return self._finding(step, trouble, names, states, severity)
        return None

    def _is_news(self, trouble: Trouble, severity: Severity) -> bool:
        """Say whether nothing as severe was told, and take note that it is."""
        before = self._told.get(trouble)
        if before is not None and _ORDER.index(before) >= _ORDER.index(severity):
            return False
        self._told[trouble] = severity
        return True

    def _severity(
        self, trouble: Trouble, names: list[str], states: dict[str, ParameterState]
    ) -> Severity:
        """Return how severe it is that some weights are in a trouble."""
        if self.outcome.verdict().kind == "poor":
            greater = self._share(names) > _GREATER_PART
            return "stop" if greater and self.severity != "info" else self.severity
        sizes = list(self.parameters.sizes)
        meant = trouble == "unmoved" or all(states[name].moved for name in names)
        if trouble == "left_out":
            # Only a head is trained.
            meant |= names == sizes[:-1]
        elif trouble == "cut_off":
            # What comes first is used by all that comes after it, if it is used.
            meant |= sizes[0] not in names
        return "info" if meant else self.severity

    def _share(self, names: list[str]) -> float:
        sizes = self.parameters.sizes
        return math.fsum(sizes[name] for name in names) / math.fsum(sizes.values())

    def _finding(
        self,
        step: Step,
        trouble: Trouble,
        names: list[str],
        states: dict[str, ParameterState],
        severity: Severity,
    ) -> Finding:
        share = self._share(names)
        since = min(states[name].since for name in names)
        listed = ", ".join(names[:_MOST_NAMES])
        if len(names) > _MOST_NAMES:
            listed += f" and {len(names) - _MOST_NAMES} more"
        stopped = all(states[name].moved for name in names)
        graded = trouble == "left_out" and any(states[name].graded for name in names)
        advice = _ADVICE[trouble]
        reason = self.outcome.verdict().reason
        finding = self.found(
            step,
            since=since,
            tensor=names[0],
            statistic="l2",
            value=share,
            threshold=0.0,
            confidence=_CONFIDENCE,
            seen=f"{len(names)} of {len(self.parameters.sizes)} weights ({share:.0%} of the "
            f"parameters) {'no longer change' if stopped else 'do not change'}: {listed}"
            + (f"; {reason}" if severity == "stop" and reason else ""),
            cause=advice.cause + (", though gradients are computed for them" if graded else ""),
            remedy=advice.remedy,
            evidence={"trouble": trouble, "names": names, "share": share},
        )
        return replace(finding, severity=severity)

    def _without_steps(self, step: Step) -> Finding | None:
        """Look at an evaluation before the first step of an optimizer."""
        if self._evaluations is None or step.step:
            return None
        scalars = {**step.scalars_of("losses"), **step.scalars_of("metrics")}
        if not scalars:
            return None
        if self._evaluations and not _equal(self._evaluations[-1], scalars):
            self._evaluations.clear()
        self._evaluations.append(scalars)
        if len(self._evaluations) != _EVALUATIONS:
            return None
        name, value = next(iter(scalars.items()))
        return self.found(
            step,
            since=0,
            tensor=name,
            statistic="value",
            value=value,
            threshold=value,
            confidence=_CONFIDENCE,
            seen=f"{_EVALUATIONS} evaluations came to the same ({name} {value:.4g}), and no "
            "optimizer has taken a step",
            cause="optimizer.step() is not called, or is of an optimizer of another model",
            remedy="optimizer.step() after each loss.backward()",
            evidence={"evaluations": self._evaluations},
        )


def _equal(one: dict[str, float], other: dict[str, float]) -> bool:
    """Say whether the numbers of two evaluations are the same."""
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=_SAME) for name, value in one.items()
    )
