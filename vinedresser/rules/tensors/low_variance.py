"""Rule: layer outputs hardly vary in a run that does not learn."""

from __future__ import annotations

import math

from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_between, require_share
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step


class LowVariance(SymptomRule):
    """The outputs of most activations hardly vary, and the run does not learn.

    Let v = std / sqrt(mean² + std²) over all elements of an output, 0 if all are equal. Fires when
    v is below ``share`` in at least ``tensors`` of them (or of another collection) at ``patience``
    consecutive checks, in a training that learns less than it should.

    Args:
        collection: collection of the tensors.
        share: upper bound of v; float32 resolves 1e-7.
        tensors: share of the tensors.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "low_variance"
    stage = "inside"
    consequences = ("outcome",)
    position = 360
    predecessors = ("tensor_variance",)
    inapplicable = NETWORKS_ONLY

    def __init__(
        self,
        collection: str = "activations",
        share: float = 1e-3,
        tensors: float = 0.5,
        every: int = 20,
        patience: int = 3,
    ) -> None:
        require_between(0, 1, share=share)
        require_share(tensors=tensors)
        super().__init__(patience)
        self.collection = collection
        self.share = share
        self.tensors = tensors
        self.every = every
        self.needs = optional_statistics(every, **{collection: ("mean", "std")})

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`; all-zero tensors are left to `AllZero`."""
        means = step.reduction_of(self.collection, "mean")
        stds = step.reduction_of(self.collection, "std")
        shares = {
            name: std / size
            for name, std in stds.items()
            if name in means and 0 < (size := math.hypot(means[name], std)) < math.inf
        }
        flat = [name for name, share in shares.items() if share < self.share]
        if not flat or len(flat) < self.tensors * len(shares):
            return None
        least = min(flat, key=shares.__getitem__)
        return Symptom(
            tensor=least,
            statistic="std",
            value=shares[least],
            threshold=self.share,
            confidence=0.9,
            seen=f"{len(flat)} of {len(shares)} {self.collection} hardly vary: {least} by "
            f"{shares[least]:.1e} of its magnitude",
            cause="the inputs have no effect: small weights with large biases, saturation, or "
            "nearly equal inputs",
            remedy="normalise the inputs; use He or Xavier initialisation; add batch or layer "
            "normalisation between the layers",
            evidence={"shares": shares},
        )
