"""Names by which the losses and metrics of a step are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vinedresser.store.collections.collection import ACCURACY
from vinedresser.store.reading.step import Step

__all__ = ["results_of", "short_names"]

_RESULTS = ("losses/", "metrics/", "saved/")


def short_names(names: Collection[str], mode: str) -> Iterator[tuple[str, str]]:
    """Yield each name by which losses and metrics are known, with its full name.

    ``metrics/accuracy`` of an evaluation is also ``eval/accuracy`` and ``accuracy``; the first loss
    is also ``eval/loss``. The accuracy that a hook has computed comes last, with the same names.

    Args:
        names: full names of scalars.
        mode: mode of their step.
    """
    first = next((name for name in names if name.startswith("losses/")), None)
    if first is not None:
        yield f"{mode}/loss", first
    for name in names:
        kind, _, short = name.partition("/")
        yield name, name
        if kind in ("losses", "metrics", "saved") and not name.startswith(ACCURACY):
            yield f"{mode}/{short}", name
            yield short, name
    for name in names:
        if name.startswith(ACCURACY):
            yield f"{mode}/accuracy", name
            yield "accuracy", name


def results_of(step: Step) -> dict[str, float]:
    """Return the losses, metrics and saved numbers of a step by all of their names.

    ``loss`` is the first loss.

    Raises:
        CorruptData: the stored bytes do not match their checksum.
    """
    found: dict[str, float] = {}
    numbers = {name: one for name, one in step.scalars.items() if name.startswith(_RESULTS)}
    for name, full in short_names(numbers, step.mode):
        found.setdefault(name, numbers[full])
    if f"{step.mode}/loss" in found:
        found.setdefault("loss", found[f"{step.mode}/loss"])
    return found
