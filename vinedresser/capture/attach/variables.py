"""Names of variables in the calling code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

__all__ = ["names_of_tensors", "variable"]


def variable(wanted: Any) -> str:
    """Return the name of an object's variable in the calling code; "" if there is none."""
    for names in _calling():
        for name, value in names.items():
            if value is wanted and name.isidentifier() and name != "self":
                return name
    return ""


def names_of_tensors(tensors: Iterable[Any]) -> dict[str, Any]:
    """Return tensors, or variables of TensorFlow, by their names in the calling code.

    Those of a list or mapping are named after it: "params_0", "params_scale". Others are "tensor_0"
    and so on.
    """
    places: dict[int, str] = {}
    for names in _calling():
        for name, value in names.items():
            for key, one in _inside(value):
                places.setdefault(id(one), name if key is None else f"{name}_{key}")
    found: dict[str, Any] = {}
    for number, one in enumerate(tensors):
        name = places.get(id(one), "")
        usable = name.isidentifier() and name not in found
        found[name if usable else f"tensor_{number}"] = one
    return found


def _inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the tensors in the value of a variable with their keys, or itself without one."""
    # Subclasses may run code of the user when they are iterated.
    if type(value) in (list, tuple):
        yield from enumerate(value)
    elif type(value) is dict:
        yield from value.items()
    else:
        yield None, value


def _calling() -> Iterator[Mapping[str, Any]]:
    """Yield the variables of the calling functions, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("vinedresser", "torch", "tensorflow", "keras"):
            yield dict(frame.f_locals)
        frame = frame.f_back
