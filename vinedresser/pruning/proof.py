"""The proof that a pruned model computes what the original computes without its channels."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.cost import cost
from vinedresser.pruning.plan import Plan, plan_from_json
from vinedresser.pruning.prunable import Outputs, Prunable, Variant

__all__ = ["Check", "Proof", "global_generators_kept", "prove", "relative_difference"]

Model = TypeVar("Model")

_LIMITS: dict[Variant, float] = {"float32": 1e-5, "float64": 1e-12, "redrawn": 1e-12}


@dataclass(frozen=True)
class Check:
    """One check of a pruned model.

    Attributes:
        figure: what was measured.
        limit: the most that it may be.
    """

    name: str
    figure: float
    limit: float


@dataclass(frozen=True)
class Proof:
    """What was checked after a removal; every check passed.

    Attributes:
        checks: the checks, in the order in which they were made.
        count: number of removed filters.
        parameters: number of elements of parameters before and after the removal.
    """

    checks: tuple[Check, ...]
    count: int
    parameters: tuple[int, int]


def prove(prunable: Prunable[Model], plan: Plan, pruned: Model, *, count: int) -> Proof:
    """Check a pruned model against the original.

    Args:
        plan: what was removed.
        pruned: the model that the plan made of it.
        count: number of filters that were to be removed.

    Raises:
        PruningError: a check failed; the message says which, and by how much.
    """
    checks = [_check("filters removed, besides those asked for", abs(plan.count - count), 0)]
    for variant, limit in _LIMITS.items():
        masked, computed = prunable.compared(plan, variant)
        if variant != "redrawn" and any(np.isnan(one).any() for one in masked):
            raise PruningError("the model computes NaN for the example, so nothing can be checked")
        name = f"relative difference from the masked original, {variant}"
        checks.append(_check(name, relative_difference(masked, computed), limit))
    replayed = prunable.removed(plan_from_json(plan.to_json(), source="the plan"))
    ours, theirs = prunable.outputs(pruned), prunable.outputs(replayed)
    same = len(ours) == len(theirs) and all(map(_same_bits, ours, theirs))
    checks.append(_check("outputs that a replay of the plan does not reproduce", not same, 0))
    shapes = {name: tensor.shape for name, tensor in prunable.tensors().items()}
    sizes = [
        cost(shapes, prunable.parameters, {}, {}, removal).parameters for removal in (None, plan)
    ]
    return Proof(tuple(checks), plan.count, (sizes[0], sizes[1]))


def _check(name: str, figure: float, limit: float) -> Check:
    # A comparison with NaN is False, so it fails, too.
    if not figure <= limit:
        raise PruningError(f"the pruned model is refused: {name}: {figure:.3g}, at most {limit:g}")
    return Check(name, float(figure), limit)


def _same_bits(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True))


def relative_difference(expected: Outputs, found: Outputs) -> float:
    """Return the largest difference of outputs, relative to the largest value of each output.

    Args:
        expected: the outputs of the reference.
        found: the outputs that are compared with it.

    Returns:
        Infinity if their number or a shape differs, or a value is finite in only one of them.
    """
    if [one.shape for one in expected] != [one.shape for one in found]:
        return float("inf")
    return max(map(_difference, expected, found), default=0.0)


def _difference(expected: Any, found: Any) -> float:
    same = (expected == found) | ((expected != expected) & (found != found))  # noqa: PLR0124  # NaN
    if same.all():
        return 0.0
    one, other = (
        each[~same].astype(np.result_type(each, np.float64)) for each in (expected, found)
    )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf")
    largest = np.abs(expected[np.isfinite(expected)]).max()
    return float(np.abs(one - other).max() / largest) if largest > 0 else float("inf")


@contextmanager
def global_generators_kept(seed: int = 0) -> Iterator[None]:
    """Seed the generators of Python and NumPy for a model's code, and restore them afterwards."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
