"""One self-contained page about one run: how it went, what the rules found, why it ended."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vinedresser import __version__
from vinedresser.explain.charts.palette import NOT_FINITE, ZERO, colour
from vinedresser.explain.reports.page import build_page
from vinedresser.explain.reports.timeline import severity_sign
from vinedresser.store.reading.reader import Run
from vinedresser.store.storage import LocalStorage

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["templates", "write_report"]


def write_report(run: Run, destination: str | os.PathLike[str]) -> Path:
    """Write the report of a run, whatever state it is in: one HTML file that needs nothing else.

    No scripts, no links to anything outside but that of an attempt to the report of the run whose
    place it takes, light and dark. What the run did not capture, the page names.

    Args:
        run: an opened run; its report shows what has been committed up to its last refresh.
        destination: the file to write; replaced as a whole, its directory is made.

    Returns:
        The file's path.

    Raises:
        CorruptData: the record of how the run ended cannot be read.
        StoreError: the run cannot be read, or the file not written.
    """
    path = Path(destination)
    template = templates().get_template("report.html.j2")
    html = template.render(
        page=build_page(run),
        colours={"zero": colour(ZERO), "not_finite": colour(NOT_FINITE)},
        signs={word: severity_sign(word, 7.0, 7.0) for word in ("stop", "warning", "info")},
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    )
    # File names and arguments that are not UTF-8 come as lone surrogates.
    LocalStorage(path.parent).put(path.name, [html.encode(errors="replace")])
    return path


@cache
def templates() -> Environment:
    """Return what fills in the pages; everything is escaped that is not our own SVG.

    It keeps what it has compiled, which takes longer than filling in a small page.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("vinedresser.explain.reports"),
                PackageLoader("vinedresser.explain.charts", "."),
            ]
        ),
        # Names and messages come from runs.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
