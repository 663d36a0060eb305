"""Why some drift cannot be found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vinedresser.drift.contents import Column, Contents
from vinedresser.drift.evidence.dependence import TOO_FAR
from vinedresser.drift.evidence.streams import Spacing, Streams
from vinedresser.drift.windows import Window

__all__ = ["Judgeable", "limits_of", "order_of", "why_unsettled"]


class Judgeable(NamedTuple):
    """What decides whether something can be told of a column in a window.

    Attributes:
        rows: number of rows so far.
        judged: number of values that count so far, of each stream.
    """

    window: Window
    evidence: Streams
    rows: int
    judged: Any
    baseline: Contents

    def because(self, column: Column, streams: Sequence[int], smallest: float) -> str:
        """Return why nothing can be told of a column; "" if something can.

        Args:
            smallest: the smallest change that would have been found by now; infinite if none.
        """
        values = self.window.columns.get(column.name)
        because = ""
        if not self.window.rows:
            because = "the window has no requests"
        elif f"{column.name}: missing" in self.window.violations:
            because = "the requests do not have it"
        elif values is None:
            because = "its values are of another type"
        elif _all_missing(column, values):
            because = "all its values are missing"
        elif dependent := self.because_dependent(streams):
            because = dependent
        elif math.isinf(smallest) and self.evidence.whole and not self.judged.any():
            because = (
                f"the first cycle of {self.evidence.whole:,.0f} requests is not complete; only "
                "whole ones are compared"
            )
        elif math.isinf(smallest):
            judged = int(max(self.judged[stream] for stream in streams))
            because = f"too few requests so far to find any change ({judged:,} count)"
        return because

    def because_dependent(self, streams: Sequence[int]) -> str:
        """Return why it is not known which rows of some streams are independent; "" if it is."""
        spacing = self.evidence.spacing
        if spacing.unsettled[list(streams)].any():
            needed = spacing.needed(streams, self.window.rows)
            return why_unsettled(order_of(self.baseline), "requests", self.rows, needed)
        if spacing.waiting:
            return f"too few requests so far ({self.rows:,})"
        if all(spacing.distances[stream] >= TOO_FAR for stream in streams):
            return (
                "successive requests depend on each other over too many rows; use windows of more "
                "rows"
            )
        return ""


def why_unsettled(known: str, what: str, rows: int, needed: float) -> str:
    """Return why only a window of rows tells as much as one.

    Args:
        known: what the baseline lacks, in words.
        what: rows in words.
        rows: number of rows so far.
        needed: number of rows that are needed; see `rows_to_settle`.
    """
    if math.isinf(needed):
        return f"{known}, and equal {what} never show how far they depend on each other"
    return (
        f"{known}; about {needed:,} {what} have to show how far they depend on each "
        f"other ({rows:,} so far)"
    )


def order_of(baseline: Contents) -> str:
    """Return in what order the rows of a baseline are, if not in time order."""
    unknown = baseline.in_time_order is None
    return f"the baseline is {'of an unknown order' if unknown else 'not in time order'}"


def limits_of(baseline: Contents, spacing: Spacing) -> tuple[str, ...]:
    """Return why some drift cannot be found.

    Args:
        spacing: distances of the rows that count.
    """
    limits = [
        f"{one.name}: not monitored, since rows of the baseline depend on each other at any "
        "distance"
        for one in baseline.columns
        if not one.monitored
    ]
    if spacing.waiting:
        return (*limits, "too few requests so far to see whether they depend on each other")
    if spacing.unsettled.any():
        limits.append(
            f"{order_of(baseline)}: until requests have shown how far they depend on each other, "
            "one in a window counts; a new baseline in time order shows it at once"
        )
    pairs = zip(baseline.streams, spacing.distances, strict=True)
    far = sorted({column.name for (column, _), distance in pairs if distance >= TOO_FAR})
    if far:
        limits.append(
            f"{', '.join(far)}: cannot tell: successive requests are too much alike; use windows "
            "of more rows"
        )
    elif spacing.shared[0] > 1 and not spacing.unsettled.any():
        limits.append(
            f"successive requests depend on each other: only one in {spacing.shared[0]} counts"
        )
    return tuple(limits)


def _all_missing(column: Column, values: Any) -> bool:
    if column.kind == "category":
        return all(one is None for one in values.tolist())
    return bool(np.isnan(values).reshape(len(values), -1).any(1).all())
