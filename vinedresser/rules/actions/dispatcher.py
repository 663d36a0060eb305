"""Take the actions that follow findings, outside the judge's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.requests.requesting import await_change, request_capture
from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.objects import Storage
from vinedresser.plain_logs import plain_logger
from vinedresser.rules.actions.action_queue import ActionQueue, await_queues
from vinedresser.rules.actions.alerts import Alerts, Message
from vinedresser.rules.actions.base import Action, ActionContext, ActionResult
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.message import action_id, document, message_id
from vinedresser.rules.actions.plan import MESSAGES, ActionPlan
from vinedresser.rules.actions.senders import senders
from vinedresser.rules.actions.settings import BoostSettings, SnapshotSettings
from vinedresser.rules.actions.stop import StopAction
from vinedresser.rules.actions.tag import TagAction
from vinedresser.rules.actions.trainer import AdjustAction, BoostAction, CheckpointAction
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ActionRecord, RunRecord, StopRecord, last_step, read_record
from vinedresser.store.status import run_status

_LOG = plain_logger(__name__)

# Actions that the training must take before it stops.
_BEFORE_STOP = frozenset({"snapshot", "checkpoint"})
# Seconds to wait for the training to reply, and again to take the steps.
_PATIENCE = 30.0
_POLL = 0.05


class Dispatcher:
    """Takes the actions that follow findings; those of the training and messages in two queues.

    The judge never waits for an action. Findings with one root cause share their messages.

    Args:
        run: judged run.
        group: name of the rule group.
        messages: whether messages are sent; those of a sweep's trials are in its digest.

    Raises:
        CorruptData: the journal of an earlier judge is corrupt.
        StoreError: the storage refused.
    """

    def __init__(self, run: Run, plan: ActionPlan, group: str, *, messages: bool = True) -> None:
        self._run = run
        self._plan = plan
        self._journal = Journal(run.storage, group)
        self._giving_up = threading.Event()
        self._actions = _actions(plan.settings, group)
        self._training = ActionQueue("training-actions", self._note)
        self._outgoing = ActionQueue("outgoing-actions", self._note)
        self._group = group
        self._logged: set[str] = set()
        sends = messages and bool(plan.messages)
        self._alerts = Alerts(plan.cooldown, self._send, self._sent) if sends else None

    def take(self, finding: Finding) -> None:
        """Queue the actions that follow a finding, except its stop."""
        names = self._plan.of(finding)
        for name in names:
            action = self._actions.get(name)
            if action is None or name in MESSAGES:
                continue
            context = self._context(finding, name)
            if not self._journal.has(context.id):
                self._training.put(action, context)
        if self._alerts is not None:
            self._alerts.add(finding, [name for name in names if name in MESSAGES])

    def see(self, step: Step) -> None:
        """Note a step that ended, by which a fault may be over."""
        if self._alerts is not None:
            self._alerts.see(step)

    def stops(self, finding: Finding) -> bool:
        """Return whether a stop follows a finding."""
        return "stop" in self._plan.of(finding)

    def stop(self, fatal: Finding, record: StopRecord) -> None:
        """Request the stop of the training, at once or after other actions for the same finding.

        Args:
            fatal: finding that a stop follows.
            record: origin of and reason for the request.

        Raises:
            StoreError: the storage refused.
        """
        context, action = self._context(fatal, "stop"), StopAction(record)
        if self._journal.has(context.id):
            return
        if _BEFORE_STOP.isdisjoint(self._plan.of(fatal)):
            self._note(action, context, action.ask(context.storage))
        else:
            self._training.put(action, context)

    def close(self) -> None:
        """Wait for all actions, for a bounded time."""
        if self._alerts is not None:
            self._alerts.close()
        queues = (self._training, self._outgoing)
        for queue in queues:
            queue.end()
        await_queues(queues, self._giving_up)

    def _context(self, finding: Finding, name: str) -> ActionContext:
        identity = action_id(self._run.info.id, finding, name)
        return ActionContext(identity, finding, self._run.storage, {}, self._giving_up)

    def _send(self, message: Message) -> None:
        """Queue a message, unless an earlier judge has sent it."""
        storage, cause = self._run.storage, message.cause
        info = self._run.info
        try:
            # The hook completes it after the run was opened.
            info = read_record(storage, RunRecord) or info
        except VinedresserError as error:
            _LOG.warning("a message lacks what the hook has added to the run: %s", error)
        identity = self._identity(message)
        content = document(
            *(info, storage.location, cause, identity),
            kind=message.kind,
            said=message.said,
            findings=message.findings,
            template=self._plan.template,
        )
        context = ActionContext(
            identity, cause.finding, storage, content, self._giving_up, message.step
        )
        self._outgoing.put(self._actions[message.action], context)

    def _sent(self, message: Message) -> tuple[float, int] | None:
        record = self._journal.get(self._identity(message))
        return None if record is None else (record.time, record.step)

    def _identity(self, message: Message) -> str:
        cause = message.cause.finding
        parts = (cause.rule, cause.fault, message.action, message.kind)
        return message_id(self._run.info.id, self._group, *parts, message.severity, message.number)

    def _note(self, action: Action, context: ActionContext, result: ActionResult) -> None:
        finding = context.finding
        record = ActionRecord(
            id=context.id,
            action=action.name,
            rule=finding.rule,
            step=finding.step if context.upto is None else context.upto,
            time=time.time(),
            outcome=result.word,
            detail=result.detail,
        )
        self._log(record)
        self._journal.add(record)

    def _log(self, record: ActionRecord) -> None:
        """Log the first action of each name that was not done."""
        if record.outcome == "done" or record.action in self._logged:
            return
        self._logged.add(record.action)
        _LOG.warning(
            "%s at step %d: action %s %s: %s",
            *(record.rule, record.step, record.action),
            "failed" if record.outcome == "failed" else "was refused",
            record.detail,
        )


def _actions(settings: Mapping[str, Any], group: str) -> dict[str, Action]:
    """Return the actions by name, except the stop, which depends on the finding."""
    found: list[Action] = [
        TagAction(group),
        _SnapshotAction(settings.get("snapshot", SnapshotSettings())),
        CheckpointAction(),
        BoostAction(settings.get("boost", BoostSettings())),
    ]
    if "adjust" in settings:
        found.append(AdjustAction(settings["adjust"]))
    return {action.name: action for action in found} | senders(settings)


class _SnapshotAction:
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
