"""Chart of a number for each label, as horizontal bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import number, shortened

_ROW, _BAR, _TOP = 21.0, 13.0, 4.0
_CHARACTER, _LONGEST = 6.1, 34
# Room for the numbers to the right of the bars.
_NUMBERS = 90.0


def label_bars(bars: Sequence[tuple[str, float]], width: float, label: str) -> Svg:
    """Return a bar for each label, from 0 to its number; none if the number is not finite.

    Args:
        bars: labels and numbers, at least one.
        width: pixels, before the page scales it.
        label: accessible name of the chart.
    """
    values = np.array([value for _, value in bars])
    finite = values[np.isfinite(values)]
    low, high = min(float(finite.min(initial=0.0)), 0.0), max(float(finite.max(initial=0.0)), 0.0)
    left = 14.0 + _CHARACTER * min(_LONGEST, max(len(name) for name, _ in bars))
    # Halves, since the difference of two large numbers may overflow.
    span = (high / 2 - low / 2) or 1.0
    room = width - _NUMBERS - left
    drawn: list[Svg] = []
    for place, (name, value) in enumerate(bars):
        y = _TOP + _ROW * place
        drawn.append(
            element(
                "text", shortened(name, _LONGEST), x=left - 8, y=y + 11.0, class_="tick y"
            )
        )  # fmt: skip
        end = left - low / 2 / span * room
        if np.isfinite(value):
            start, end = sorted((end, left + (value / 2 - low / 2) / span * room))
            title = element("title", f"{name}: {value:.6g}")
            drawn.append(
                element(
                    "rect",
                    title,
                    x=start,
                    y=y,
                    width=end - start,
                    height=_BAR,
                    class_="bars",
                    data_name=name,
                    data_value=repr(float(value)),
                )
            )
        drawn.append(element("text", number(value), x=end + 6.0, y=y + 11.0, class_="tick"))
    return chart(label, width, _TOP + _ROW * len(bars), *drawn, kind="labels")
