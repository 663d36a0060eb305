"""Rule: tanh or sigmoid units are in the flat parts of their curves, and the run does not learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.advice import Advice
from vinedresser.rules.need import Need
from vinedresser.rules.signals.activation_outputs import outputs_of_activations
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.collections.modules import module_of

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["SaturatedActivation", "mean_slope"]

# Root mean square of inputs above which they are what drives the first layer into saturation.
_LARGE_INPUTS = 5.0


class SaturatedActivation(SymptomRule):
    """Tanh or sigmoid units are in the flat parts of their curves, and the run does not learn.

    The slope of tanh is 1 - y², that of the sigmoid y (1 - y), y being the output; so the mean of
    the output and of its square give the mean slope exactly, over all units and rows. Fires when it
    is below ``slope``, as a share of the greatest there is (1 and 1/4), in some layer at
    ``patience`` looks in a row, in a training that learns less than it should. The last of a
    model's activations is left out: a sure prediction is saturated.

    Args:
        slope: share of the greatest slope. Normal inputs of unit variance have 0.6, those of
            standard deviation 8 have 0.1.
        every: train steps from one look to the next.
        patience: looks in a row.
    """

    fault = "saturated_activation"

    def __init__(self, slope: float = 0.1, every: int = 20, patience: int = 3) -> None:
        if not 0 < slope < 1:
            raise ConfigError(f"slope = {slope:g}: must lie between 0 and 1")
        super().__init__(patience)
        self.slope = slope
        self.every = every
        self.needs = (
            Need("activations", every=every, reductions=("mean", "std"), required=False),
            Need("model_inputs", every=every, reductions=("mean", "std"), required=False),
        )
        self._modules: dict[str, Sequence[str]] = {}

    def begin(self, info: RunRecord) -> None:
        """Take note of the modules."""
        self._modules = dict(info.modules)

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        slopes = self._slopes(step)
        flat = {name: slope for name, slope in slopes.items() if slope < self.slope}
        if not flat:
            return None
        # The first in the order of the model: what lies behind it gets saturated inputs.
        first = next(iter(flat))
        advice = _advice(step, first, is_first=first == next(iter(slopes)))
        return Symptom(
            tensor=first,
            statistic="mean_slope",
            value=flat[first],
            threshold=self.slope,
            confidence=1 - flat[first] / self.slope / 4,
            seen=f"the mean slope of {first} is {flat[first]:.2g} of the greatest there is; "
            f"{len(flat)} of {len(slopes)} such layers are below {self.slope:g}",
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"mean_slope": slopes},
        )

    def _slopes(self, step: Step) -> dict[str, float]:
        """Return the mean slopes, as shares of the greatest, in the order of the model."""
        means = step.reduction_of("activations", "mean")
        stds = step.reduction_of("activations", "std")
        names = list(means)
        inner = names if self._ends_otherwise(names) else names[:-1]
        functions = outputs_of_activations(inner, ("tanh", "sigmoid"), self._modules)
        return {
            name: slope
            for name, function in functions.items()
            if name in stds and (slope := mean_slope(function, means[name], stds[name])) is not None
        }

    def _ends_otherwise(self, names: list[str]) -> bool:
        """Say whether the model ends in something else than the last of these activations."""
        path = module_of(names[-1]) if names else None
        paths = [one for one, words in self._modules.items() if "model" not in words]
        return bool(paths) and path in self._modules and path != paths[-1]


def mean_slope(function: str, mean: float, std: float) -> float | None:
    """Return the mean slope of a function as a share of its greatest; None where it is NaN.

    Args:
        function: "tanh" or "sigmoid".
        mean: of its outputs.
        std: of its outputs.
    """
    square = mean * mean + std * std
    slope = 1 - square if function == "tanh" else 4 * (mean - square)
    # Rounding may bring it below 0.
    return None if math.isnan(slope) else max(slope, 0.0)


def _advice(step: Step, name: str, *, is_first: bool) -> Advice:
    """Return the likely cause and the remedy.

    Args:
        step: where the model's inputs were captured too, or not.
        name: of the first saturated output.
        is_first: of all such outputs of the model.
    """
    stds = step.reduction_of("model_inputs", "std")
    means = step.reduction_of("model_inputs", "mean")
    sizes = [math.hypot(means.get(key, 0.0), std) for key, std in stds.items()]
    if is_first and sizes and max(sizes) > _LARGE_INPUTS:
        return Advice(
            cause=f"inputs that are too large: their root mean square is {max(sizes):.3g}, which "
            f"{name} has no slope for",
            remedy="subtract the mean of each input column and divide by its standard deviation",
        )
    return Advice(
        cause=f"what {name} is given is too large: weights that began, or have become, too large",
        remedy="Xavier initialisation, batch or layer normalisation before it, a lower learning "
        "rate, or relu in its place",
    )
