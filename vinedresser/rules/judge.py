"""Judging one run, while it trains or long after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.reader import Run
from vinedresser.errors import KeyTaken
from vinedresser.infra.run_directory import RunRecord, StopRecord, read_record, write_record
from vinedresser.rules.base import Rule
from vinedresser.rules.engine import Engine
from vinedresser.rules.root_cause import root_causes

__all__ = ["judge"]

_LOG = logging.getLogger(__name__)


def judge(
    run: Run,
    rules: Iterable[Rule],
    *,
    live: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    poll: float | None = None,
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

    Returns:
        The findings in the order in which they were made.

    Raises:
        StoreError: the storage refused.
    """
    engine = Engine(rules)
    findings: list[Finding] = []
    stopping = not live

    def take(new: list[Finding]) -> None:
        nonlocal stopping
        findings.extend(new)
        if on_finding:
            for finding in new:
                on_finding(finding)
        fatal = next((finding for finding in new if finding.severity == "stop"), None)
        if fatal and not stopping:
            stopping = True
            _ask_to_end(run, _cause_of(fatal, findings), fatal.step)

    begun = False
    for step in run.follow(poll, urgent=live):
        if not begun:
            begun = True
            engine.begin(_info(run))
        take(engine.update(step))
    take(engine.finish())
    return findings


def _info(run: Run) -> RunRecord:
    """Return the run's record as it is now: the hook completed it before the first step."""
    return read_record(run.storage, RunRecord) or run.info


def _cause_of(fatal: Finding, findings: list[Finding]) -> Finding:
    """Return the root cause of a finding among all of them; itself, where there is no other."""
    roots = root_causes(findings)
    return next(root.finding for root in roots if fatal in (root.finding, *root.symptoms))


def _ask_to_end(run: Run, finding: Finding, step: int) -> None:
    """Ask the training to end, unless it has ended or somebody else asked before.

    Args:
        run: the training.
        finding: for which it is to end.
        step: at which a rule of severity "stop" became sure.
    """
    if run.finished:
        return
    stop = StopRecord(
        by="rule",
        rule=finding.rule,
        step=step,
        reason=finding.seen,
        time=time.time(),
        finding=finding.to_json(),
    )
    try:
        write_record(run.storage, stop, exclusive=True)
    except KeyTaken:
        _LOG.info("%s: was asked to end before: %s", run.path, finding.seen)
