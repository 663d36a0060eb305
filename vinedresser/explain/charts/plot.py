"""A picture of charts that notebooks show and files hold."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.explain.charts.standalone import Panel, standalone
from vinedresser.explain.charts.svg import Svg

__all__ = ["Plot", "check_target", "panel_of", "save_bytes"]


@dataclass(frozen=True, repr=False)
class Plot:
    """Charts below each other, as an SVG document.

    Attributes:
        legend: entries of the legend; see `standalone`.
        panels: the charts, from top to bottom.
    """

    title: str
    legend: Sequence[Svg]
    panels: Sequence[Panel]

    def __repr__(self) -> str:
        charts = f"{len(self.panels)} chart{'' if len(self.panels) == 1 else 's'}"
        return f"Plot({self.title!r}, {charts})"

    def _repr_svg_(self) -> str:
        """Return the SVG document, which a notebook shows."""
        return standalone(self.title, self.legend, self.panels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, replacing it atomically.

        Args:
            path: the file: ``.svg``, or ``.html`` for a page with the picture.

        Raises:
            ConfigError: the suffix is another one, or the file cannot be written.
        """
        target = Path(path)
        check_target(target)
        text = self._repr_svg_()
        if target.suffix.lower() == ".html":
            text = f'<!DOCTYPE html><html><meta charset="utf-8">{text}</html>'
        save_bytes(target, f"{text}\n".encode())


def check_target(target: Path) -> None:
    """Check where a chart is to be written.

    Raises:
        ConfigError: the suffix is neither .svg nor .html, or there is no such folder.
    """
    if target.suffix.lower() not in (".svg", ".html"):
        raise ConfigError(f"{target}: unknown format of charts; use .svg or .html")
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: cannot be written: {os.strerror(errno.ENOENT)}")


def panel_of(caption: str, svg: Svg) -> Panel:
    """Return a chart as a panel of its own height.

    Args:
        caption: a line above the chart; "" for none.
        svg: result of `chart`, `WIDTH` - 40 pixels wide.
    """
    size = re.match(r'<svg viewBox="0 0 \S+ ([^"]+)"', svg)
    assert size is not None, "not the root element of a chart"
    return Panel(caption, svg, float(size[1]))


def save_bytes(target: Path, content: bytes) -> None:
    """Replace a file atomically.

    Raises:
        ConfigError: the file cannot be written.
    """
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error
