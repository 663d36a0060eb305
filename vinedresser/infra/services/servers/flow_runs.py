"""End Prefect's worker on this machine and its flow runs, which save checkpoints.

A worker that is asked to stop kills its flow runs with SIGKILL. So they get SIGTERM first, and the
worker has no say in it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vinedresser.plain_logs import plain_logger
from vinedresser.processes import (
    ProcessIdentity,
    children,
    identify,
    is_alive,
    kill_group,
    wait_for_end,
)

_log = plain_logger(__name__)

_STOPPED = {"type": "CANCELLED", "name": "Cancelled", "message": "Stopped by `vinedresser down`."}


def end_worker(
    worker: ProcessIdentity, ask: Callable[[str, str, object], Any], grace: float
) -> None:
    """End a worker after its flow runs, which become Cancelled.

    Args:
        ask: sends a request to the API of its server: method, path, body; raises OSError.
        grace: seconds that the flow runs have before they are killed.
    """
    if not is_alive(worker):
        kill_group(worker)
        return
    # Stopped, so that it neither starts another flow run nor takes the end of one for a crash.
    os.kill(worker.pid, signal.SIGSTOP)
    processes = [process for pid in children(worker.pid) if (process := identify(pid))]
    runs = _runs_of({process.pid for process in processes}, ask)
    os.kill(worker.pid, signal.SIGKILL)
    kill_group(worker)
    wait_for_end(worker)
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    for process in processes:
        wait_for_end(process, max(deadline - time.monotonic(), 0.0))
        kill_group(process)
    try:
        for run in runs:
            state = ask("GET", f"flow_runs/{run}", None)["state"]["type"]
            if state not in ("COMPLETED", "FAILED", "CANCELLED"):
                ask("POST", f"flow_runs/{run}/set_state", {"state": _STOPPED, "force": True})
    except OSError as error:
        _log.warning("Prefect was not told of the end of its flow runs: %s", error)


def _runs_of(pids: set[int], ask: Callable[[str, str, object], Any]) -> list[str]:
    """Return the ids of the flow runs of processes."""
    active = {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}}
    try:
        found = ask("POST", "flow_runs/filter", {"flow_runs": active})
    except OSError as error:
        # Their trainings save checkpoints all the same.
        _log.warning("Prefect was not asked for the flow runs of its worker: %s", error)
        return []
    return [run["id"] for run in found if run["infrastructure_pid"] in {str(pid) for pid in pids}]
