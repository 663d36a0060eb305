"""Judging one run, while it trains or long after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from vinedresser.rules.actions.stop import StopOnSeverity
from vinedresser.rules.base import Rule
from vinedresser.rules.engine import Engine
from vinedresser.rules.root_cause import root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    StopRecord,
    read_record,
)

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["Stopping", "judge"]


class Stopping(Protocol):
    """Decides which finding ends a run, and asks it to end."""

    def stops(self, finding: Finding) -> bool:
        """Say whether a finding ends the run."""

    def stop(self, fatal: Finding, record: StopRecord) -> None:
        """Ask the training to end.

        Args:
            fatal: the finding that ends it.
            record: who asks, and why.
        """


def judge(
    run: Run,
    rules: Iterable[Rule],
    *,
    live: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    poll: float | None = None,
    stopping: Stopping | None = None,
    on_step: Callable[[Step, Engine], None] | None = None,
) -> list[Finding]:
    """Show a run to rules from its first step on, until it is over.

    The findings are the same whether it still trains or ended long ago, and however often it is
    looked at.

    Args:
        run: what to judge.
        rules: what to judge by; they are left as they are.
        live: have the training commit its steps at once, and ask it to end (`StopRecord`) when a
            rule of severity "stop" fires, for what is the root cause of all that was found; the
            first who asks is the one.
        on_finding: called with each finding, before the training is asked to end.
        poll: seconds between two looks when there is nothing new; None: see `Run.follow`.
        stopping: decides which finding ends the training; None: the first of severity "stop".
        on_step: called with each step when the rules have seen it.

    Returns:
        The findings in the order in which they were made.

    Raises:
        StoreError: the storage refused.
    """
    engine = Engine(rules)
    findings: list[Finding] = []
    ending = stopping or StopOnSeverity(run.storage)
    asked = not live
    seen = on_step or (lambda _step, _engine: None)

    def take(new: list[Finding]) -> None:
        nonlocal asked
        findings.extend(new)
        if on_finding:
            for finding in new:
                on_finding(finding)
        fatal = next(filter(ending.stops, new), None)
        if fatal and not (asked or run.finished):
            asked = True
            ending.stop(fatal, _stop_record(_cause_of(fatal, findings), fatal.step))

    begun = False

    def idle() -> None:
        if begun:
            take(engine.idle(time.time()))

    for step in run.follow(poll, urgent=live, on_idle=idle):
        if not begun:
            begun = True
            engine.begin(_info(run))
        take(engine.update(step))
        seen(step, engine)
    if (ended := _ended(run)) is not None:
        take(engine.idle(ended))
    take(engine.finish())
    return findings


def _ended(run: Run) -> float | None:
    """Return when the training ended by itself or as it was asked to; None: nobody knows.

    Of one that was killed, it is noted when somebody found that out.
    """
    end = read_record(run.storage, ExitRecord)
    return end.ended if end is not None and end.cause in ("finished", "stopped") else None


def _info(run: Run) -> RunRecord:
    """Return the run's record as it is now: the hook completed it before the first step."""
    return read_record(run.storage, RunRecord) or run.info


def _cause_of(fatal: Finding, findings: list[Finding]) -> Finding:
    """Return the root cause of a finding among all of them; itself, where there is no other."""
    roots = root_causes(findings)
    return next(root.finding for root in roots if fatal in (root.finding, *root.symptoms))


def _stop_record(finding: Finding, step: int) -> StopRecord:
    """Return the wish that a training ends.

    Args:
        finding: for which it is to end.
        step: at which a finding that ends it was made.
    """
    return StopRecord(
        by="rule",
        rule=finding.rule,
        step=step,
        reason=finding.seen,
        time=time.time(),
        finding=finding.to_json(),
    )
