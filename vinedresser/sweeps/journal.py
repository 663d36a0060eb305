"""Optuna's journal of a sweep: a file with one writer, valid after any crash."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from vinedresser.errors import CorruptData, StillRunning, StoreError, VinedresserError


class SweepJournal(BaseJournalBackend):
    """The journal of a sweep, held by one process, in the file format of Optuna.

    Optuna's own backend locks with links beside the file, which survive a killed process, syncs
    each line to the disk, and lets a partial line corrupt the next. This one uses a kernel lock
    that ends with its process, survives the death of any process, and truncates a partial line.

    Args:
        path: path of the file; created if missing.

    Raises:
        StillRunning: another process holds the journal.
        CorruptData: a line is not valid JSON.
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, flags, 0o644)
        try:
            # The storage reads each line once, so lines can be dropped after they were read.
            with self._translated():
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._logs = self._load()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._first = 0

    def close(self) -> None:
        """Release the journal."""
        os.close(self._descriptor)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the lines from a number on; lines before it can no longer be read."""
        self._logs = self._logs[max(log_number_from - self._first, 0) :]
        self._first = max(log_number_from, self._first)
        return list(self._logs)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, or none of them.

        Raises:
            StoreError: they cannot be written.
        """
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in logs)
        with self._translated():
            end = os.fstat(self._descriptor).st_size
            try:
                rest = text.encode()
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                # A full disk takes a part; the next line must not continue it.
                os.ftruncate(self._descriptor, end)
                raise
        # As they would be read back: tuples become lists, for example.
        self._logs += [json.loads(line) for line in text.splitlines()]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of the operating system as errors of this journal."""
        try:
            yield
        except BlockingIOError as error:
            raise StillRunning(f"{self.path}: another process is running this sweep") from error
        except VinedresserError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error

    def _load(self) -> list[dict[str, Any]]:
        """Read the file, and truncate a line that a killed process has written partially."""
        text = self.path.read_bytes()
        whole, newline, _ = text.rpartition(b"\n")
        os.ftruncate(self._descriptor, len(whole + newline))
        logs = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                logs.append(json.loads(line))
            except ValueError as error:
                raise CorruptData(f"{self.path}: line {number} is not valid JSON") from error
        return logs
