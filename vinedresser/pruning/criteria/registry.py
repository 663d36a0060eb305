"""The built-in criteria by name."""

from __future__ import annotations

from vinedresser.errors import PruningError, did_you_mean
from vinedresser.pruning.criteria.batch_norm_scale import BatchNormScale
from vinedresser.pruning.criteria.criterion import Criterion
from vinedresser.pruning.criteria.geometric_median import GeometricMedian
from vinedresser.pruning.criteria.lamp import Lamp
from vinedresser.pruning.criteria.norms import L1Norm, L2Norm
from vinedresser.pruning.criteria.random_order import RandomOrder
from vinedresser.pruning.criteria.taylor import SignedTaylor, TaylorActivation, TaylorWeight

__all__ = ["CRITERIA", "criterion_named"]

CRITERIA: dict[str, type[Criterion]] = {
    one.name: one
    for one in (
        L1Norm,
        L2Norm,
        BatchNormScale,
        GeometricMedian,
        TaylorActivation,
        TaylorWeight,
        SignedTaylor,
        Lamp,
        RandomOrder,
    )
}


def criterion_named(name: str) -> Criterion:
    """Return the built-in criterion with a name.

    Raises:
        PruningError: there is none; the message suggests valid names.
    """
    if name not in CRITERIA:
        hint = did_you_mean(name, CRITERIA) or f"; criteria are {', '.join(CRITERIA)}"
        raise PruningError(f"{name!r} is not a criterion{hint}")
    return CRITERIA[name]()
