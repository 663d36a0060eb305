"""The report of a run: one self-contained page."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

from vinedresser.explain.charts.palette import NOT_FINITE, ZERO, colour
from vinedresser.explain.reports.page import build_page
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.reports.timeline import severity_sign
from vinedresser.store.reading.reader import Run

__all__ = ["PAINTS", "write_report"]

# Colours and signs of the legends.
PAINTS = MappingProxyType(
    {
        "colours": {"zero": colour(ZERO), "not_finite": colour(NOT_FINITE)},
        "signs": {word: severity_sign(word, 7.0, 7.0) for word in ("stop", "warning", "info")},
    }
)


def write_report(run: Run, destination: str | os.PathLike[str]) -> Path:
    """Write the report of a run in any state: one self-contained HTML file.

    It has no scripts, a light and a dark theme, and no links except from a retry to the report of
    the first run. It names data that was not captured.

    Args:
        run: an opened run; the report shows the data up to its last refresh.
        destination: file to write; replaced atomically, its directory is created.

    Raises:
        CorruptData: the exit record of the run cannot be read.
        StoreError: the run cannot be read or the file cannot be written.
    """
    return write_page(destination, "report.html.j2", page=build_page(run), **PAINTS)
