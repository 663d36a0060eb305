"""Answers as tables of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vinedresser.errors import MissingDependency
from vinedresser.queries.answer import Answer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frame_of_answers", "labelled_numbers"]


def frame_of_answers(answers: Sequence[Answer]) -> pd.DataFrame:
    """Return one row per number of answers.

    Columns: window, since, step, rank, time, events, label ("" for a single number; the layer,
    the place in a vector, a class pair such as "3 as 5", the lower edge of a bin) and value.
    Answers without numbers have none.

    Raises:
        MissingDependency: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependency(
            "to_pandas needs pandas, which is not installed: pip install pandas"
        ) from error
    rows = [
        {
            "window": answer.window,
            "since": answer.since,
            "step": answer.step,
            "rank": answer.rank,
            "time": answer.time,
            "events": answer.events,
            "label": label,
            "value": value,
        }
        for answer in answers
        for label, value in labelled_numbers(answer)
    ]
    names = ("window", "since", "step", "rank", "time", "events", "label", "value")
    return pd.DataFrame(rows, columns=[*names])


def labelled_numbers(answer: Answer) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an answer, each with its label; none of a text or an image."""
    of_kind = _NUMBERS.get(answer.kind)
    if of_kind is not None:
        yield from of_kind(answer.value)


def _confusion(value: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, row in zip(value["classes"], value["counts"], strict=True):
        for other, count in zip(value["classes"], row, strict=True):
            yield f"{name} as {other}", count


def _bins(value: dict[str, list[float]], prefix: str = "") -> Iterator[tuple[str, float]]:
    for edge, count in zip(value["edges"], value["counts"], strict=False):
        yield f"{prefix}{edge:g}", count


_NUMBERS: Mapping[str, Callable[[Any], Iterable[tuple[str, float]]]] = {
    "scalar": lambda value: [("", value)],
    "by": lambda value: value.items(),
    "vector": lambda value: ((str(place), one) for place, one in enumerate(value)),
    "histogram": _bins,
    "histograms": lambda value: (
        pair for label, one in value.items() for pair in _bins(one, f"{label} ")
    ),
    "top": lambda value: ((one["at"], one["value"]) for one in value),
    "confusion": _confusion,
}
