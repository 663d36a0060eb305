"""What the captured terms leave of the whole, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reading.reader import Run

__all__ = ["uncovered"]

_MOST_NAMED = 4


def uncovered(
    run: Run,
    root: str,
    rests: Mapping[str, NDArray[Any]],
    tolerance: float,
    scale: NDArray[np.float64],
) -> tuple[str, ...]:
    """Return the modules whose own part of the loss's gradient is in no term, the largest first.

    Args:
        root: path of the model.
        rests: by name of a call, the part that the calls inside leave, [K].
        tolerance: largest part that counts as none.
        scale: sum of the magnitudes of the terms, float64 [K].
    """
    if not np.isfinite(scale).all():
        return ("terms that are not finite",)
    shares = {name: _share(rest, scale) for name, rest in rests.items()}
    names = sorted(shares, key=lambda name: -shares[name])
    return tuple(
        _sentence(run, root, name.removesuffix("[rest]"), shares[name])
        for name in names
        if shares[name] > tolerance
    )[:_MOST_NAMED]


def _share(rest: NDArray[Any], scale: NDArray[np.float64]) -> float:
    return float((np.abs(rest) / np.where(scale == 0, 1, scale)).max())


def _sentence(run: Run, root: str, call: str, share: float) -> str:
    """Return what may be the cause, with its share of all terms."""
    path = call.partition("#")[0]
    silent = _silent(run, root, path)
    what = f"functions that {path} calls" + (f", or {', '.join(silent)}" if silent else "")
    return f"{what} ({share:.2g} of all terms)"


def _silent(run: Run, root: str, path: str) -> list[str]:
    """Return the modules directly inside a module that have no terms."""
    names = [name.partition("/")[2] for name in run.tensor_names(collection="loss_terms")]
    known = {name.partition("[")[0].partition("#")[0] for name in names}
    # The paths of a model begin with its name, if it was watched under one.
    named = any(module.startswith(f"{root}.") for module in run.info.modules)
    prefix = f"{path}." if named or path != root else ""
    inside = [
        module
        for module in run.info.modules
        if module != root and module.startswith(prefix) and "." not in module.removeprefix(prefix)
    ]
    return [
        one
        for one in inside
        if not any(other == one or other.startswith(f"{one}.") for other in known)
    ][:_MOST_NAMED]
