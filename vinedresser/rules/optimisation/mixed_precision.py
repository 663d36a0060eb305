"""Rule: a loss scaler does not do what it is for."""

from __future__ import annotations

import math
import re
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.gradients import GradientNorms
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Keras reports its scale in the optimizer state; a learning rate is always there, too.
_OF_OPTIMIZER = r"^optimizer_state/(?:\w+\.)?(?:loss_scale|lr)$"
_SCALE = re.compile(r"^(?:state/(?:.*\.)?grad|optimizer_state/(?:\w+\.)?loss)_scale$")
# The part after the model prefix.
_OWN = re.compile(r"(?:grad|loss)_scale$")
# Steps in which a scaler may search its scale: from 65,536 it takes 16 to reach 1.
_SEARCH = 50
_LEAST_SCALE = 1.0
# Checks, and relative tolerance, at which a gradient times the scale is a norm that a person chose,
# of at most two digits, and the gradient itself is not, of at most three.
_CLIPPED_CHECKS, _CHOSEN, _NOT_CHOSEN = 3, 1e-4, 1e-5
# Scale below which both can be, and norms that a person chooses.
_TELLING_SCALE, _NORMS = 128.0, (1e-2, 1e3)


class _ScalerState(NamedTuple):
    """State of a scaler at a step."""

    step: int
    scale: float
    skipped: float


class MixedPrecision(OnceRule):
    """Mixed-precision gradients overflow repeatedly, or are clipped before they are unscaled.

    A loss scaler halves its scale and skips the step whenever a gradient is not finite, and doubles
    the scale after many steps without overflow (2000 by default). A healthy training therefore
    skips one step in thousands. Fires when, after step 50 and over ``patience`` consecutive checks,
    more than ``skipped`` of the steps were skipped, the scale decreased at each check, or it has
    decreased to 1 or below: then the unscaled gradients overflow, and no scale can help. bfloat16
    needs no scaler.

    Also fires when the norm of the gradient times the scale is the same round number at three
    checks, such as 1.0, and the norm itself is not: the gradient was clipped while it still had the
    factor of the scaler, and reaches the optimizer shorter by that factor.

    Source: Micikevicius et al., "Mixed precision training" (ICLR 2018), section
    3.2; PyTorch's and Keras's documentation of their scalers.

    Args:
        skipped: share of skipped steps.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "mixed_precision"
    stage = "inside"
    # Skipped steps and gradients clipped before they are unscaled leave the weights in place.
    consequences = (
        "outcome",
        "no_signal",
        "learning_rate_too_low",
        "nonfinite",
        "over_regularisation",
        "vanishing_gradient",
    )
    position = 240
    inapplicable = Reasons(
        xgboost="all is computed in float32 and float64", sklearn="all is computed in float64"
    )

    def __init__(self, skipped: float = 0.1, every: int = 20, patience: int = 3) -> None:
        require_between(0, 1, skipped=skipped)
        require_at_least(1, every=every, patience=patience)
        self.skipped = skipped
        self.every = every
        self.patience = patience
        self.needs = (
            Need("state", every=every, required=False),
            Need("loss_scale", every=every, regex=_OF_OPTIMIZER, required=False),
            Need("gradients", every=every, reductions=("l2",), required=False),
        )
        self._gradients = GradientNorms()
        # (step, scale, norm of the gradient) at the last checks.
        self._norms: deque[tuple[int, float, float]] = deque(maxlen=_CLIPPED_CHECKS)
        self._states: dict[str, deque[_ScalerState]] = {}
        self._highest: dict[str, float] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        scales = {
            name: scale
            for name, scale in step.scalars.items()
            if _SCALE.match(name) and math.isfinite(scale)
        }
        for name, scale in scales.items():
            prefix = _OWN.sub("", name.partition("/")[2])
            skipped = step.scalars.get(f"state/{prefix}skipped_steps", 0.0)
            state = _ScalerState(step.step, scale, skipped)
            self._highest[name] = max(self._highest.get(name, scale), scale)
            states = self._states.setdefault(name, deque(maxlen=self.patience + 1))
            if step.step >= _SEARCH:
                states.append(state)
            if len(states) > self.patience and (found := self._judged(step, name, list(states))):
                return found
        return self._clipped(step, *scales.popitem()) if len(scales) == 1 else None

    def _clipped(self, step: Step, name: str, scale: float) -> Finding | None:
        """Return the finding of a gradient that was clipped before it was unscaled, if it was."""
        self._gradients.add(step)
        if not self._gradients.norms or self._gradients.norms[-1][0] != step.step:
            return None
        norm = self._gradients.norms[-1][1]
        self._norms.append((step.step, scale, norm))
        chosen = _rounded(norm * scale, digits=2)
        same = all(
            used >= _TELLING_SCALE
            and math.isclose(used * one, chosen, rel_tol=_CHOSEN)
            and not math.isclose(one, _rounded(one, digits=3), rel_tol=_NOT_CHOSEN)
            for _, used, one in self._norms
        )
        if len(self._norms) < _CLIPPED_CHECKS or not same:
            return None
        if not _NORMS[0] <= chosen <= _NORMS[1]:
            return None
        return self.found(
            step,
            since=self._norms[0][0],
            tensor=name,
            statistic="l2",
            value=norm,
            threshold=chosen,
            confidence=0.95,
            seen=f"the gradient reaches the optimizer with a norm of {norm:.3g} at every step, "
            f"which is {chosen:g} divided by the loss scale, {scale:g}",
            cause=f"the gradients are clipped to a norm of {chosen:g} while they still have the "
            "factor of the loss scaler, which the optimizer step divides them by afterwards",
            remedy="call scaler.unscale_(optimizer) before clip_grad_norm_; then the learning rate "
            "can stay",
            evidence={
                "steps": [at for at, _, _ in self._norms],
                "scales": [used for _, used, _ in self._norms],
                "norms": [one for _, _, one in self._norms],
            },
        )

    def _judged(self, step: Step, name: str, states: list[_ScalerState]) -> Finding | None:
        """Return the finding from consecutive checks, if any."""
        first, last = states[0], states[-1]
        # The counter falls where a training was resumed.
        skipped = max(last.skipped - first.skipped, 0.0)
        # Skipped steps are not counted as steps.
        share = skipped / (skipped + last.step - first.step)
        highest = self._highest[name]
        statistic, value, threshold = "scale", last.scale, _LEAST_SCALE
        if share > self.skipped:
            statistic, value, threshold = "skipped", share, self.skipped
            seen = f"{share:.0%} of the steps from {first.step} to {last.step} were skipped"
        elif all(state.scale <= _LEAST_SCALE for state in states) and last.scale < highest:
            seen = f"the loss scale has decreased from {highest:g} to {last.scale:g}"
        elif all(now.scale < before.scale for before, now in pairwise(states)):
            threshold = first.scale
            seen = f"the loss scale decreased from {first.scale:g} to {last.scale:g} within "
            seen += f"{last.step - first.step} steps without ever increasing"
        else:
            return None
        return self.found(
            step,
            since=first.step,
            tensor=name,
            statistic=statistic,
            value=value,
            threshold=threshold,
            confidence=0.85,
            seen=seen,
            cause="gradients or activations overflow float16 (above 65,504) at every step: the "
            "training diverges, or the values of some layer are too large",
            remedy="use bfloat16 instead of float16 (autocast(dtype=torch.bfloat16), Keras "
            "mixed_bfloat16) without a scaler; otherwise lower the learning rate, clip the "
            "gradients after scaler.unscale_(optimizer), and keep losses and norms in float32",
            evidence={
                "steps": [state.step for state in states],
                "scales": [state.scale for state in states],
                "skipped": [state.skipped for state in states],
            },
        )


def _rounded(value: float, *, digits: int) -> float:
    """Return a number rounded to a number of significant digits."""
    return float(f"{value:.{digits - 1}e}")
