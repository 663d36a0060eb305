"""HTML that notebooks show for runs, findings and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from vinedresser.plain_text import visible

__all__ = ["blocks", "cell", "paragraph", "preformatted", "table"]

_BLOCKS = "▁▂▃▄▅▆▇█"


def cell(value: object) -> str:
    """Return a value as escaped text; "" for None, control characters made visible."""
    return "" if value is None else escape(visible(str(value)))


def paragraph(text: str) -> str:
    """Return a text as a paragraph."""
    return f"<p>{cell(text)}</p>"


def preformatted(text: str) -> str:
    """Return a text as a line of a fixed pitch."""
    return f"<pre>{cell(text)}</pre>"


def table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table.

    Args:
        head: headings of the columns.
        rows: values of the cells.
    """
    heads = "".join(f"<th>{cell(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def blocks(counts: NDArray[np.int64]) -> str:
    """Return a histogram as a line of blocks; a blank for an empty bin.

    Args:
        counts: elements in each bin, int64 [B].
    """
    most = max(int(counts.max(initial=0)), 1)
    places = np.ceil(counts / most * len(_BLOCKS)).astype(int).tolist()
    return "".join(_BLOCKS[place - 1] if place else " " for place in places)
