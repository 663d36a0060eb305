"""Rule: mixed-precision gradients overflow repeatedly."""

from __future__ import annotations

import math
import re
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.need import Need
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
_CONFIDENCE = 0.85


class _ScalerState(NamedTuple):
    """State of a scaler at a step."""

    step: int
    scale: float
    skipped: float


class MixedPrecision(OnceRule):
    """Mixed-precision gradients overflow repeatedly.

    A loss scaler halves its scale and skips the step whenever a gradient is not finite, and doubles
    the scale after many steps without overflow (2000 by default). A healthy training therefore
    skips one step in thousands. Fires when, after step 50 and over ``patience`` consecutive checks,
    more than ``skipped`` of the steps were skipped, the scale decreased at each check, or it has
    decreased to 1 or below: then the unscaled gradients overflow, and no scale can help. bfloat16
    needs no scaler. Source: Micikevicius et al., "Mixed precision training" (ICLR 2018), section
    3.2; PyTorch's and Keras's documentation of their scalers.

    Args:
        skipped: share of skipped steps.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "mixed_precision"

    def __init__(self, skipped: float = 0.1, every: int = 20, patience: int = 3) -> None:
        require_between(0, 1, skipped=skipped)
        require_at_least(1, every=every, patience=patience)
        self.skipped = skipped
        self.every = every
        self.patience = patience
        self.needs = (
            Need("state", every=every, required=False),
            Need("loss_scale", every=every, regex=_OF_OPTIMIZER, required=False),
        )
        self._states: dict[str, deque[_ScalerState]] = {}
        self._highest: dict[str, float] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for name, scale in step.scalars.items():
            if not (_SCALE.match(name) and math.isfinite(scale)):
                continue
            prefix = _OWN.sub("", name.partition("/")[2])
            skipped = step.scalars.get(f"state/{prefix}skipped_steps", 0.0)
            state = _ScalerState(step.step, scale, skipped)
            self._highest[name] = max(self._highest.get(name, scale), scale)
            states = self._states.setdefault(name, deque(maxlen=self.patience + 1))
            if step.step >= _SEARCH:
                states.append(state)
            if len(states) > self.patience and (found := self._judged(step, name, list(states))):
                return found
        return None

    def _judged(self, step: Step, name: str, states: list[_ScalerState]) -> Finding | None:
        """Return the finding from consecutive checks, if any."""
        first, last = states[0], states[-1]
        # The counter falls where a training was resumed.
        skipped = max(last.skipped - first.skipped, 0.0)
        # Skipped steps are not counted as steps.
        share = skipped / (skipped + last.step - first.step)
        highest = self._highest[name]
        measured = ("scale", last.scale, _LEAST_SCALE)
        if share > self.skipped:
            measured = ("skipped", share, self.skipped)
            seen = f"{share:.0%} of the steps from {first.step} to {last.step} were skipped"
        elif all(one.scale <= _LEAST_SCALE for one in states) and last.scale < highest:
            seen = f"the loss scale has decreased from {highest:g} to {last.scale:g}"
        elif all(now.scale < before.scale for before, now in pairwise(states)):
            measured = ("scale", last.scale, first.scale)
            seen = f"the loss scale decreased from {first.scale:g} to {last.scale:g} within "
            seen += f"{last.step - first.step} steps without ever increasing"
        else:
            return None
        return self._finding(step, name, states, measured, seen)

    def _finding(
        self,
        step: Step,
        name: str,
        states: list[_ScalerState],
        measured: tuple[str, float, float],
        seen: str,
    ) -> Finding:
        """Return the finding.

        Args:
            step: step of the finding.
            name: name of the scale.
            states: consecutive checks.
            measured: statistic, value and threshold.
            seen: observation.
        """
        statistic, value, threshold = measured
        return self.found(
            step,
            since=states[0].step,
            tensor=name,
            statistic=statistic,
            value=value,
            threshold=threshold,
            confidence=_CONFIDENCE,
            seen=seen,
            cause="gradients or activations overflow float16 (above 65,504) at every step: the "
            "training diverges, or the values of some layer are too large",
            remedy="use bfloat16 instead of float16 (autocast(dtype=torch.bfloat16), Keras "
            "mixed_bfloat16) without a scaler; otherwise lower the learning rate, clip the "
            "gradients after scaler.unscale_(optimizer), and keep losses and norms in float32",
            evidence={
                "steps": [one.step for one in states],
                "scales": [one.scale for one in states],
                "skipped": [one.skipped for one in states],
            },
        )
