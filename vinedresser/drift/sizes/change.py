"""A change of a feature, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CERTAIN", "Change", "missing_change", "share_change", "share_errors", "within"]

CERTAIN = 3.0
"""Standard errors on either side of a size that are its uncertainty.

An alarm is raised when a change looks large, so that the usual two would be too few.
"""


@dataclass(frozen=True)
class Change:
    """The largest change of a feature; see `FeatureDrift` for the fields.

    Attributes:
        errors: size in standard errors of no change.
    """

    change: str
    how_far: float
    uncertainty: float
    unit: str
    baseline: float
    window: float
    text: str
    errors: float


def share_errors(before: float, rows: float, after: float, more: float) -> float:
    """Return the difference of two shares in standard errors."""
    pooled = (before * rows + after * more) / (rows + more)
    return abs(after - before) / math.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / rows + 1 / more))


def share_change(
    kind: str,
    words: tuple[str, str],
    before: tuple[float, float],
    after: tuple[float, float],
) -> Change:
    """Return the change of a share.

    Args:
        kind: its name.
        words: what comes in the text before the share and after it.
        before: the share before the change, and the number of (independent) rows.
        after: the same since the change.
    """
    # Shares without a cycle are estimates.
    before, after = ((min(max(one, 0.0), 1.0), n) for one, n in (before, after))
    (p, rows), (q, more) = before, after
    # A share of 0 or 1 among few rows is not known exactly (Agresti and Coull, The American
    # Statistician 1998).
    near = [((one * n + 2) / (n + 4), n + 4) for one, n in (before, after)]
    uncertainty = CERTAIN * math.sqrt(sum(one * (1 - one) / n for one, n in near))
    return Change(
        kind,
        q - p,
        uncertainty,
        "share of rows",
        p,
        q,
        f"{words[0]}{q:.1%}{words[1]}, {p:.1%} before "
        f"({100 * (q - p):+.1f} ± {100 * uncertainty:.1f} points)",
        share_errors(p, rows, q, more),
    )


def missing_change(name: str, before: tuple[float, float], after: tuple[float, float]) -> Change:
    """Return the change of the share of missing values; see `share_change`."""
    return share_change("missing", (f"{name}: missing in ", " of the rows"), before, after)


def within(far: float, uncertainty: float) -> str:
    """Return a size with its uncertainty, to its second digit."""
    digits = max(0, 1 - math.floor(math.log10(uncertainty))) if 0 < uncertainty < 1e6 else 2
    return f"{far:.{min(digits, 6)}f} ± {uncertainty:.{min(digits, 6)}f}"
