"""Optuna's journal of a sweep: a file with one writer, whole after any crash."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from vinedresser.errors import CorruptData, StillRunning

__all__ = ["SweepJournal"]


class SweepJournal(BaseJournalBackend):
    """The journal of a sweep, held by one process, in the format of Optuna's own files.

    Optuna's locks are links beside the file, which outlive a process that is killed; its lines are
    forced to the disk one by one, and a line that was written half breaks the next. Here the lock
    is the kernel's and ends with its process, lines survive the death of any process, and half a
    line is cut off.

    Args:
        path: of the file; it is made if it is not there.

    Raises:
        StillRunning: another process holds it.
        CorruptData: a line of it is not one of a journal.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise StillRunning(f"{path}: the sweep is run by another process") from error
        self.path = path
        # The storage reads on from where it was: what it has read needs to be kept no longer.
        self._logs = self._load()
        self._first = 0

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the lines from a number on; each can be read until one after it was."""
        self._logs = self._logs[max(log_number_from - self._first, 0) :]
        self._first = max(log_number_from, self._first)
        return list(self._logs)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, in one write."""
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in logs)
        os.write(self._descriptor, text.encode())
        # As they will be read again, such as tuples that come back as lists.
        self._logs += [json.loads(line) for line in text.splitlines()]

    def _load(self) -> list[dict[str, Any]]:
        """Read what is there, and cut off what a killed process has written half."""
        text = self.path.read_bytes()
        whole, newline, _ = text.rpartition(b"\n")
        os.ftruncate(self._descriptor, len(whole + newline))
        logs = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                logs.append(json.loads(line))
            except ValueError as error:
                raise CorruptData(f"{self.path}: line {number} is not one of a journal") from error
        return logs
