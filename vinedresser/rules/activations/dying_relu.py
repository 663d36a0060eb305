"""Rule: most relu units are zero for all inputs, and the run does not learn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_share
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.activation_outputs import outputs_of_activations
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.rules.signals.parameters.update_ratios import USUAL_CHANGE, UpdateRatios
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_RELUS = ("relu", "relu6", "threshold")
_STATISTIC = "channel_zero_share"
# Share of dead units at first of a layer that was alive, and ratio of an update to the weights that
# can kill units that were alive.
_ALIVE, _LONG = 0.5, 0.03


class DyingRelu(SymptomRule):
    """Most relu units are zero for all inputs, and the run does not learn.

    A unit whose output is zero receives no gradient, so a unit that is zero for all inputs stays
    zero (Lu et al., "Dying ReLU and initialization", 2019). A unit counts as dead if its output was
    zero for every row of the last ``patience`` checked batches. Fires when at least ``layer`` of
    the units of one relu layer are dead, or at least ``model`` of the units on average over all
    relu layers, in a training that learns less than it should. Warns at once of a layer without a
    living unit if simple models are far better so far. The cause is a learning rate that is too
    high if half of the units of a layer were alive at the first check, and a step has changed the
    weights by more than 3 % of their norm since (`UpdateRatios`).

    Args:
        layer: share of dead units in one layer; a layer without active units passes no signal.
        model: mean share of dead units over all relu layers; healthy convolutional networks reach
            up to a quarter.
        every: train steps between checks.
        patience: number of checks for which a unit must be zero.
    """

    fault = "dying_relu"
    stage = "inside"
    consequences = ("outcome", "no_signal", "learning_rate_too_low", "vanishing_gradient")
    position = 320
    predecessors = ("dead_relu",)
    inapplicable = NETWORKS_ONLY

    def __init__(
        self, layer: float = 0.9, model: float = 0.5, every: int = 20, patience: int = 3
    ) -> None:
        require_share(layer=layer, model=model)
        super().__init__(patience)
        self.layer = layer
        self.model = model
        self.every = every
        self.needs = optional_statistics(every, activations=(_STATISTIC,))
        self._modules: dict[str, Sequence[str]] = {}
        self._rate: LearningRate | None = None
        self.updates = UpdateRatios(20)
        self._zero: dict[str, deque[NDArray[np.bool_]]] = {}
        # Share of zero units at the first check.
        self._first: dict[str, float] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate."""
        self._rate = LearningRate.among(info.parameters)

    def on_record(self, info: RunRecord) -> None:
        """Read the modules."""
        self._modules = dict(info.modules)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        dead = self._dead(step)
        if not dead:
            return None
        worst = max(dead, key=dead.__getitem__)
        mean = sum(dead.values()) / len(dead)
        if dead[worst] >= self.layer:
            value, threshold, where = (
                dead[worst],
                self.layer,
                f"the units of {worst.removeprefix('outputs/')}",
            )
        elif mean >= self.model:
            value, threshold, where = mean, self.model, f"the units of {len(dead)} relu layers"
        else:
            return None
        rate = self._rate.scaled(0.1) if self._rate else "divide the learning rate by 10"
        step_in_words = self._killing_step(worst)
        return Symptom(
            tensor=worst,
            statistic=_STATISTIC,
            value=value,
            threshold=threshold,
            confidence=0.95,
            seen=f"{value:.0%} of {where} were zero for all rows of the last {self.patience} "
            f"checked batches{step_in_words}",
            fault="learning_rate_too_high" if step_in_words else None,
            correction=self._rate.corrected(0.1) if self._rate and step_in_words else {},
            cause="the learning rate is too high: a step moved the units below zero for all "
            "inputs, where they receive no gradient and cannot recover"
            if step_in_words
            else "relu units that are below zero for all inputs receive no gradient and cannot "
            "recover: the network is too deep and narrow, biases are far below zero, or steps "
            "were too large",
            remedy="replace relu with leaky relu or elu; use He initialisation with zero biases; "
            f"{rate}",
            evidence={"dead": dead},
        )

    def may_recover(self, symptom: Symptom) -> bool:
        """See `SymptomRule.may_recover`: the living units of each layer may learn."""
        return symptom.value < 1.0

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: nothing passes a layer without a living unit."""
        return symptom.value == 1.0 and outcome.nothing_learned()

    def _finding(self, verdict: Verdict, severity: Severity | None = None) -> Finding:
        found = super()._finding(verdict, severity)
        # The rule checks at step 0, before the first update.
        return replace(found, since=0) if self._first[found.tensor] >= self.layer else found

    def _killing_step(self, name: str) -> str:
        """Return words on the step that killed the units of a layer; "" if there is none."""
        greatest = self.updates.greatest
        if self._first[name] > _ALIVE or greatest is None or not greatest.longer_than(_LONG):
            return ""
        return (
            f"; {self._first[name]:.0%} were at the first check, and step {greatest.step} changed "
            f"the weights by {greatest.median:.1e}× their size ({USUAL_CHANGE})"
        )

    def _dead(self, step: Step) -> dict[str, float]:
        """Return the share of dead units of each relu layer that has been checked often enough."""
        shares = step.vectors_of("activations", _STATISTIC)
        found = {}
        for name in outputs_of_activations(shares, _RELUS, self._modules):
            zero = shares[name] == 1
            seen = self._zero.setdefault(name, deque(maxlen=self.patience))
            self._first.setdefault(name, float(zero.mean()) if zero.size else 1.0)
            if seen and seen[0].shape != zero.shape:
                seen.clear()
            seen.append(zero)
            if len(seen) == self.patience and zero.size:
                found[name] = float(np.logical_and.reduce(list(seen)).mean())
        return found
