"""The action that runs a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.settings import CommandSettings


class CommandAction:
    """Runs a program, which reads the finding and its run as JSON from standard input.

    Its output goes to the judge's log. It is run only once, whatever its exit code.

    Args:
        settings: program and time limit.
    """

    name: ClassVar[str] = "command"

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        settings = self._settings
        program = settings.argv[0]
        try:
            # A new session, so that all its processes can be killed together.
            process = subprocess.Popen(
                settings.argv, cwd=settings.cwd, stdin=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            return ActionResult("refused", f"{program}: {error.strerror}")
        content = json.dumps(context.document, allow_nan=False).encode()
        try:
            process.communicate(content, timeout=settings.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return ActionResult("refused", f"{program}: killed after {settings.timeout:g} s")
        code = process.returncode
        return ActionResult("refused" if code else "done", f"{program}: exit code {code}")
