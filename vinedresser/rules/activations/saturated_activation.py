"""Rule: tanh or sigmoid units are saturated, and the run does not learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.activation_outputs import outputs_of_activations
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.collections.modules import module_of
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["SaturatedActivation", "mean_slope"]

# Root mean square above which the inputs are blamed for saturating the first layer.
_LARGE_INPUTS = 5.0
# Mean slope at the first check of a layer that was far from saturated.
_STEEP = 0.3
_GROWN = Advice(
    cause="the learning rate is too high: since the start, steps have made the weights so large "
    "that the activations are flat",
    remedy="use a tenth of the learning rate; warm it up, clip the gradient norm",
)


class SaturatedActivation(SymptomRule):
    """Tanh or sigmoid units are saturated, and the run does not learn.

    The slope is 1 - y² for tanh and y (1 - y) for sigmoid, with output y. The mean of the output
    and of its square therefore give the exact mean slope over all units and rows. Fires when the
    mean slope of a layer is below ``slope``, as a share of the maximum slope (1 and 1/4), at
    ``patience`` consecutive checks, in a training that learns less than it should. The last
    activation of a model is ignored: confident predictions are saturated. If the layer was far from
    saturated at the first check, and the loss has risen far above its start since, the fault is
    `learning_rate_too_high`: its steps have made the weights so large.

    Args:
        slope: share of the maximum slope. Normally distributed inputs of unit variance give 0.6,
            those of standard deviation 8 give 0.1.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "saturated_activation"
    stage = "inside"
    consequences = ("outcome", "no_signal", "learning_rate_too_low", "vanishing_gradient")
    position = 330
    predecessors = ("saturated_activation",)
    inapplicable = NETWORKS_ONLY

    def __init__(self, slope: float = 0.1, every: int = 20, patience: int = 3) -> None:
        require_between(0, 1, slope=slope)
        super().__init__(patience)
        self.slope = slope
        self.every = every
        moments = ("mean", "std")
        self.needs = optional_statistics(every, activations=moments, model_inputs=moments)
        self._modules: dict[str, Sequence[str]] = {}
        # Mean slopes at the first check.
        self._first: dict[str, float] = {}

    def on_record(self, info: RunRecord) -> None:
        """Read the modules."""
        self._modules = dict(info.modules)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        slopes = self._slopes(step)
        self._first = {**slopes, **self._first}
        flat = {name: slope for name, slope in slopes.items() if slope < self.slope}
        if not flat:
            return None
        # The first in model order: the layers after it receive saturated inputs.
        first = next(iter(flat))
        grown = self._first[first] > _STEEP and self._risen()
        advice = _GROWN if grown else _advice(step, first, is_first=first == next(iter(slopes)))
        return Symptom(
            tensor=first,
            statistic="mean_slope",
            value=flat[first],
            threshold=self.slope,
            confidence=1 - flat[first] / self.slope / 4,
            seen=f"{len(flat)} of {len(slopes)} tanh and sigmoid layers are saturated: the mean "
            f"slope of {first.removeprefix('outputs/')} is {flat[first]:.1%} of its maximum"
            + (f" ({self._first[first]:.1%} at the first check)" if grown else "")
            + f", less than {self.slope:.0%}",
            fault="learning_rate_too_high" if grown else None,
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"mean_slope": slopes},
        )

    def _risen(self) -> bool:
        """Return whether all losses have risen far above their start."""
        losses = self.outcome.progress.losses.values()
        return bool(losses) and all(loss.thrown_up() for loss in losses)

    def _slopes(self, step: Step) -> dict[str, float]:
        """Return the mean slopes, as shares of the maximum, in model order."""
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
        """Return whether the model ends in anything but the last of these activations."""
        path = module_of(names[-1]) if names else None
        paths = [one for one, words in self._modules.items() if "model" not in words]
        return bool(paths) and path in self._modules and path != paths[-1]


def mean_slope(function: str, mean: float, std: float) -> float | None:
    """Return the mean slope of a function as a share of its maximum, or None if it is NaN.

    Args:
        function: "tanh" or "sigmoid".
        mean: mean of its outputs.
        std: standard deviation of its outputs.
    """
    square = mean * mean + std * std
    slope = 1 - square if function == "tanh" else 4 * (mean - square)
    # Rounding errors can make it negative.
    return None if math.isnan(slope) else max(slope, 0.0)


def _advice(step: Step, name: str, *, is_first: bool) -> Advice:
    """Return the likely cause and the remedy.

    Args:
        step: step at which the model's inputs may have been captured.
        name: name of the first saturated output.
        is_first: whether no activation of the model comes before it.
    """
    layer = name.removeprefix("outputs/")
    stds = step.reduction_of("model_inputs", "std")
    means = step.reduction_of("model_inputs", "mean")
    sizes = [math.hypot(means.get(key, 0.0), std) for key, std in stds.items()]
    if is_first and sizes and max(sizes) > _LARGE_INPUTS:
        return Advice(
            cause=f"the inputs are too large: their root mean square is {max(sizes):.3g}, where "
            f"{layer} is flat",
            remedy="subtract the mean of each input column and divide by its standard deviation",
        )
    return Advice(
        cause=f"the inputs of {layer} are too large: the weights started too large or have grown "
        "too large",
        remedy="use Xavier initialisation, add batch or layer normalisation before it, lower the "
        "learning rate, or replace it with relu",
    )
