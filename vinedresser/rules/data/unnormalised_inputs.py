"""Rule: the inputs are far larger than a network is designed for."""

from __future__ import annotations

import numpy as np

from vinedresser.rules.bounds import require_above
from vinedresser.rules.data.scale_rule import ScaleRule
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.symptom import Symptom
from vinedresser.store.reading.step import Step

_CONFIDENCE = 0.8


class UnnormalisedInputs(ScaleRule):
    """The inputs are far larger than a network is designed for.

    Fires when the root mean square of the model's inputs is above ``size`` at ``patience``
    consecutive checks, in a training that learns less than it should, or at the first check at
    which the loss is not finite. Integers, such as token indices, are ignored. Initialisations
    preserve the size of a signal of unit variance (LeCun et al., "Efficient BackProp", 1998, sec.
    4.3). Source: UMLAUT (CHI 2021), which warns outside [-1, 1] regardless of the outcome.

    Args:
        size: root mean square. Standardised inputs have 1, pixels from 0 to 255 about 100.
        patience: number of consecutive checks, five steps apart.
    """

    fault = "unnormalised_inputs"

    def __init__(self, size: float = 10.0, patience: int = 5) -> None:
        require_above(0, size=size)
        super().__init__(patience)
        self.size = size
        self.batches = Batches()

    def looks_at(self, step: Step) -> bool:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.looks_at`: every train step with captured inputs."""
        return bool(self.batches.inputs)

    def look(self, step: Step) -> Symptom | None:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.look`."""
        for name, values in self.batches.inputs.items():
            if values.dtype.kind in "biuc" or not values.size:
                continue
            inputs = np.asarray(values, np.float64)
            size = float(np.sqrt(np.mean(inputs**2)))
            if np.isfinite(size) and size > self.size:
                return self._symptom(name, size, float(inputs.mean()), float(inputs.std()))
        return None

    def _symptom(self, name: str, size: float, mean: float, std: float) -> Symptom:
        return Symptom(
            tensor=name,
            statistic="rms",
            value=size,
            threshold=self.size,
            confidence=_CONFIDENCE,
            seen=f"{name} has a root mean square of {size:.3g} (mean {mean:.3g}, standard "
            f"deviation {std:.3g}); about 1 is usual",
            cause="the inputs are not normalised",
            remedy="subtract the mean of each feature over the training rows and divide by its "
            "standard deviation; divide pixels from 0 to 255 by 255",
            evidence={"rms": size, "mean": mean, "std": std},
        )
