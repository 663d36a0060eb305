"""What a decomposition of a model's output found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vinedresser.errors import SaliencyError

__all__ = ["TOLERANCES", "BiasTerm", "Saliency"]

# Largest completeness error of a complete decomposition, by the precision of the outputs.
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}

_Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class BiasTerm:
    """The part of an output that comes from the implicit bias of one call of an operator.

    Attributes:
        layer: path of the module that called it; "" for the model itself.
        operator: name of the operator, such as "convolution" or "silu".
        sums: sum of gradient times implicit bias, float64 [batch].
        in_map: whether its pixels or tokens are known, so that it is part of a FullGrad map.
    """

    layer: str
    operator: str
    sums: npt.NDArray[np.float64]
    in_map: bool


@dataclass(frozen=True)
class Saliency:
    """A saliency map and the decomposition of the output behind it.

    Attributes:
        map: float32 [batch, height, width] if the inputs are [batch, C, H, W], or [batch, tokens]
            if they are token ids; else None.
        targets: index of the output that was explained, int64 [batch].
        outputs: its value, float64 [batch].
        input_term: input times gradient, [batch, ...] in the shape and precision of the inputs; of
            token ids that of their embeddings, [batch, tokens, width].
        attributions: signed contribution of each element of the inputs, in their shape: input times
            gradient, or what the method gives: gradients ("gradient", "smoothgrad") or integrated
            gradients. None for "grad_cam".
        bias_terms: terms of the operators, by name, in the order of the calls.
        tolerance: largest completeness error of a complete decomposition.
        uncovered: operations whose implicit bias is unknown, with their layers.
    """

    map: npt.NDArray[np.float32] | None
    targets: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.float64]
    input_term: _Floats
    attributions: _Floats | None
    bias_terms: dict[str, BiasTerm]
    tolerance: float
    uncovered: tuple[str, ...]

    @property
    def completeness_error(self) -> npt.NDArray[np.float64]:
        """Difference between outputs and the sums of all terms, float64 [batch].

        It is relative to the output, or to the sum of the absolute terms if that is larger: where
        terms cancel, they leave their rounding errors.
        """
        # Terms that are not finite, such as those of a model that diverged, give NaN.
        with np.errstate(invalid="ignore", over="ignore"):
            terms = [
                _per_example(self.input_term),
                *(term.sums for term in self.bias_terms.values()),
            ]
            stacked = np.stack(terms)
            scale = np.maximum(np.abs(self.outputs), np.abs(stacked).sum(0))
            difference = np.abs(self.outputs - stacked.sum(0))
            # Where all terms are zero, so is the difference.
            error: npt.NDArray[np.float64] = difference / np.where(scale == 0, 1, scale)
        return error

    @property
    def unattributed(self) -> npt.NDArray[np.float64]:
        """Part of the outputs that `attributions` leave, float64 [batch].

        For input times gradient that is the sum of the bias terms, which belong to layers and not
        to elements of the input; for integrated gradients the output for an input of zeros.

        Raises:
            SaliencyError: the method does not distribute the output.
        """
        if self.attributions is None:
            raise SaliencyError("the method does not attribute the output to the inputs")
        return self.outputs - _per_example(self.attributions)

    @property
    def complete(self) -> bool:
        """Whether the terms add up to the outputs, within the tolerance."""
        return bool((self.completeness_error <= self.tolerance).all())

    def __str__(self) -> str:
        error = float(self.completeness_error.max())
        if self.complete:
            return f"complete (relative error {error:.1g})"
        found = ", ".join(self.uncovered) or "no operation was found that could be the cause"
        return f"incomplete (relative error {error:.1g}); not covered: {found}"


def _per_example(values: _Floats) -> npt.NDArray[np.float64]:
    sums: npt.NDArray[np.float64] = values.reshape(len(values), -1).sum(1, dtype=np.float64)
    return sums
