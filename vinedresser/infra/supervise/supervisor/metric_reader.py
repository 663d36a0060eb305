"""The process that searches metrics in the output of a training."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vinedresser.infra.supervise.supervisor.family import Family
from vinedresser.infra.supervise.supervisor.output_pump import Receiver
from vinedresser.store.records import METRICS_VARIABLE, RUN_VARIABLE

__all__ = ["MetricReader"]

# Bytes that may wait for it; lines beyond that are left out, since no training waits for it.
_MOST_WAITING = 8 * 1024**2
# Seconds that it has to end after the last line.
_PATIENCE = 10.0


class MetricReader:
    """The process that searches metrics in the output of a training.

    It is a process of its own, since the supervisor loads the standard library only. Of a captured
    Python process, the hook has found them before (`vinedresser.capture.run.printed_lines`).

    Args:
        metrics: see `LaunchSettings`.
        selector: calls the key's data when ready.
        family: leaves it out.
        report: called with one sentence per problem.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        metrics: Mapping[str, str],
        directory: Path,
        selector: selectors.BaseSelector,
        family: Family,
        report: Callable[[str], None],
    ) -> None:
        own = {RUN_VARIABLE: str(directory), METRICS_VARIABLE: json.dumps(metrics)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vinedresser.capture.attach.printed_metrics"],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        family.spare(self._process.pid)
        assert self._process.stdin is not None, "a pipe"
        self._input = self._process.stdin
        self._receiver = Receiver(selector, self._input.fileno())
        self._waiting = 0
        self._report = report

    def write(self, lines: Sequence[str]) -> None:
        """Send lines, unless too many wait."""
        content = "".join(f"{line}\n" for line in lines).encode()
        if self._waiting > _MOST_WAITING:
            self._report("metrics are missing: lines were printed faster than they are searched")
            return
        self._waiting += len(content)

        def written() -> None:
            self._waiting -= len(content)

        self._receiver.write(content, written)

    def end(self, turn: Callable[[], None]) -> None:
        """Wait until it has stored what it found in the last line.

        Args:
            turn: handles pending events, or the first that arrives within a tick.
        """
        deadline = time.monotonic() + _PATIENCE
        while not self._receiver.idle and time.monotonic() < deadline:
            turn()
        self._receiver.close()
        self._input.close()
        try:
            code = self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:
            self._report(f"metrics are missing: their reader ended with exit code {code}")
