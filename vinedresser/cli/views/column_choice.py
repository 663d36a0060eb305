"""Which columns of a table a terminal has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["columns_that_fit"]

# Characters between two columns of a `plain_table`.
_GAP = 2


def columns_that_fit(widths: Mapping[str, int], dropped: Sequence[str], room: int) -> list[str]:
    """Return the columns to show, in their order.

    Args:
        widths: characters that each column needs at least, by its heading.
        dropped: the columns that may be left out, the first to go first.
        room: characters of a line.
    """
    kept = dict(widths)
    for name in dropped:
        if sum(kept.values()) + _GAP * (len(kept) - 1) <= room:
            break
        kept.pop(name, None)
    return list(kept)
