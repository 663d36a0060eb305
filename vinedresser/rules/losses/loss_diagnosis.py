"""Diagnosis of a training loss that does not decrease, from losses, gradients and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vinedresser.rules.advice import Advice, listed
from vinedresser.rules.faults import Fault
from vinedresser.rules.signals.losses.predicted_fall import PredictedFall
from vinedresser.rules.signals.outcomes.no_progress import LossTrajectory
from vinedresser.rules.signals.parameters.gradients import GradientNorms
from vinedresser.rules.signals.parameters.learning_rate import LearningRate, LearningRateSignal, cut
from vinedresser.rules.signals.parameters.update_ratios import GreatestUpdate
from vinedresser.rules.trees.ensemble import Ensemble
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["LossDiagnosis", "too_long_steps"]

# Relative change of the weight norms below which they did not train.
_UNMOVED = 1e-3
# The same in a loss that stands: below, the weights would not move in a long run either, unless
# gradients grow on a plateau.
_STILL = 1e-4
# The same for a gradient that is clipped at every step.
_BARELY = 1e-2
# Share of the weight tensors that are frozen: more can hardly learn another task.
_FROZEN = 0.5
# Ratio of an optimizer's eps to the norm of the gradient from which the steps are not those of its
# learning rate.
_EPSILON = 10.0
# Boosting that can remove at most this share of the error is limited by its learning rate.
_REACH = 0.5
# Predicted fall, relative to the loss, of a step that leads away from the minimum of a convex loss
# (see `PredictedFall`).
_BEYOND = 2.0
_ONE_BATCH = (
    "train on a single batch until its loss is near zero: if that fails, check the model, loss and "
    "learning rate; otherwise check the data"
)

_ASCENT = Advice(
    cause="the loss is maximised (gradient ascent): step by step it rose by what its gradients "
    "predicted it to fall, and the steps were short",
    remedy="remove the minus sign before the loss, or maximize=True; in an update by hand, "
    "subtract the gradient",
)


class LossDiagnosis:
    """Collects the data that explains a loss that does not decrease.

    Attributes:
        rate: learning rate, if the run's hyperparameters contain one.
        moved: maximum relative change of a weight norm; NaN if not captured.
        shrinkage: contribution of each boosted tree; None if there are none.
        frozen: names of the weights with ``requires_grad=False``, or that had it at first.
        epsilon: smallest ``eps`` of the optimizers; 0 if one has none.
    """

    def __init__(self) -> None:
        self.rate: LearningRate | None = None
        self.moved = math.nan
        self.shrinkage: float | None = None
        self.frozen: Sequence[str] = ()
        self.epsilon = 0.0
        self._rounds = 0
        self._gradients = GradientNorms()
        self._weights: dict[str, float] = {}
        # Weights whose norm has changed.
        self._moving: set[str] = set()

    def begin(self, info: RunRecord) -> None:
        """Read the setup of the training."""
        self.frozen = info.frozen
        self.shrinkage = Ensemble(info).shrinkage
        self.epsilon = min(map(_epsilon, info.optimizers), default=0.0)

    def add(self, step: Step) -> None:
        """Add a train step."""
        if step.mode != "train":
            return
        self._rounds = step.step + 1
        self._gradients.add(step)
        norms = step.reduction_of("weights", "l2")
        for name, norm in norms.items():
            if self._weights.setdefault(name, norm) != norm:
                self._moving.add(name)
        changes = [
            abs(norm - before) / before
            for name, norm in norms.items()
            if (before := self._weights[name]) > 0
        ]
        if changes:
            self.moved = max(changes)

    def explain(
        self, trajectory: LossTrajectory, rate: LearningRateSignal, predicted: PredictedFall
    ) -> tuple[Fault, Advice, dict[str, float]]:
        """Return the diagnosis of a loss that does not decrease.

        Args:
            rate: learning rate in use.
            predicted: the fall that the gradients predict.

        Returns:
            Fault, cause and remedy, and the remedy as a `Finding.correction`.
        """
        if trajectory.kind != "standing":
            return too_long_steps(trajectory, rate, predicted)
        self.rate = rate.rate()
        fault, advice = self.standing()
        low = fault == "learning_rate_too_low"
        return fault, advice, rate.corrected(10.0) if low else {}

    def _reach(self, shrinkage: float) -> float:
        """Return the share of a squared error that is removed if every tree is perfect.

        Each tree removes its shrinkage from the residual (Friedman, Ann. Stat. 29, 2001, section
        5).
        """
        return 1 - (1 - min(shrinkage, 1.0)) ** (2 * self._rounds)

    @property
    def trains(self) -> bool:
        """Whether gradients arrive and weights move, if captured."""
        return self.reached and not self.moved < _UNMOVED

    @property
    def may_leave_plateau(self) -> bool:
        """Whether a loss that stands may decrease later, as far as gradients and weights tell.

        On a saddle point they grow exponentially, from almost nothing (Saxe, McClelland and
        Ganguli, "Exact solutions to the nonlinear dynamics of learning", ICLR 2014), so weights
        that have hardly moved may still learn, unless something holds them.
        """
        if self.moved < _UNMOVED and self._held() is not None:
            return False
        return self.reached and not self.moved < _STILL

    @property
    def reached(self) -> bool:
        """Whether gradients arrive, if captured."""
        gradients = self._gradients
        return not gradients.norms or 2 * gradients.zeros < gradients.tensors

    def _faster(self) -> str:
        """Return the advice to use a higher learning rate."""
        return self.rate.scaled(10.0) if self.rate else "multiply the learning rate by 10"

    def _held(self) -> tuple[Fault, Advice] | None:
        """Return the diagnosis of weights that something holds back.

        Frozen layers, a clipped gradient, or an ``eps`` that is far larger than the gradient: Adam
        divides by the sum of it and of the size of the gradient (Kingma and Ba, ICLR 2015).
        """
        # The record also names those that were frozen at first only.
        frozen = [one for one in self.frozen if one in self._weights.keys() - self._moving]
        if frozen and len(frozen) >= _FROZEN * len(self._weights):
            return "untrained_parameters", Advice(
                cause=f"{len(frozen)} of {len(self._weights)} weights are frozen "
                f"(requires_grad=False): {listed(frozen)}; the others cannot learn this task alone",
                remedy="unfreeze more layers: parameter.requires_grad_(True), and pass them to the "
                "optimizer",
            )
        if self._gradients.clipped and self.moved < _BARELY:
            return "learning_rate_too_low", Advice(
                cause="the gradient has the same norm at every step, "
                f"{self._gradients.norms[-1][1]:.2g}, to which it is clipped: the weights hardly "
                f"move (by at most {self.moved:.1e}× their size)",
                remedy=f"clip at a larger norm, above that of usual gradients, or {self._faster()}",
            )
        norm = max((norm for _, norm in self._gradients.norms), default=math.inf)
        if self.epsilon > _EPSILON * norm > 0:
            return "learning_rate_too_low", Advice(
                cause=f"eps = {self.epsilon:.2g} of the optimizer is {self.epsilon / norm:.2g} "
                f"times the largest norm of the gradient, {norm:.2g}: it divides the steps by eps "
                "instead of the size of the gradient, so they are far smaller than the learning "
                "rate",
                remedy="use the default eps of the optimizer (1e-8)",
            )
        return None

    def standing(self) -> tuple[Fault, Advice]:
        """Return the fault, cause and remedy of a loss that hardly moves."""
        gradients = self._gradients
        norms, zeros, tensors = gradients.norms, gradients.zeros, gradients.tensors
        if self.shrinkage is not None and self._reach(self.shrinkage) < _REACH:
            return "learning_rate_too_low", Advice(
                cause=f"{self._rounds} trees with a learning rate of {self.shrinkage:g} remove at "
                f"most {self._reach(self.shrinkage):.1%} of the error",
                remedy=f"use a learning rate (eta) of {3 / self._rounds:.1g}, or more rounds",
            )
        if not norms:
            return "not_learning", Advice(
                cause="the model does not learn: check learning rate, initial weights, inputs, "
                "labels",
                remedy=_ONE_BATCH,
            )
        held = self._held()
        if held is not None:
            return held
        if 2 * zeros >= tensors:
            return "not_learning", Advice(
                cause=f"no gradient arrives: it is exactly zero in {zeros} of {tensors} tensors "
                f"at step {norms[-1][0]} (dead relu units, or a loss detached from the model)",
                remedy="use a smaller learning rate, He initialisation or leaky relu; search for "
                "detach(), no_grad() and argmax between the model and its loss",
            )
        if self.moved < _UNMOVED:
            return "learning_rate_too_low", Advice(
                cause=f"the weights hardly move (by at most {self.moved:.1e}× their size): the "
                "learning rate is too low for gradients of norm "
                f"{norms[-1][1]:.1e}, or the optimizer has other parameters",
                remedy=f"{self._faster()}; check that the optimizer has this model's parameters",
            )
        return "not_learning", Advice(
            cause="gradients arrive and weights move, but the model finds nothing to learn: labels "
            "do not belong to the inputs, output and loss do not match, or the inputs have the "
            "wrong scale",
            remedy=_ONE_BATCH,
        )


def _epsilon(optimizer: Mapping[str, Any]) -> float:
    """Return what an optimizer adds to the size of the gradient; 0 if nothing or unknown."""
    settings = optimizer.get("settings", {})
    value = settings.get("eps", settings.get("epsilon"))
    return float(value) if isinstance(value, int | float) else 0.0


def too_long_steps(
    trajectory: LossTrajectory,
    rate: LearningRateSignal,
    predicted: PredictedFall,
    *,
    longest: GreatestUpdate | None = None,
) -> tuple[Fault, Advice, dict[str, float]]:
    """Return the diagnosis of a loss that diverged or was lost again.

    Args:
        rate: learning rate in use.
        predicted: the fall that the gradients predict.
        longest: the largest update, if it is long enough to be the cause.

    Returns:
        Fault, cause and remedy, and the remedy as a `Finding.correction`.
    """
    if trajectory.kind == "thrown_up" and predicted.ascends():
        return "loss_output_mismatch", _ASCENT, {}
    factor = cut(trajectory.rise)
    smaller = rate.scaled(factor)
    if trajectory.kind == "thrown_up":
        at, overshoot = predicted.greatest_overshoot
        if longest is not None and longest.step < at:
            # After a step that was too long, the gradients are as large as the loss has become.
            evidence = longest.in_words
        elif overshoot > _BEYOND:
            evidence = f"step {at} overshot the minimum {overshoot:.2g}×"
        elif longest is not None:
            evidence = longest.in_words
        else:
            start, top = trajectory.start, trajectory.top
            evidence = f"the loss rose from {start:.4g} to {top:.4g}"
        advice = Advice(
            cause=f"the learning rate is too high: {evidence}",
            remedy=f"{smaller}; warm up the learning rate, clip the gradient norm",
        )
    else:
        advice = Advice(
            cause="the model learned and then unlearned: the learning rate is too high for this "
            "stage, or the data changed",
            remedy=f"{smaller}; use a decaying learning rate; clip the gradient norm",
        )
    return "learning_rate_too_high", advice, rate.corrected(factor)
