"""Reading from a run what criteria need measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.criteria.criterion import Floats, Measured, Measurement
from vinedresser.pruning.group import Group, Role, layer_of
from vinedresser.store.reading.reader import Run

__all__ = ["read_measured"]

_ROLES: dict[Measurement, Role] = {"input_taylor": "input", "weight_taylor": "filter"}


def _tensors(
    groups: Iterable[Group], measurements: Iterable[Measurement]
) -> dict[str, tuple[Measurement, str]]:
    """Return the names under which a hook captures what is to be measured.

    Args:
        measurements: what the criterion needs.

    Returns:
        By full name of the captured tensor, the measurement and the weight that it belongs to.
    """
    found: dict[str, tuple[Measurement, str]] = {}
    for measurement in measurements:
        for group in groups:
            for member in group.of_role(_ROLES[measurement]):
                # The input belongs to the layer, the other products to the weight itself.
                path = member.tensor if measurement == "weight_taylor" else layer_of(member.tensor)
                found[f"{measurement}/{path}"] = measurement, member.tensor
    return found


def read_measured(
    run: Run, groups: Sequence[Group], measurements: Sequence[Measurement]
) -> Measured:
    """Return what a run has measured.

    Args:
        run: a run that captured the collections of that name at some steps.
        measurements: what the criterion needs.

    Raises:
        PruningError: it captured none of it, or a value is not finite.
        StoreError: the run cannot be read.
    """
    measured: dict[Measurement, dict[str, list[Floats]]] = {one: {} for one in measurements}
    names = set(run.tensor_names())
    for name, (measurement, tensor) in _tensors(groups, measurements).items():
        # A layer that is called several times has a number from the second call on.
        calls = [one for one in names if one == name or one.startswith(f"{name}#")]
        if calls:
            steps = set.intersection(*(set(run.tensor(call).steps().tolist()) for call in calls))
            measured[measurement][tensor] = [_step(run, calls, step) for step in sorted(steps)]
    for one, found in measured.items():
        if not any(found.values()):
            raise PruningError(f"{run.path}: no {one} of this model; capture the collection {one}")
    return measured


def _step(run: Run, calls: Sequence[str], step: int) -> Floats:
    """Return what all calls of a layer measured at a step, one after the other."""
    values = [np.asarray(run.tensor(call).value(step), dtype=np.float64) for call in calls]
    for call, value in zip(calls, values, strict=True):
        if not np.isfinite(value).all():
            raise PruningError(f"{run.path}: {call}, step {step}: not finite")
    return values[0] if len(values) == 1 else np.concatenate(values)
