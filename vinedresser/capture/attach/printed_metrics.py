"""Metrics in what a script prints, for the hook of its training or one of their own.

As a program, which a supervisor starts, it searches the lines of its standard input, and records
metrics that no captured process has printed:

    python -m vinedresser.capture.attach.printed_metrics
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vinedresser.capture.run.printed_lines import PRINTED

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["attach", "main", "next_hook"]

# The hook that was opened for a printed metric, until a training is found.
_WAITING: list[AttachedHook] = []


def attach() -> None:
    """Search what this process prints."""
    PRINTED.open_hook = _open
    PRINTED.begin()


def next_hook() -> AttachedHook:
    """Return the hook for a training: that of the metrics printed before, or else a new one.

    Raises:
        VinedresserError: see `AttachedHook`.
    """
    from vinedresser.capture.attach.attached_hook import AttachedHook

    hook = _WAITING.pop() if _WAITING else AttachedHook()
    hook.expect_training()
    return hook


def _open() -> bool:
    """Open a hook for printed metrics if nothing writes to the run yet; return whether it did."""
    # Most processes of a run print no metric.
    from vinedresser.capture.attach.attached_hook import AttachedHook, is_worker
    from vinedresser.capture.run.environment import Environment
    from vinedresser.objects import open_storage
    from vinedresser.store.records import ClaimRecord, heartbeat_key

    environment = Environment.read()
    storage = open_storage(environment.run)
    taken = storage.exists(ClaimRecord.KEY) or storage.exists(heartbeat_key(0))
    if taken or environment.rank or is_worker():
        return False
    _WAITING.append(AttachedHook())
    return True


def main() -> None:
    """Search the lines of the standard input."""
    PRINTED.open_hook = _open
    PRINTED.begin(listen=False)
    for line in os.fdopen(0, encoding="utf-8", errors="replace", newline="\n"):
        PRINTED.take(line.rstrip("\n"))


if __name__ == "__main__":
    main()
