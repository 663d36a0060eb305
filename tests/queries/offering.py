"""Events with known values, for tests of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vinedresser.queries.numeric import Numeric
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.observables import Moment, Observables

__all__ = ["event"]


def event(
    values: Mapping[str, Any],
    step: int = 0,
    *,
    kind: str = "step",
    mode: str = "train",
    time: float | None = None,
    numeric: Numeric | None = None,
) -> Observables:
    """Return an event that offers values; those that are functions are called when read."""

    def offer(value: Any) -> Callable[[], Any]:
        if callable(value):
            called: Callable[[], Any] = value
            return called
        return lambda: value

    return Observables(
        Moment(kind, step, mode, 0, 1e9 + step if time is None else time),
        {name: offer(value) for name, value in values.items()},
        numeric or NumpyNumeric(),
    )
