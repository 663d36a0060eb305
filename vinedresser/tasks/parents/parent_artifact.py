"""The artifact on Prefect's pages that sums up a sweep or pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vinedresser.store.records import TrackingRecord
from vinedresser.tasks.lifecycle.end_tags import literal
from vinedresser.tasks.lifecycle.prefect_page import leave_artifact, links

_MOST_ROWS = 20


def leave_parent_artifact(
    name: str,
    sentences: Sequence[str],
    table: Sequence[Sequence[object]],
    page: Path,
    tracking: TrackingRecord,
) -> None:
    """Leave an artifact about what has ended; of a long table it has the first rows.

    Args:
        name: name of the sweep or pruning.
        sentences: the result in words; empty ones are left out.
        table: the header and the rows.
        tracking: its MLflow run, as its runs' parent.
    """
    header, *rows = table
    lines = [_row(header), "|" + "---|" * len(header), *map(_row, rows[:_MOST_ROWS])]
    if len(rows) > _MOST_ROWS:
        lines.append(_row([f"and {len(rows) - _MOST_ROWS} more", *[""] * (len(header) - 1)]))
    parts = [f"# {literal(name)}", *map(literal, filter(None, sentences))]
    # A long text is cut: the table comes last.
    parts.append(links({"page": str(page)}, replace(tracking, run_id=tracking.parent)))
    if rows:
        parts.append("\n".join(lines))
    leave_artifact(name, "\n\n".join(parts), f"Result of {name}")


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(literal(str(cell)).replace("|", "\\|") for cell in cells) + " |"
