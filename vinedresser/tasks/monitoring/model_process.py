"""A process of its own for the user's model: what it does cannot harm the flow."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from vinedresser.errors import DriftError
from vinedresser.infra.entry import parameters_as_arguments
from vinedresser.plain_text import visible
from vinedresser.tasks.config.monitor_file import Monitor


def run_with_model(entry: str, monitor: Monitor, parameters: dict[str, Any], failure: str) -> None:
    """Call a function in a process of its own, in the folder of the user's functions.

    Args:
        entry: ``module:function``.
        parameters: arguments of the function, as JSON types.
        failure: beginning of the message.

    Raises:
        DriftError: the process failed; it has printed why.
    """
    command = [sys.executable, "-m", "vinedresser.infra.entry", entry]
    done = subprocess.run(
        [*command, *parameters_as_arguments(parameters)],
        cwd=monitor.cwd,
        env=dict(os.environ),
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        sys.stderr.write(visible(done.stderr, keep="\n\t"))
        raise DriftError(f"{monitor.path}: {failure}: {said[-1] if said else 'no message'}")
