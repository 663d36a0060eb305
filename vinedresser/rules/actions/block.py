"""The action that notifies by a notification block of the user's Prefect server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult, retry
from vinedresser.rules.actions.message import headline, text
from vinedresser.rules.actions.settings import NotifySettings

__all__ = ["REFUSED", "BlockAction", "block_command"]

REFUSED = 2
"""Exit code of the program if another attempt would have the same result."""
# Rules know no orchestrator: a process of its own loads Prefect and the block.
_PROGRAM = "vinedresser.infra.services.notification_block"
# Seconds of an attempt, half of which Prefect takes to be imported on a busy machine.
_TIMEOUT = 60.0


class BlockAction:
    """Sends a message by ``notify`` of a block, whose type decides what becomes of it."""

    name: ClassVar[str] = "notify"

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        message = {"subject": headline(context.document), "body": text(context.document)}
        content = json.dumps(message).encode()
        return retry(lambda: self._send(content), self._settings.patience, context.giving_up)

    def _send(self, content: bytes) -> ActionResult:
        block = self._settings.block
        try:
            done = subprocess.run(
                block_command(block),
                input=content,
                stdout=subprocess.PIPE,
                # Errors of libraries may quote the address of the receiver, which is a secret.
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ActionResult("failed", f"{block}: no answer within {_TIMEOUT:g} s")
        told = done.stdout.decode(errors="replace").strip() or f"exit code {done.returncode}"
        if done.returncode == 0:
            return ActionResult("done", f"{block}: sent")
        return ActionResult("refused" if done.returncode == REFUSED else "failed", told)


def block_command(block: str, *more: str) -> list[str]:
    """Return the command of the program that sends by a block what it reads."""
    return [sys.executable, "-P", "-m", _PROGRAM, block, *more]
