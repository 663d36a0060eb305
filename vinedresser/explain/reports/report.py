"""The report of a run: one self-contained page."""

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
from vinedresser.plain_text import visible
from vinedresser.store.reading.reader import Run
from vinedresser.store.storage import LocalStorage

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["templates", "write_report"]


def write_report(run: Run, destination: str | os.PathLike[str]) -> Path:
    """Write the report of a run in any state: one self-contained HTML file.

    It has no scripts, a light and a dark theme, and no links except from a retry to the report of
    the first run. It names data that was not captured.

    Args:
        run: an opened run; the report shows the data up to its last refresh.
        destination: file to write; replaced atomically, its directory is created.

    Returns:
        Path of the file.

    Raises:
        CorruptData: the exit record of the run cannot be read.
        StoreError: the run cannot be read or the file cannot be written.
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
    LocalStorage(path.parent).put(path.name, [html.encode()])
    return path


def _plain(value: object) -> object:
    """Make the control characters of text visible; lone surrogates could not even be encoded."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, keep="\n\t")
    return value


@cache
def templates() -> Environment:
    """Return the template environment, which escapes everything except `Svg`.

    It is cached with the compiled templates: compiling takes longer than rendering a small page.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("vinedresser.explain.reports"),
                PackageLoader("vinedresser.explain.charts", "."),
            ]
        ),
        # Names and messages come from runs, which are not trusted.
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
