"""The guard: a process that outlives a flow and kills the processes that the flow leaves behind.

    python -m vinedresser.infra.guard --marker VINEDRESSER_FLOW=<id> --owner <identity as JSON>

Such processes are Prefect's embedded server and judges. Supervisors and trainers do not carry the
marker: they notice the end of their owner themselves and shut down in order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict

from vinedresser.foreign_signals import handle_foreign, holding_foreign
from vinedresser.processes import ProcessIdentity, kill_marked, this_process, wait_for_end
from vinedresser.store.records import FLOW_VARIABLE, environment_without_run

__all__ = ["guard_descendants", "main", "start_guard"]


def guard_descendants() -> None:
    """Mark all processes started from here on; a guard kills them when this process ends."""
    os.environ[FLOW_VARIABLE] = uuid.uuid4().hex
    start_guard(f"{FLOW_VARIABLE}={os.environ[FLOW_VARIABLE]}")


def start_guard(marker: str) -> subprocess.Popen[bytes]:
    """Start a guard for the calling process.

    Args:
        marker: the entry ``VINEDRESSER_FLOW=<id>`` of the environment, which the caller has set
            before starting the processes to be guarded. When the caller ends in any way, every
            process with this entry is killed.

    Returns:
        The guard's process. It ends after the caller, so there is no need to wait for it.
    """
    with holding_foreign():
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "vinedresser.infra.guard"),
                *("--marker", marker),
                *("--owner", json.dumps(asdict(this_process()))),
            ],
            env=environment_without_run(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of the owner, then kill all processes with the marker."""
    parser = argparse.ArgumentParser(prog="python -m vinedresser.infra.guard", allow_abbrev=False)
    parser.add_argument("--marker", required=True)
    parser.add_argument(
        "--owner", required=True, type=lambda text: ProcessIdentity(**json.loads(text))
    )
    options = parser.parse_args(arguments)
    handle_foreign()
    wait_for_end(options.owner)
    kill_marked(options.marker)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
