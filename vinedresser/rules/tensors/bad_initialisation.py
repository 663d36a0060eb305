"""Rule: the initial size of the weights destroys any signal, and the run does not learn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from vinedresser.rules.advice import listed, random_initialisation
from vinedresser.rules.applicability import AFTER_THE_FIRST_STEP, NO_NETWORK, Reasons
from vinedresser.rules.bounds import require_above
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.model_names import ModelNames, normalises
from vinedresser.rules.signals.parameters.weight_scale import WeightScale, weight_scales
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.collections.modules import module_of
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Scale of He initialisation (ICCV 2015), which preserves the variance after relu.
_HE = math.sqrt(2)
# Checks at which weights are zero or tiny that stay so, and factors of the bounds of scales beyond
# which they do harm whatever the outcome.
_STILL = 3
_FAR_BELOW, _FAR_ABOVE = 0.1, 3.0
# Growth of tiny weights since the first check that shows that they do not stay so, and the checks,
# in their interval, that it may take.
_GROWN, _GROWING = 2.0, 2


class BadInitialisation(SymptomRule):
    """Most initial weights are too small, too large or zero, and the run learns little.

    The scale of a layer's weights is their root mean square times the square root of the layer's
    width. Each layer multiplies the size of the signal by its scale (by 1/sqrt(2) of it after
    relu). The scale is 1.41 for He, 1 for Xavier and LeCun initialisation, and 0.58 by default in
    PyTorch. Fires when, at the first check,

    - at least two weight tensors are all zero (a single one is common in a last layer), or
    - the median scale of the weights of a model is below ``small`` or above ``large``, if it has at
      least two layers and no normalisation,

    and the training learns less than it should. Warns whatever the outcome of weights that are
    still zero at the third check (those of adapters are zero at first only), of a median scale that
    is below a tenth of ``small`` and has not doubled in twice ``every`` steps (Adam makes tiny
    weights grow at once), and of one above three times ``large``. Embeddings, norm layers and
    weights that are not trained are ignored.

    Args:
        small: minimum median scale; at 0.2, ten layers leave less than 1e-7 of a signal.
        large: maximum median scale; 3.3 is twice the scale of He initialisation and of orthogonal
            initialisation with the largest usual gain (5/3, for tanh).
        every: train steps between checks.
    """

    fault = "bad_initialisation"
    stage = "model"
    consequences = ("outcome", "inside", "learning_rate_too_high", "identical_units", "loss_scale")
    position = 180
    predecessors = ("poor_weight_initialization",)
    inapplicable = Reasons(xgboost=NO_NETWORK, sklearn=AFTER_THE_FIRST_STEP)

    def __init__(self, small: float = 0.2, large: float = 3.3, every: int = 20) -> None:
        require_above(0, small=small)
        require_above(small, large=large)
        super().__init__(patience=1)
        self.small = small
        self.large = large
        self.every = every
        self.needs = optional_statistics(every, weights=("l2", "std", "mean"))
        self._modules: dict[str, Sequence[str]] = {}
        self._models = ModelNames()
        self._untrained: frozenset[str] = frozenset()
        self._checked = False
        # Checks at which the weights that began as zero or tiny still are, and the last such step.
        self._still = 0
        self._until = 0
        self._symptom: Symptom | None = None

    def begin(self, info: RunRecord) -> None:
        """Read whether the initial weights are captured."""
        # These report weights only after the first step, which may have changed them arbitrarily.
        self._checked = info.framework in ("sklearn", "xgboost")

    def on_record(self, info: RunRecord) -> None:
        """Read the modules."""
        self._modules = dict(info.modules)
        self._models = ModelNames(info)
        self._untrained = frozenset((*info.frozen, *info.unoptimized))

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`; the initial symptom remains."""
        if not self._checked:
            self._checked = True
            # Weights of a later step are not the initial ones: a loop without an optimizer is known
            # as a training only when it has updated them.
            if step.step == 0:
                self._symptom = self._at_first(self._scales(step))
        if self._symptom is not None and self._unchanged(self._symptom, self._scales(step)):
            self._still += 1
            self._until = step.step
        return self._symptom

    def _unchanged(self, symptom: Symptom, scales: dict[str, WeightScale]) -> bool:
        """Return whether the weights of a symptom still are zero, or as tiny."""
        names = symptom.evidence.get("zero", symptom.evidence.get("scales", {}))
        if not all(name in scales for name in names):
            return False
        if "zero" in symptom.evidence:
            return all(scales[name].rms == 0 for name in names)
        scale = statistics.median_high(scales[name].scale for name in names)
        return scale < min(self.small * _FAR_BELOW, _GROWN * symptom.value)

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:  # noqa: ARG002 (always)
        """See `SymptomRule.warns_early`: no or hardly any signal passes, or far too large a one."""
        if "zero" in symptom.evidence:
            return self._still >= _STILL
        # Tensors without a module may be no matrices that multiply a signal.
        known = all(module_of(name) in self._modules for name in symptom.evidence["scales"])
        still = self._still >= _STILL and self._until >= _GROWING * self.every
        return known and (still or symptom.value > self.large * _FAR_ABOVE)

    def _scales(self, step: Step) -> dict[str, WeightScale]:
        """Return the scales of the trained weights."""
        scales = weight_scales(step, self._modules)
        return {name: one for name, one in scales.items() if name not in self._untrained}

    def _at_first(self, scales: dict[str, WeightScale]) -> Symptom | None:
        zero = [name for name, one in scales.items() if one.rms == 0]
        if len(zero) >= 2:
            return self._of_zeros(zero)
        if normalises(self._modules):
            return None
        models = self._models.grouped(scales)
        found = (self._of_model({name: scales[name] for name in names}) for names in models)
        return next((one for one in found if one is not None), None)

    def _of_model(self, scales: dict[str, WeightScale]) -> Symptom | None:
        if len(scales) < 2:
            return None
        sizes = [one.scale for one in scales.values()]
        # With an even number of layers, use the more usual of the two middle ones.
        if (scale := statistics.median_high(sizes)) < self.small:
            return self._of_scale(scales, scale)
        if (scale := statistics.median_low(sizes)) > self.large:
            return self._of_scale(scales, scale)
        return None

    def _of_zeros(self, zero: list[str]) -> Symptom:
        return Symptom(
            tensor=zero[0],
            statistic="l2",
            value=0.0,
            threshold=0.0,
            confidence=0.99,
            seen=f"the initial weights of {listed(zero)} are all zero",
            cause="zero weights pass no signal, and all units of a layer receive the same "
            "gradient or none",
            remedy=random_initialisation(zero),
            evidence={"zero": zero},
        )

    def _of_scale(self, scales: dict[str, WeightScale], scale: float) -> Symptom:
        small = scale < self.small
        bad = {
            name: one
            for name, one in scales.items()
            if (one.scale < self.small if small else one.scale > self.large)
        }
        # The middle layer: thin layers at the ends have a smaller width.
        usual = min(bad, key=lambda name: abs(bad[name].scale - scale))
        one = bad[usual]
        bound = self.small if small else self.large
        margin = scale / bound if small else bound / scale
        effect = (
            f"each such layer passes about {scale:.2g} of the signal and of the gradient"
            if small
            else f"each such layer multiplies the signal by about {scale:.2g}, which saturates "
            "bounded activations and blows up others"
        )
        he = _HE / math.sqrt(one.width) if one.width else 0.0
        return Symptom(
            tensor=usual,
            statistic="std",
            value=scale,
            threshold=bound,
            confidence=1 - margin / 10,
            seen=f"the initial weights of {listed(list(bad))} are {scale:.2g}× the size that "
            "preserves a signal (median; normal: 0.6× to 1.4×)",
            cause=f"the initial weights are too {'small' if small else 'large'}: {effect}",
            remedy=f"use He or Xavier initialisation: for {usual} a standard deviation of "
            f"{he:.2g} (before relu) or {he / _HE:.2g} (otherwise) instead of {one.rms:.2g}",
            evidence={"scales": {name: each.scale for name, each in scales.items()}},
        )
