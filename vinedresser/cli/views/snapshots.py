"""Views of snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.table import Table

from vinedresser.cli.views.console import plain_table
from vinedresser.snapshots.record import REASONS, SnapshotRecord

__all__ = ["snapshot_table"]


def snapshot_table(records: Iterable[SnapshotRecord]) -> Table:
    """Return a table of snapshots.

    Args:
        records: their records.
    """
    table = plain_table()
    for name in ("snapshot", "reason", "taken", "MiB", "missing"):
        table.add_column(name, justify="right" if name == "MiB" else "left", no_wrap=True)
    for one in records:
        table.add_row(
            f"{SnapshotRecord.KEY}/{one.name}",
            REASONS[one.reason],
            time.strftime("%d %b %H:%M:%S", time.localtime(one.time)),
            f"{one.bytes / 2**20:.1f}",
            str(len(one.left_out)) if one.left_out else "-",
        )
    return table
