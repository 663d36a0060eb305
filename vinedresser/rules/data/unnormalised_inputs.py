"""Rule: the inputs are far larger than a network is designed for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.bounds import require_above
from vinedresser.rules.data.scale_rule import ScaleRule
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.gradients import weights_to_bias
from vinedresser.rules.signals.parameters.model_names import (
    is_recurrent_first,
    normalises,
    normalises_first,
)
from vinedresser.rules.symptom import Symptom
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_CONFIDENCE = 0.8
# Multiple of the largest usual size that does harm whatever is learned.
_HUGE = 1000.0
# The same in front of gates, which are always open or shut then: weights of 1/sqrt(units) multiply
# a few such inputs to more than 5.
_SATURATING = 10.0
# Steps, and the share of a run, after which a training that succeeds all the same has begun to.
_LATE, _LATE_SHARE = 150, 0.4
# Least ratio of the gradients of weights and bias, as a share of the size of the inputs: it is the
# mean over the rows that counts, and that of centred inputs is smaller.
_RECEIVED = 0.1

# Growth since the first check, without a fall, that batches of data do not show.
_GROWN = 2.0


class _Size:
    """The size of an input at its checks so far.

    Args:
        first: size at the first check, if that is over.
    """

    def __init__(self, first: float | None = None) -> None:
        self._first = first
        self._last = 0.0
        self._grows = True

    def add(self, size: float, usual: float) -> bool:
        """Take the size at the next check; return whether it is that of data."""
        if self._first is None:
            self._first = size
        else:
            self._grows = self._grows and size > self._last
        self._last = size
        grown = self._grows and size > _GROWN * self._first
        return self._first > usual and not grown


class UnnormalisedInputs(ScaleRule):
    """The inputs are far larger than a network is designed for.

    Fires when the root mean square of the model's inputs is above ``size`` at ``patience``
    consecutive checks, in a training that learns less than it should, or at the first check at
    which the loss is not finite. Warns whatever the outcome of a root mean square above 1000 times
    ``size`` that reaches the first layer as it is: the gradient of its weights is about as many
    times as large as that of its bias; of ten times ``size`` in front of a recurrent layer, if the
    training does not go well after 150 steps and 40 % of the run. Models with normalising layers
    are exempt from the former, and those whose first layer normalises the inputs, or that mask
    some of them (Keras's Masking), from the whole rule. Integers, such as token
    indices, are ignored, and so are single numbers without rows, and inputs that were absent or of
    a usual size at first, or have grown at each check and doubled: these are not the data, but the
    state of a recurrent network that the loop passes on, for instance. Initialisations preserve the
    size of a signal of unit variance (LeCun et al., "Efficient BackProp", 1998, sec. 4.3). Source:
    UMLAUT (CHI 2021), which warns outside [-1, 1] regardless of the outcome.

    Args:
        size: root mean square. Standardised inputs have 1, pixels from 0 to 255 about 100.
        patience: number of consecutive checks, five steps apart.
    """

    fault = "unnormalised_inputs"
    stage = "data"
    consequences = ("outcome", "inside", "learning_rate_too_high", "loss_scale")
    position = 20
    predecessors = ("check_input_images",)
    inapplicable = Reasons(xgboost="trees split between values of any scale")
    left_out_of = ("language_model",)

    def __init__(self, size: float = 10.0, patience: int = 5) -> None:
        require_above(0, size=size)
        super().__init__(patience)
        self.size = size
        self.batches = Batches()
        self.needs = optional_statistics(20, gradients=("l2",))
        self._normalises = self._recurrent = self._late = False
        self._sizes: dict[str, _Size] = {}
        # Models whose inputs were checked.
        self._called: set[str] = set()
        # Ratio of the gradients of the first layer's weights and bias, when last captured.
        self._received: float | None = None

    def begin(self, info: RunRecord) -> None:
        """Read whether the model normalises its signals."""
        super().begin(info)
        self._done |= normalises_first(info.modules) or _masks(info.modules)
        self._normalises = normalises(info.modules)
        self._recurrent = is_recurrent_first(info.modules)

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: also if far too large inputs reach the first layer."""
        if self._received is None:
            return super().warns_early(symptom, outcome)
        if self._received < _RECEIVED * symptom.value:
            # The model scales them itself.
            return False
        huge = symptom.value >= _HUGE * self.size and not self._normalises
        saturating = symptom.value >= _SATURATING * self.size and self._recurrent
        huge |= saturating and self._late and outcome.verdict().kind != "good"
        return huge or super().warns_early(symptom, outcome)

    def is_checked(self, step: Step) -> bool:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.is_checked`: every train step with captured inputs."""
        return bool(self.batches.inputs)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        self._late = step.step >= max(_LATE, _LATE_SHARE * (self.expected_steps or 0))
        if (ratio := weights_to_bias(step)) is not None:
            self._received = ratio
        found: Symptom | None = None
        for name, values in self.batches.inputs.items():
            # A single number has no rows: it is a setting, such as the number of rows in the step.
            if values.dtype.kind in "biuc" or not values.size or not values.ndim:
                continue
            inputs = np.asarray(values, np.float64)
            size = float(np.sqrt(np.mean(inputs**2)))
            absent = _model(name) in self._called
            sizes = self._sizes.setdefault(name, _Size(0.0 if absent else None))
            of_data = sizes.add(size, self.size)
            if np.isfinite(size) and size > self.size and of_data:
                found = found or self._symptom(name, size, inputs)
        self._called.update(map(_model, self.batches.inputs))
        return found

    def _symptom(self, name: str, size: float, inputs: NDArray[np.float64]) -> Symptom:
        mean, std = float(inputs.mean()), float(inputs.std())
        return Symptom(
            tensor=name,
            statistic="rms",
            value=size,
            threshold=self.size,
            confidence=_CONFIDENCE,
            seen=f"the {name} have a root mean square of {size:.3g} (mean {mean:.3g}, "
            f"standard deviation {std:.3g}); about 1 is normal",
            cause="the inputs are not normalised",
            remedy="subtract the mean of each feature over the training rows and divide by its "
            "standard deviation; divide pixels from 0 to 255 by 255",
            evidence={"rms": size, "mean": mean, "std": std},
        )


def _masks(modules: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a layer leaves inputs out that have a certain value, such as -100."""
    return any(words[0] == "Masking" for words in modules.values())


def _model(name: str) -> str:
    """Return the name of the model that gets an input, such as "inputs/M" of "inputs/M[1][0]"."""
    return name.partition("[")[0]
