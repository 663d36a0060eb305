"""The output of ranks on other machines, read from their logs while they grow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import NotAFile
from vinedresser.infra.supervise.supervisor.output_log import LineSplitter, OutputLog
from vinedresser.infra.supervise.supervisor.output_pump import Outlet
from vinedresser.objects.files import open_file
from vinedresser.store.records import rank_log_key

_MOST = 256 * 1024


class RankOutput:
    """Copies the log of a rank to the common log, line by line, and shows it.

    Args:
        outlets: where its output is shown.
    """

    def __init__(
        self, directory: Path, rank: int, common: OutputLog, outlets: Sequence[Outlet]
    ) -> None:
        self._directory = directory
        self._key = rank_log_key(rank)
        self._prefix = f"[rank {rank}] "
        self._common = common
        self._outlets = outlets
        self._lines = LineSplitter()
        self._read = 0

    def move(self) -> bool:
        """Copy what is new; return whether there was something."""
        if any(
            outlet.receiver is not None and not outlet.receiver.idle for outlet in self._outlets
        ):
            return True
        try:
            descriptor = open_file(self._directory, self._key)
        except (FileNotFoundError, NotAFile):
            return False
        try:
            chunk = os.pread(descriptor, _MOST, self._read)
        finally:
            os.close(descriptor)
        self._read += len(chunk)
        if chunk:
            self._pass_on(chunk, self._lines.feed(chunk))
        return bool(chunk)

    def close(self) -> None:
        """Copy the unfinished line."""
        self._pass_on(b"", self._lines.close())

    def _pass_on(self, chunk: bytes, lines: list[str]) -> None:
        self._common.write(f"{self._prefix}{line}" for line in lines)
        for receiver, shown in self._outlets:
            if receiver is not None:
                receiver.write(shown.of(chunk, lines), lambda: None)
