"""Take the actions that follow findings, outside the judge's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from vinedresser.rules.actions.action_queue import ActionQueue
from vinedresser.rules.actions.base import Action, ActionContext, ActionResult
from vinedresser.rules.actions.command import CommandAction
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.mail import EmailAction
from vinedresser.rules.actions.message import action_id, document
from vinedresser.rules.actions.notify import NotifyAction
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.settings import BoostSettings, SnapshotSettings
from vinedresser.rules.actions.snapshot import SnapshotAction
from vinedresser.rules.actions.stop import StopAction
from vinedresser.rules.actions.tag import TagAction
from vinedresser.rules.actions.trainer import AdjustAction, BoostAction, CheckpointAction
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import ActionRecord, RunRecord, StopRecord, read_record

# Actions that wait for other programs and servers; nothing waits for them.
_OUTGOING = frozenset({"notify", "email", "command"})
# Actions that the training must take before it stops.
_BEFORE_STOP = frozenset({"snapshot", "checkpoint"})
# Seconds for actions to complete after the run, and then to give up.
_LAST_CALL, _END = 60.0, 15.0


class Dispatcher:
    """Takes the actions that follow findings; those of the training and others in two queues.

    The judge never waits for an action.

    Args:
        run: judged run.
        plan: actions that follow findings.
        group: name of the rule group.

    Raises:
        CorruptData: the journal of an earlier judge is corrupt.
        StoreError: the storage refused.
    """

    def __init__(self, run: Run, plan: ActionPlan, group: str) -> None:
        self._run = run
        self._plan = plan
        self._journal = Journal(run.storage, group)
        self._giving_up = threading.Event()
        self._actions = _actions(plan.settings, group)
        self._training = ActionQueue("training-actions", self._note)
        self._outgoing = ActionQueue("outgoing-actions", self._note)

    def take(self, finding: Finding) -> None:
        """Queue the actions that follow a finding, except its stop."""
        for name in self._plan.of(finding):
            action = self._actions.get(name)
            context = self._context(finding, name)
            if action is not None and not self._journal.has(context.id):
                actions = self._outgoing if name in _OUTGOING else self._training
                actions.put(action, context)

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
        queues = (self._training, self._outgoing)
        for queue in queues:
            queue.end()
        end = time.monotonic() + _LAST_CALL
        for patience in (end, end + _END):
            ended = [queue.join(max(patience - time.monotonic(), 0.0)) for queue in queues]
            if all(ended):
                return
            self._giving_up.set()

    def _context(self, finding: Finding, name: str) -> ActionContext:
        info = read_record(self._run.storage, RunRecord) or self._run.info
        identity = action_id(info.id, finding, name)
        content = document(info, self._run.storage.location, finding, identity)
        return ActionContext(identity, finding, self._run.storage, content, self._giving_up)

    def _note(self, action: Action, context: ActionContext, result: ActionResult) -> None:
        finding = context.finding
        record = ActionRecord(
            id=context.id,
            action=action.name,
            rule=finding.rule,
            step=finding.step,
            time=time.time(),
            outcome=result.word,
            detail=result.detail,
        )
        self._journal.add(record)


def _actions(settings: Mapping[str, Any], group: str) -> dict[str, Action]:
    """Return the actions by name, except the stop, which depends on the finding."""
    found: list[Action] = [
        TagAction(group),
        SnapshotAction(settings.get("snapshot", SnapshotSettings())),
        CheckpointAction(),
        BoostAction(settings.get("boost", BoostSettings())),
    ]
    kinds: dict[str, type[Any]] = {
        "adjust": AdjustAction,
        "notify": NotifyAction,
        "email": EmailAction,
        "command": CommandAction,
    }
    found += [kind(settings[name]) for name, kind in kinds.items() if name in settings]
    return {action.name: action for action in found}
