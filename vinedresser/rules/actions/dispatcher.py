"""From findings to actions, off the judge's own path."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from vinedresser.rules.actions.base import Action, Case, Outcome
from vinedresser.rules.actions.command import Command
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.lane import Lane
from vinedresser.rules.actions.mail import Email
from vinedresser.rules.actions.message import action_id, document
from vinedresser.rules.actions.notify import Notify
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.settings import SnapshotSettings
from vinedresser.rules.actions.snapshot import Snapshot
from vinedresser.rules.actions.stop import Stop
from vinedresser.rules.actions.tag import Tag
from vinedresser.rules.actions.trainer import Adjust, Checkpoint
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import ActionRecord, RunRecord, StopRecord, read_record

__all__ = ["Dispatcher"]

# What is told to others: it may take as long as they do, and nothing waits for it.
_OUTGOING = frozenset({"notify", "email", "command"})
# What the training has to do before it ends.
_BEFORE_STOP = frozenset({"snapshot", "checkpoint"})
# Seconds that actions have once the run is over, and then to come to their end.
_LAST_CALL, _END = 60.0, 15.0


class Dispatcher:
    """Takes the actions that follow findings, those of the training and outgoing ones in two lanes.

    The judge never waits for an action; the training does only what it is asked for.

    Args:
        run: that is judged.
        plan: which actions follow.
        group: of the rules.

    Raises:
        CorruptData: the journal of an earlier judge cannot be read.
        StoreError: the storage refused.
    """

    def __init__(self, run: Run, plan: ActionPlan, group: str) -> None:
        self._run = run
        self._plan = plan
        self._journal = Journal(run.storage, group)
        self._giving_up = threading.Event()
        self._actions = _actions(plan.settings, group)
        self._training = Lane("training-actions", self._note)
        self._outgoing = Lane("outgoing-actions", self._note)

    def take(self, finding: Finding) -> None:
        """Have the actions taken that follow a finding, but for its stop."""
        for name in self._plan.of(finding):
            action = self._actions.get(name)
            case = self._case(finding, name)
            if action is not None and not self._journal.has(case.id):
                lane = self._outgoing if name in _OUTGOING else self._training
                lane.put(action, case)

    def stops(self, finding: Finding) -> bool:
        """Say whether a stop follows a finding."""
        return "stop" in self._plan.of(finding)

    def stop(self, fatal: Finding, record: StopRecord) -> None:
        """Ask the training to end, at once or after what the same finding asks of it.

        Args:
            fatal: the finding that a stop follows.
            record: who asks, and why.

        Raises:
            StoreError: the storage refused.
        """
        case, action = self._case(fatal, "stop"), Stop(record)
        if self._journal.has(case.id):
            return
        if _BEFORE_STOP.isdisjoint(self._plan.of(fatal)):
            self._note(action, case, action.ask(case.storage))
        else:
            self._training.put(action, case)

    def close(self) -> None:
        """Wait, for a bounded time, until all actions are over."""
        for lane in (self._training, self._outgoing):
            lane.end()
        end = time.monotonic() + _LAST_CALL
        for patience in (end, end + _END):
            lanes = (self._training, self._outgoing)
            ended = [lane.join(max(patience - time.monotonic(), 0.0)) for lane in lanes]
            if all(ended):
                return
            self._giving_up.set()

    def _case(self, finding: Finding, name: str) -> Case:
        info = read_record(self._run.storage, RunRecord) or self._run.info
        identity = action_id(info.id, finding, name)
        told = document(info, self._run.storage.location, finding, identity)
        return Case(identity, finding, self._run.storage, told, self._giving_up)

    def _note(self, action: Action, case: Case, outcome: Outcome) -> None:
        finding = case.finding
        record = ActionRecord(
            id=case.id,
            action=action.name,
            rule=finding.rule,
            step=finding.step,
            time=time.time(),
            outcome=outcome.word,
            detail=outcome.detail,
        )
        self._journal.add(record)


def _actions(settings: Mapping[str, Any], group: str) -> dict[str, Action]:
    """Return the actions by name, but for the stop, which is of one finding."""
    found: list[Action] = [
        Tag(group),
        Snapshot(settings.get("snapshot", SnapshotSettings())),
        Checkpoint(),
    ]
    kinds: dict[str, type[Any]] = {
        "adjust": Adjust,
        "notify": Notify,
        "email": Email,
        "command": Command,
    }
    found += [kind(settings[name]) for name, kind in kinds.items() if name in settings]
    return {action.name: action for action in found}
