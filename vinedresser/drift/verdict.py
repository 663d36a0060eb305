"""What a monitor says of a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vinedresser.drift.sizes.sensitivity import FOUND
from vinedresser.store.json_values import strict_json

__all__ = [
    "Answer",
    "FeatureDrift",
    "Verdict",
    "answer_of",
    "reasons_of",
    "summary_of",
    "unchanged",
]

Answer = Literal["drift", "no drift seen", "cannot tell"]
"""What a monitor says: nothing is called free of drift where nothing could be found."""

# Units of changes, what they are multiplied by in words, and the words.
_UNITS = (
    ("standard deviations", 1, "standard deviations"),
    ("share of rows", 100, "points of a share"),
)


@dataclass(frozen=True)
class FeatureDrift:
    """How far a feature has drifted.

    Sizes are of all requests since the change, as far as it is known when that was, compared with
    the baseline and all requests before it.

    Attributes:
        name: column, or columns that drift together, or "accuracy".
        test: what was tested: "number", "category", "embedding", "columns together", "accuracy".
        answer: "drift" once its evidence was sufficient; "cannot tell" if no change of any size
            could have been found, or none in this window; otherwise "no drift seen".
        because: why it cannot be told; "" if it can.
        would_have_seen: the smallest change since window 0 that would have been found by now with a
            probability of 90 %: the shift of a number, the share of the rows that has moved between
            the two most frequent categories, or the fall of the accuracy. None if there is none, or
            it is not known.
        seen_unit: its unit: "standard deviations" (of the baseline) or "share of rows".
        change: what changed the most: "mean", "median", "spread", "tails", "missing", "share",
            "distribution", "correlation", "direction", "accuracy" or "constant".
        how_far: size of the change; without an alarm, it may be chance.
        uncertainty: three standard errors of it.
        unit: its unit, such as "standard deviations".
        baseline: the value before the change; NaN if there is none.
        window: the value since the change; NaN if there is none.
        evidence: log10 of the evidence that it drifts.
        needed: log10 of the evidence that raises an alarm.
        alarm: whether the evidence was ever sufficient.
        since: index of the window at which the change probably began; None without alarm.
        reported: distances of this window from the baseline, which have no part in an alarm: "ks",
            "psi" and "wasserstein" (in standard deviations of the baseline), or the "accuracy" of
            this batch of labels alone.
        text: the answer in words, with the change if there is one.
    """

    name: str
    test: str
    answer: Answer
    because: str
    would_have_seen: float | None
    seen_unit: str
    change: str
    how_far: float
    uncertainty: float
    unit: str
    baseline: float
    window: float
    evidence: float
    needed: float
    alarm: bool
    since: int | None
    reported: dict[str, float]
    text: str


@dataclass(frozen=True)
class Verdict:
    """What a monitor says of a window.

    Attributes:
        window: its index, from 0.
        rows: its number of rows.
        total_rows: number of rows of all windows so far.
        judged_rows: number of them that count, of the column of which the most do: of requests that
            depend on each other, some are left out.
        answer: "drift" if the requests have drifted, which stays so; "no drift seen" if some
            feature could be judged, and has not drifted; otherwise "cannot tell".
        reasons: why it cannot tell of some features, or of all of them.
        alarm: whether the requests have drifted; stays true once it is.
        new: whether this window raised the alarm, or a feature was added to it.
        since: index of the window at which the drift probably began; None without alarm.
        features: all features, those with an alarm first, and the most drifted first among them.
        violations: columns that are missing, unknown or of another type. They are certain, and no
            part of the alarm.
        outliers: numbers of values far outside the range of the baseline. They are no part of the
            alarm either: with heavy tails they occur without drift.
        limits: why some drift cannot be found, such as requests that depend on each other.
        summary: all this in one line.
    """

    window: int
    rows: int
    total_rows: int
    judged_rows: int
    answer: Answer
    reasons: tuple[str, ...]
    alarm: bool
    new: bool
    since: int | None
    features: tuple[FeatureDrift, ...]
    violations: tuple[str, ...]
    outliers: tuple[str, ...]
    limits: tuple[str, ...]
    summary: str

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON types; numbers that JSON lacks, such as NaN, are strings."""
        return dict(strict_json(asdict(self)))


def answer_of(features: Sequence[FeatureDrift], alarm: bool) -> Answer:
    """Return the answer on all features.

    Args:
        features: those that were to be judged.
        alarm: whether any feature has drifted.
    """
    if alarm:
        return "drift"
    # Columns together say little if nothing can be told of any of them.
    judged = any(
        feature.answer == "no drift seen"
        for feature in features
        if feature.test != "columns together"
    )
    return "no drift seen" if judged else "cannot tell"


def reasons_of(because: Mapping[str, str]) -> tuple[str, ...]:
    """Return why it cannot be told of features, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, reason in because.items():
        names.setdefault(reason, []).append(name)
    return tuple(f"{_listed(found)}: {reason}" for reason, found in names.items())


def _seen(features: Sequence[FeatureDrift]) -> str:
    """Return the changes that would have been found in all of these features; "" if unknown."""
    largest: dict[str, float] = {}
    for feature in features:
        if feature.answer == "no drift seen" and feature.would_have_seen is not None:
            before = largest.get(feature.seen_unit, 0.0)
            largest[feature.seen_unit] = max(before, feature.would_have_seen)
    sizes = [
        f"≥ {_two_digits(factor * largest[unit])} {words}"
        for unit, factor, words in _UNITS
        if unit in largest
    ]
    if not sizes:
        return ""
    return f"would have seen {' and '.join(sizes)} since window 0, with {FOUND:.0%} probability"


def unchanged(feature: FeatureDrift) -> str:
    """Return the answer on a feature without an alarm, in words."""
    if feature.because:
        return f"{feature.name}: cannot tell, because {feature.because}"
    size = _seen([feature])
    return f"{feature.name}: no drift seen{f' ({size})' if size else ''}"


def summary_of(
    answer: Answer,
    features: Sequence[FeatureDrift],
    alarms: Sequence[str],
    since: int | None,
    *,
    reasons: tuple[str, ...],
    violations: tuple[str, ...],
    rows: tuple[int, int],
) -> str:
    """Return a verdict in one line.

    Args:
        alarms: names of all features with an alarm.
        since: window at which the drift probably began.
        reasons: why it cannot be told of some features.
        violations: what the baseline excludes.
        rows: number of rows so far, and of those that count.
    """
    parts = []
    counted = f"{rows[1]:,} of {rows[0]:,} rows count"
    if answer == "drift":
        found = [feature for feature in features if feature.alarm]
        texts = [
            one.text if one.since == since else f"{one.text} since window {one.since}"
            for one in found
        ]
        more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
        shown = "; ".join(texts[:3]) if texts else ", ".join(alarms[:3])
        parts.append(f"drift since window {since}: {shown}{more}")
    elif answer == "no drift seen":
        size = _seen(features)
        parts.append(f"no drift seen{f' ({size})' if size else ''}, {counted}")
    else:
        why = "; ".join(reasons) or "there is nothing to judge"
        parts.append(f"cannot tell, because {why}; {counted}")
    if reasons and answer != "cannot tell":
        parts.append(f"cannot tell of {'; '.join(reasons)}")
    if violations:
        more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        parts.append(f"not as in the baseline: {violations[0]}{more}")
    return ". ".join(parts)


def _listed(names: Sequence[str]) -> str:
    """Return names as a list, of which a few are shown."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _two_digits(size: float) -> str:
    """Return a size rounded up to two digits, so that it still holds."""
    digits = 1 - math.floor(math.log10(size)) if size > 0 else 0
    return f"{math.ceil(size * 10**digits - 1e-9) / 10**digits:.{max(digits, 0)}f}"
