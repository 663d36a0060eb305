"""The report of a comparison of runs: one self-contained page."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from vinedresser.explain.charts.palette import NOT_FINITE, ZERO, colour
from vinedresser.explain.comparison import Comparison
from vinedresser.explain.reports.comparison.curves import curve_figures, system_figures
from vinedresser.explain.reports.comparison.findings import rule_rows
from vinedresser.explain.reports.comparison.maps import gradient_section, ratio_section
from vinedresser.explain.reports.comparison.tables import (
    environment_table,
    group_table,
    part_words,
    run_table,
    setting_table,
)
from vinedresser.explain.reports.templating import whole_page, write_page
from vinedresser.explain.reports.timeline import severity_sign

__all__ = ["comparison_page", "write_comparison"]


def write_comparison(comparison: Comparison, destination: str | os.PathLike[str]) -> Path:
    """Write the page of a comparison; see `comparison_page`.

    Args:
        comparison: as from `compare`.
        destination: file to write; replaced atomically, its directory is created.

    Returns:
        Path of the file.

    Raises:
        StoreError: a run cannot be read or the file cannot be written.
    """
    return write_page(destination, "comparison.html.j2", **_contents(comparison))


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison: one self-contained HTML file.

    It has no scripts and a light and a dark theme. The table lists all runs; curves and heat maps
    are drawn of those in `Comparison.drawn`.

    Args:
        comparison: as from `compare`.

    Raises:
        StoreError: a run cannot be read.
    """
    return whole_page("comparison.html.j2", **_contents(comparison))


def _contents(comparison: Comparison) -> dict[str, Any]:
    drawn = comparison.drawn
    partings = [part_words(drawn[0], *entry) for entry in comparison.partings]
    return {
        "comparison": comparison,
        "places": {run.name: place for place, run in enumerate(drawn)},
        "states": Counter(run.status.state for run in comparison.runs),
        "table": run_table(comparison),
        "groups": group_table(comparison),
        "partings": partings,
        "curves": curve_figures(comparison),
        "system": system_figures(comparison),
        "maps": [gradient_section(drawn), ratio_section(drawn)],
        "rules": rule_rows(comparison),
        "settings": setting_table(comparison),
        "environment": environment_table(comparison),
        "uncommitted": sum(run.run.info.code.endswith("-dirty") for run in comparison.runs),
        "colours": {"zero": colour(ZERO), "not_finite": colour(NOT_FINITE)},
        "signs": {word: severity_sign(word, 7.0, 7.0) for word in ("stop", "warning", "info")},
    }
