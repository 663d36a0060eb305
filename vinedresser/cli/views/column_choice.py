"""Which columns of a table a terminal has room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.console import plain_table
from vinedresser.plain_text import visible

__all__ = ["columns_that_fit", "fitted_table"]

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


def fitted_table(
    headings: Mapping[str, str],
    rows: Sequence[Mapping[str, str | Text]],
    *,
    room: int | None,
    dropped: Sequence[str],
    folded: Mapping[str, int],
    figures: Collection[str],
) -> Table:
    """Return a table without borders that leaves out columns if a line is too narrow for all.

    Args:
        headings: the heading of each column, in their order, by its key; two may be equal.
        rows: the cells of each row by the key of their column.
        room: characters of a line; None: all columns stay, and none has several lines.
        dropped: the columns that may be left out, the first to go first.
        folded: columns whose cells may have several lines, and the characters of a line that they
            have at least; the others have one line.
        figures: columns that are aligned to the right.
    """
    widths = {
        name: max(cell_len(visible(str(text))) for text in (heading, *(row[name] for row in rows)))
        for name, heading in headings.items()
    }
    table = plain_table()
    if room is None:
        # Of a table that is wider than the console, rich would shorten the columns.
        table.width = sum(widths.values()) + _GAP * (len(widths) - 1)
        kept = [*headings]
    else:
        widths |= {name: min(widths[name], least) for name, least in folded.items()}
        kept = columns_that_fit(widths, dropped, room)
    for name in kept:
        table.add_column(
            headings[name],
            justify="right" if name in figures else "left",
            no_wrap=name not in folded,
            overflow="fold" if name in folded else "ellipsis",
            min_width=widths[name],
        )
    for row in rows:
        table.add_row(*(row[name] for name in kept))
    return table
