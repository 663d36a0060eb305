"""Starting a program because of a finding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.settings import CommandSettings

__all__ = ["CommandAction"]


class CommandAction:
    """Starts a program, which reads the finding and the facts of its run as JSON from its input.

    Its output goes to the judge's log. It is not started again, whatever its exit code.

    Args:
        settings: which program.
    """

    name: ClassVar[str] = "command"

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        settings = self._settings
        program = settings.argv[0]
        try:
            # A session of its own, so that all that it starts can be ended with it.
            process = subprocess.Popen(
                settings.argv, cwd=settings.cwd, stdin=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            return ActionResult("refused", f"{program}: {error.strerror}")
        told = json.dumps(context.document, allow_nan=False).encode()
        try:
            process.communicate(told, timeout=settings.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return ActionResult("refused", f"{program}: killed after {settings.timeout:g} s")
        code = process.returncode
        return ActionResult("refused" if code else "done", f"{program}: exit code {code}")
