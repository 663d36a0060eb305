"""What a monitor says of a window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vinedresser.store.json_values import strict_json

__all__ = ["FeatureDrift", "Verdict", "summary_of"]


@dataclass(frozen=True)
class FeatureDrift:
    """How far a feature is from the baseline.

    Attributes:
        name: column, or columns that drift together, or "accuracy".
        test: what was tested: "values", "categories", "embedding", "columns together", "accuracy".
        change: what changed the most: "mean", "spread", "missing", "share", "distribution",
            "correlation", "distance from the centre", "accuracy" or "constant".
        how_far: size of the change.
        unit: its unit, such as "standard deviations".
        baseline: the value in the baseline.
        window: the value in this window; NaN if there is none.
        evidence: log10 of the evidence that it drifts.
        needed: log10 of the evidence that raises an alarm.
        alarm: whether the evidence was ever sufficient.
        since: index of the window at which the change probably began; None without alarm.
        reported: other distances, which have no part in an alarm: "ks", "psi" and "wasserstein" (in
            standard deviations of the baseline).
        text: the change in words.
    """

    name: str
    test: str
    change: str
    how_far: float
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


def summary_of(
    texts: list[str], alarms: list[str], since: int | None, violations: tuple[str, ...]
) -> str:
    """Return a verdict in one line.

    Args:
        texts: features with an alarm, in words, as far as this window has them.
        alarms: names of all features with an alarm.
        since: window at which the drift probably began.
        violations: what the baseline excludes.
    """
    parts = []
    if alarms:
        more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
        shown = "; ".join(texts[:3]) if texts else ", ".join(alarms[:3])
        parts.append(f"drift since window {since}: {shown}{more}")
    else:
        parts.append("no drift")
    if violations:
        more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        parts.append(f"not as in the baseline: {violations[0]}{more}")
    return ". ".join(parts)
