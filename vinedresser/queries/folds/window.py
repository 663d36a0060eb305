"""The fold of a window, whatever kind of result its events have."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vinedresser.errors import QueryError
from vinedresser.queries.answer import Kind
from vinedresser.queries.folds.numbers import Entry, Fold, Mean, Samples, fold_maker
from vinedresser.queries.language.context import MOST_LABELS
from vinedresser.queries.language.reducing import largest
from vinedresser.queries.language.syntax import Call
from vinedresser.queries.language.values import (
    ByLabel,
    Confusion,
    Examples,
    Histogram,
    Image,
    Points,
    Share,
    Top,
)

__all__ = ["MOST_KEPT", "WindowFold"]

# Numbers that the folds of all labels keep together.
MOST_KEPT = 1 << 20
_TOO_MANY = f"more than {MOST_LABELS:,} labels within a window: close windows more often"
_LONGEST_TEXT = 2_000


class WindowFold:
    """Reduces the results of a window's events.

    Without a `reduce` clause, numbers are averaged (shares of samples with the number of samples as
    weight), confusions and histograms with fixed edges are summed, the largest stay the largest,
    and of everything else the last is kept.

    Args:
        reduce: the clause, or None.
    """

    def __init__(self, reduce: Call | None) -> None:
        self._given = reduce
        self._make: Callable[[], Fold] = Mean if reduce is None else fold_maker(reduce)
        self._state: Any = None
        self._kind: type[Any] | None = None
        # The result of the only event so far with its step, while it is its own mean.
        self._only: tuple[float | Share | ByLabel, int] | None = None

    def clear(self) -> None:
        """Begin another window."""
        self._state = self._kind = self._only = None

    def add(self, result: Any, step: int) -> None:
        """Add the result of an event.

        Args:
            result: result of a `Program`.

        Raises:
            QueryError: it does not go with the `reduce` clause or with earlier results.
        """
        kind = float if isinstance(result, Share) else type(result)
        if self._kind is not None and kind is not self._kind:
            raise QueryError("the type of the result has changed within a window")
        first, self._kind = self._kind is None, kind
        if first and self._given is None and isinstance(result, float | Share | ByLabel):
            self._only = result, step
            return
        if self._only is not None:
            only, self._only = self._only, None
            self._fold(*only)
        self._fold(result, step)

    def _fold(self, result: Any, step: int) -> None:
        if isinstance(result, float | Share):
            self._state = self._state or self._make()
            _add(self._state, result, "", step)
        elif isinstance(result, ByLabel):
            self._add_labels(result, step)
            self._check_size()
        elif isinstance(result, np.ndarray) and self._given is not None:
            self._state = self._state or self._make()
            self._state.extend(Samples(result.reshape(-1), step))
        elif self._given is not None and self._given.function != "last":
            raise QueryError(f"reduce {self._given}: the result is not a number")
        else:
            self._state = result if self._given else _joined(self._state, result, step)
            if isinstance(self._state, dict) and len(self._state) > MOST_LABELS:
                raise QueryError(_TOO_MANY)

    def _add_labels(self, result: ByLabel, step: int) -> None:
        if self._given is not None and self._given.function == "top":
            # The largest over all labels, not of each.
            self._state = self._state or self._make()
            for label, value in result.entries.items():
                _add(self._state, value, label, step)
            return
        self._state = {} if self._state is None else self._state
        for label, value in result.entries.items():
            if label not in self._state:
                self._state[label] = self._make()
            _add(self._state[label], value, label, step)

    def _check_size(self) -> None:
        """Check that the window needs bounded memory, however many labels it has."""
        if not isinstance(self._state, dict):
            return
        if len(self._state) > MOST_LABELS:
            raise QueryError(_TOO_MANY)
        kept = sum(fold.kept for fold in self._state.values())
        if kept > MOST_KEPT:
            raise QueryError(
                f"reduce {self._given} keeps {kept:,} numbers of {len(self._state):,} labels, and "
                f"at most {MOST_KEPT:,} are allowed: close windows more often, or ask for fewer "
                "labels"
            )

    def answer(self) -> tuple[Kind, Any]:
        """Return the kind and value of the answer; ("none", None) without results."""
        if self._only is not None:
            return _plain_only(self._only[0])
        state = self._state
        if state is None:
            return "none", None
        if isinstance(state, Fold):
            return _plain(state.result())
        if isinstance(state, dict):
            if not state:
                return "by", {}
            found = {
                label: _plain(one.result() if isinstance(one, Fold) else one)
                for label, one in state.items()
            }
            histograms = any(kind == "histogram" for kind, _ in found.values())
            return "histograms" if histograms else "by", {
                label: value for label, (_, value) in found.items()
            }
        return _plain(state)


def _add(fold: Fold, value: float | Share, label: str, step: int) -> None:
    weight = value.whole if isinstance(value, Share) else 1.0
    fold.add(Entry(float(value), weight, label, step))


def _joined(state: Any, result: Any, step: int) -> Any:
    """Return the results so far of a kind that is not a number."""
    if isinstance(result, Top):
        entries = [Entry(value, at=at, step=step) for value, at in result.entries]
        return largest([*(state or []), *entries], result.count)
    if isinstance(result, Confusion) and state is not None:
        classes = max(len(state.counts), len(result.counts))
        counts = np.zeros((classes, classes))
        for one in (state, result):
            counts[: len(one.counts), : len(one.counts)] += one.counts
        return Confusion(counts)
    if isinstance(result, Histogram) and result.fixed and state is not None:
        return Histogram(result.edges, state.counts + result.counts, fixed=True)
    if isinstance(result, dict) and state is not None:
        return {**state, **{label: _joined(state.get(label), one, step)
                            for label, one in result.items()}}  # fmt: skip
    return result


def _plain_only(result: float | Share | ByLabel) -> tuple[Kind, Any]:
    if isinstance(result, ByLabel):
        return "by", {label: float(value) for label, value in result.entries.items()}
    return "scalar", float(result)


def _plain(value: Any) -> tuple[Kind, Any]:
    """Return the kind and the value of an answer; see `vinedresser.queries.answer.Answer`.

    Args:
        value: what a window's fold has kept: a number, a text, an array, a list of the largest
            entries, or a type of `vinedresser.queries.language.values`; None: NaN.
    """
    if type(value) in _PLAIN:
        kind, write = _PLAIN[type(value)]
        return kind, write(value)
    return "scalar", float(value) if value is not None else math.nan


def _confusion(value: Confusion) -> dict[str, Any]:
    classes = [str(number) for number in range(len(value.counts))]
    return {"classes": classes, "counts": value.counts.tolist()}


def _top(value: Sequence[Entry]) -> list[dict[str, Any]]:
    return [{"value": one.value, "at": one.at, "step": one.step} for one in value]


def _image(value: Image) -> dict[str, Any]:
    shape = dict(zip(("height", "width", "channels"), value.pixels.shape, strict=True))
    return {**shape, "data": base64.b64encode(value.pixels.tobytes()).decode()}


def _examples(value: Examples) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = [{"image": _image(image)} for image in value.images]
    samples = samples or [{"row": _short(row)} for row in value.rows]
    return [
        {"label": label, "prediction": guess, **one}
        for label, guess, one in zip(value.labels, value.predictions, samples, strict=True)
    ]


def _points(value: Points) -> dict[str, list[float]]:
    return {"x": _short(value.x.tolist()), "y": _short(value.y.tolist())}


def _short(values: Sequence[float]) -> list[float]:
    """Return numbers with the digits that a picture shows, so that answers stay small."""
    return [float(f"{value:.6g}") for value in values]


_PLAIN: Mapping[type[Any], tuple[Kind, Callable[[Any], Any]]] = {
    str: ("text", lambda value: value[:_LONGEST_TEXT]),
    Histogram: (
        "histogram",
        lambda value: {"edges": value.edges.tolist(), "counts": value.counts.tolist()},
    ),
    Confusion: ("confusion", _confusion),
    list: ("top", _top),
    np.ndarray: ("vector", lambda value: value.tolist()),
    Image: ("image", _image),
    Examples: ("examples", _examples),
    Points: ("points", _points),
}
