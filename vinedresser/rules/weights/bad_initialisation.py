"""Rule: the weights began with a size that no signal survives, and the run does not learn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.weight_scale import WeightScale, weight_scales
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["BadInitialisation"]

# Layers that keep the signal at its size whatever the weights are.
_NORMALISING = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "Normalization")
# Scale in He's initialisation (ICCV 2015), which keeps the variance behind a relu.
_HE = math.sqrt(2)


class BadInitialisation(SymptomRule):
    """The weights of most layers began too small, too large, or at zero, and the run learns little.

    The scale of a layer's weights is their root mean square times the root of the layer's width:
    each layer multiplies the size of the signal by it (by 1/sqrt(2) of it, behind a relu). It is
    1.41 in He's initialisation, 1 in Xavier's and LeCun's, 0.58 in PyTorch's default. Fires when,
    at the first look,

    - at least two weight tensors are all zero (one is a common choice for a last layer), or
    - the median scale of the weights is below ``small`` or above ``large``, in a model of at least
      two layers without normalisation,

    and the training learns less than it should. Embeddings and norm layers are left out.

    Args:
        small: median scale below which it fires: with it ten layers leave less than 1e-7 of a
            signal.
        large: median scale above which it fires: twice what He's and orthogonal initialisations
            with the greatest usual gain (5/3, of tanh) have.
        every: train steps from one look to the next.
    """

    fault = "bad_initialisation"

    def __init__(self, small: float = 0.2, large: float = 3.3, every: int = 20) -> None:
        if not 0 < small < large:
            raise ConfigError(
                f"small = {small:g}, large = {large:g}: must be above 0, and small the smaller"
            )
        super().__init__(patience=1)
        self.small = small
        self.large = large
        self.every = every
        self.needs = (
            Need("weights", every=every, reductions=("l2", "std", "mean"), required=False),
        )
        self._modules: dict[str, Sequence[str]] = {}
        self._looked = False
        self._symptom: Symptom | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of the modules, and of when weights are first seen."""
        self._modules = dict(info.modules)
        # After the first step, which may have thrown them anywhere.
        self._looked = info.framework in ("sklearn", "xgboost")

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`: what the weights began with stays true."""
        if not self._looked:
            self._looked = True
            # Weights of a later step are no initial ones.
            if step.step < self.every:
                self._symptom = self._at_first(weight_scales(step, self._modules))
        return self._symptom

    def _at_first(self, scales: dict[str, WeightScale]) -> Symptom | None:
        zero = [name for name, one in scales.items() if one.rms == 0]
        if len(zero) >= 2:
            return self._of_zeros(zero)
        if len(scales) < 2 or self._normalised():
            return None
        sizes = [one.scale for one in scales.values()]
        # Of an even number the more usual of the two in the middle.
        if (scale := statistics.median_high(sizes)) < self.small:
            return self._of_scale(scales, scale)
        if (scale := statistics.median_low(sizes)) > self.large:
            return self._of_scale(scales, scale)
        return None

    def _normalised(self) -> bool:
        return any(part in words[0] for words in self._modules.values() for part in _NORMALISING)

    def _of_zeros(self, zero: list[str]) -> Symptom:
        return Symptom(
            tensor=zero[0],
            statistic="l2",
            value=0.0,
            threshold=0.0,
            confidence=0.99,
            seen=f"{_listed(zero)} began with zeros only",
            cause="zeros let no signal through, and give all units of a layer the same gradient or "
            "none",
            remedy=f"random initial weights for {_listed(zero)}: He's (standard deviation "
            "sqrt(2 / inputs)) before relu, Xavier's (sqrt(2 / (inputs + outputs))) otherwise",
            evidence={"zero": zero},
        )

    def _of_scale(self, scales: dict[str, WeightScale], scale: float) -> Symptom:
        small = scale < self.small
        bad = {
            name: one
            for name, one in scales.items()
            if (one.scale < self.small if small else one.scale > self.large)
        }
        # The layer in the middle: thin ones at the ends have less of a width.
        usual = min(bad, key=lambda name: abs(bad[name].scale - scale))
        one = bad[usual]
        bound = self.small if small else self.large
        margin = scale / bound if small else bound / scale
        effect = (
            f"each such layer passes on about {scale:.2g} of the signal and of the gradient"
            if small
            else f"each such layer multiplies the signal by about {scale:.2g}: it saturates what "
            "is bounded and throws the rest up"
        )
        he = _HE / math.sqrt(one.width) if one.width else 0.0
        return Symptom(
            tensor=usual,
            statistic="std",
            value=scale,
            threshold=bound,
            confidence=1 - margin / 10,
            seen=f"the initial weights have a median scale (root mean square times root of the "
            f"width) of {scale:.2g} where 0.6 to 1.4 is usual: {_listed(list(bad))}",
            cause=f"initial weights that are too {'small' if small else 'large'}: {effect}",
            remedy=f"He or Xavier initialisation: for {usual} a standard deviation of {he:.2g} "
            f"(before relu) or {he / _HE:.2g} (otherwise) instead of {one.rms:.2g}",
            evidence={"scales": {name: each.scale for name, each in scales.items()}},
        )


def _listed(names: list[str]) -> str:
    """Return names in words, the first three of many."""
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"
