"""SVG elements; everything that is not SVG already is escaped, control characters included."""

from __future__ import annotations

from html import escape
from math import isnan

import numpy as np
from numpy.typing import NDArray

from vinedresser.plain_text import visible

__all__ = ["Svg", "chart", "element", "path_data"]


class Svg(str):
    """Markup, which templates do not escape."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the markup; Jinja calls this method."""
        return str(self)


def element(tag: str, *children: str, **attributes: object) -> Svg:
    """Return one element.

    Args:
        tag: name of the element.
        children: contents; plain strings are escaped.
        attributes: attributes; underscores become hyphens and a trailing one is dropped
            (``class_``), floats are rounded to hundredths, None omits the attribute.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    content = "".join(
        child if isinstance(child, Svg) else escape(visible(child, keep="\n\t"), quote=False)
        for child in children
    )
    return Svg(f"<{tag}{written}>{content}</{tag}>" if children else f"<{tag}{written}/>")


def chart(
    label: str,
    width: float,
    height: float,
    *children: str,
    kind: str = "",
    style: str | None = None,
) -> Svg:
    """Return the root element of a chart.

    Args:
        label: accessible name of the chart.
        width: pixels, before the page scales it.
        height: pixels, before the page scales it.
        children: contents.
        kind: additional CSS class.
        style: CSS declarations.
    """
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        style=style,
        class_=f"chart {kind}".rstrip(),
        role="img",
        aria_label=label,
    )


def path_data(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Return the ``d`` attribute of a line through points; NaN breaks the line.

    Args:
        x: float64 [N], pixels.
        y: float64 [N], pixels.
    """
    parts: list[str] = []
    command = "M"
    for right, down in zip(x.tolist(), y.tolist(), strict=True):
        if isnan(down) or isnan(right):
            command = "M"
            continue
        parts.append(f"{command}{right:.1f} {down:.1f}")
        command = "L"
    return "".join(parts)


def _text(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return visible(str(value), keep="\n\t")
