"""Views of snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.table import Table

from vinedresser.cli.views.console import plain_table
from vinedresser.snapshots.record import REASONS, SnapshotRecord


def snapshot_table(records: Iterable[SnapshotRecord]) -> Table:
    """Return a table of snapshots."""
    table = plain_table()
    for name in ("snapshot", "reason", "taken", "MiB", "missing"):
        table.add_column(name, justify="right" if name == "MiB" else "left", no_wrap=True)
    for record in records:
        table.add_row(
            f"{SnapshotRecord.KEY}/{record.name}",
            REASONS[record.reason],
            time.strftime("%d %b %H:%M:%S", time.localtime(record.time)),
            f"{record.bytes / 2**20:.1f}",
            str(len(record.left_out)) if record.left_out else "-",
        )
    return table
