"""Messages about a run: one for each root cause, with its symptoms, instead of one per finding."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import get_args

from vinedresser.rules.actions.message import MessageKind
from vinedresser.rules.causes.root_cause import RootCause, root_causes
from vinedresser.rules.standing import STALLED
from vinedresser.store.finding import CAUGHT_UP, MISSED, Finding
from vinedresser.store.reading.step import Step

__all__ = ["Alerts", "Message"]

# Seconds in which findings that belong together are gathered.
_GATHER = 2.0
_SEVERITIES = ("info", "warning", "stop")
# A rule that fired at least this often about the same tensor counts as silent after this number of
# its usual gaps, and of steps.
_OFTEN, _GAPS, _STEPS = 3, 10, 100

_Key = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Message:
    """A message that is due.

    Attributes:
        action: name of the action that sends it.
        kind: what it says of the root cause.
        cause: the root cause and its symptoms.
        severity: gravest severity among the findings that it is about.
        number: number of earlier messages of its kind about the root cause, with this severity.
        step: step of the last finding that it is about.
        findings: number of findings that it is about.
        said: a clause that replaces what the root cause has seen; "" for none.
    """

    action: str
    kind: MessageKind
    cause: RootCause
    severity: str
    number: int
    step: int
    findings: int
    said: str = ""


@dataclass
class _Fired:
    """The findings of a rule about one fault, which may be one for each step.

    Attributes:
        first: the first of them.
        count: their number.
        gap: largest number of steps between two of them.
        names: actions that send messages about them.
        subjects: number of findings by what they compare; many rules report each tensor once.
        missed: classes that are not learned, by their numbers.
        over: a clause that says that the fault is over; "" while it is not.
    """

    first: Finding
    count: int = 0
    last: int = 0
    gap: int = 0
    names: tuple[str, ...] = ()
    subjects: Counter[tuple[object, ...]] = field(default_factory=Counter)
    missed: set[str] = field(default_factory=set)
    over: str = ""

    def add(self, finding: Finding) -> None:
        if self.count:
            self.gap = max(self.gap, finding.step - self.last)
        self.count += 1
        self.last = max(self.last, finding.step)
        compared = (finding.tensor, finding.statistic, finding.threshold)
        self.subjects[finding.mode, finding.rank, *compared] += 1
        self.missed |= _classes(finding, MISSED)
        self.over = ""

    def ended(self, step: int) -> str:
        """Return a clause that says that the fault is over as of a train step; "" if unknown."""
        silent = step - self.last
        if self.first.is_about_rule or silent <= 0:
            return ""
        if self.first.fault == STALLED:
            return f"steps end again, as of step {step}"
        if min(self.subjects.values()) < _OFTEN or silent <= max(_GAPS * self.gap, _STEPS):
            return ""
        return (
            f"has not fired for {silent} steps; before, it fired {self.count} times, from step "
            f"{self.first.step} to {self.last}"
        )


@dataclass
class _Told:
    """The messages about a root cause that an action has sent.

    Attributes:
        severity: gravest severity.
        step: step of the last finding.
        time: time of the last message about the problem, in seconds since the epoch.
        counts: number of messages by kind and severity.
        recovered: whether the last message said that it is over.
    """

    severity: str
    step: int
    time: float
    counts: dict[tuple[str, str], int]
    recovered: bool = False


class Alerts:
    """Decides which messages follow the findings of a run, and when.

    The first message about a root cause comes after two seconds in which its symptoms are gathered.
    Another one follows if its findings became more severe, or if it has new findings after the
    cool-down. A recovery is reported once: of a stall after which steps end again, of classes that
    are all learned by now, and of a rule that fired repeatedly about the same tensors and is silent
    for ten times its largest gap.

    Args:
        cooldown: seconds between two messages about the same root cause.
        send: sends a message; called in a thread, one message after another.
        sent: returns the time and step of a message that an earlier judge of the run has sent; None
            if it has not.
    """

    def __init__(
        self,
        cooldown: float,
        send: Callable[[Message], None],
        sent: Callable[[Message], tuple[float, int] | None],
    ) -> None:
        self._cooldown = cooldown
        self._send = send
        self._sent = sent
        self._fired: dict[_Key, _Fired] = {}
        self._told: dict[tuple[str, str, str], _Told] = {}
        self._changed = threading.Condition()
        self._due: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def add(self, finding: Finding, names: Iterable[str]) -> None:
        """Add a finding, and the actions that send messages about it."""
        with self._changed:
            if CAUGHT_UP in finding.evidence:
                self._catch_up(finding)
                return
            key = (finding.rule, finding.fault, finding.severity, finding.is_about_rule)
            fired = self._fired.setdefault(key, _Fired(finding))
            fired.add(finding)
            fired.names = tuple(dict.fromkeys((*fired.names, *names)))
            if fired.names:
                self._wake(_GATHER)

    def see(self, step: Step) -> None:
        """Note a step that ended, by which a fault may be over."""
        if step.mode != "train":
            return
        # A rule may report a fault with several severities.
        faults: dict[tuple[str, str], list[_Fired]] = {}
        for fired in self._fired.values():
            if not fired.first.is_about_rule:
                faults.setdefault((fired.first.rule, fired.first.fault), []).append(fired)
        for same in faults.values():
            if any(one.names and not one.over for one in same):
                said = [one.ended(step.step) for one in same]
                if all(said):
                    with self._changed:
                        self._end(same, said[-1])

    def close(self) -> None:
        """Send what is due, without gathering more; the cool-down holds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _catch_up(self, finding: Finding) -> None:
        """Note that classes are learned by now, with which the fault of some findings is over."""
        learned = _classes(finding, CAUGHT_UP)
        same = [
            one
            for one in self._fired.values()
            if one.first.rule == finding.rule and not one.first.is_about_rule
        ]
        for fired in same:
            fired.missed -= learned
        self._end([one for one in same if not one.missed], finding.seen)

    def _end(self, faults: Iterable[_Fired], said: str) -> None:
        for fired in faults:
            fired.over = said
        self._wake(0.0)

    def _wake(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        if self._due is None or due < self._due:
            self._due = due
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (self._due is None or time.monotonic() < self._due):
                    left = None if self._due is None else self._due - time.monotonic()
                    self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
                self._due = None
                closed = self._closed
                messages = self._messages(time.time())
            for message in messages:
                self._send(message)
            if closed:
                return

    def _messages(self, now: float) -> list[Message]:
        """Return the messages that are due now, and note them as told."""
        fired = {id(one.first): one for one in self._fired.values()}
        found = []
        for cause in root_causes([one.first for one in self._fired.values()]):
            members = [fired[id(one)] for one in cause.all]
            for name in dict.fromkeys(name for one in members for name in one.names):
                asking = [one for one in members if name in one.names]
                message = self._message(name, cause, members, asking, now)
                if message is not None:
                    found.append(message)
        return found

    def _message(
        self, name: str, cause: RootCause, members: list[_Fired], asking: list[_Fired], now: float
    ) -> Message | None:
        """Return the message about a root cause that is due, if there is one."""
        severity = max((one.first.severity for one in asking), key=_SEVERITIES.index)
        step, count = max(one.last for one in asking), sum(one.count for one in members)
        key = (name, cause.finding.rule, cause.finding.fault)

        message = Message(name, "problem", cause, severity, 0, step, count)
        if key not in self._told:
            self._told[key] = self._earlier(message)
        told = self._told[key]
        over = next(one.over for one in members if one.first is cause.finding)
        if not told.severity or _SEVERITIES.index(severity) > _SEVERITIES.index(told.severity):
            kind: MessageKind = "problem"
            if over:
                self._wake(0.0)
        elif over and not told.recovered:
            kind = "recovered"
        elif not over and step > told.step and now >= told.time + self._cooldown:
            kind = "again"
        else:
            if not over and step > told.step:
                self._wake(told.time + self._cooldown - now)
            return None
        number = told.counts.get((kind, severity), 0)
        told.counts[kind, severity] = number + 1
        told.severity, told.step, told.recovered = severity, step, kind == "recovered"
        if kind != "recovered":
            told.time = now
        return replace(message, kind=kind, number=number, said=over if told.recovered else "")

    def _earlier(self, message: Message) -> _Told:
        """Return what an earlier judge of the run has sent about the root cause of a message."""
        told, newest = _Told("", -1, 0.0, {}), 0.0
        for severity in _SEVERITIES:
            for kind in get_args(MessageKind):
                one = replace(message, kind=kind, severity=severity, number=0)
                while (sent := self._sent(one)) is not None:
                    at, step = sent
                    told.severity, told.step = severity, max(told.step, step)
                    if kind != "recovered":
                        told.time = max(told.time, at)
                    if at >= newest:
                        newest, told.recovered = at, kind == "recovered"
                    one = replace(one, number=one.number + 1)
                    told.counts[kind, severity] = one.number
        return told


def _classes(finding: Finding, key: str) -> set[str]:
    """Return the classes that the evidence of a finding names, by their numbers."""
    shares = finding.evidence.get(key)
    return set(shares) if isinstance(shares, dict) else set()
