"""The action that captures full tensors of the next steps."""

from __future__ import annotations

import time
from typing import ClassVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.requests.requesting import await_change, request_capture
from vinedresser.errors import ConfigError
from vinedresser.objects import Storage
from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.settings import SnapshotSettings
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.records import RunRecord, last_step, read_record
from vinedresser.store.status import run_status

# Seconds to wait for the training to reply, and again to take the steps.
_PATIENCE = 30.0
_POLL = 0.05


class SnapshotAction:
    """Requests full tensors of the next steps from the training, and waits for these steps.

    Args:
        settings: number of steps, and collections.
    """

    name: ClassVar[str] = "snapshot"

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        steps = self._settings.steps
        try:
            number = request_capture(context.storage, self._wanted(context.storage), steps=steps)
        except ConfigError as error:
            return ActionResult("refused", str(error))
        change = await_change(context.storage, number, _PATIENCE)
        if change is None:
            return ActionResult("failed", "the training did not reply")
        if change.refused:
            return ActionResult("refused", change.refused)
        last = change.step + steps - 1
        taken = _await_step(context.storage, last)
        if taken < change.step:
            return ActionResult("failed", f"the training took no steps after step {taken}")
        return ActionResult("done", f"full tensors of steps {change.step} to {min(taken, last)}")

    def _wanted(self, storage: Storage) -> list[Collection]:
        """Return the collections, with what is captured already and their full tensors."""
        record = read_record(storage, RunRecord)
        known = CaptureConfig.from_json(record.capture if record else {}).collections
        full = SaveConfig(every=1, tensor=True)
        found = []
        for name in self._settings.collections:
            before = known[name].saves if name in known else ()
            found.append(Collection(name, save=(*before, full)))
        return found


def _await_step(storage: Storage, step: int) -> int:
    """Wait for a step or a timeout; return the last step, -1 if there is none."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        over = run_status(storage).over or time.monotonic() > deadline
        last = last_step(storage)
        if over or (last is not None and last >= step):
            return -1 if last is None else last
        time.sleep(_POLL)
