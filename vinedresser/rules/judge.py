"""Judge a run, while it trains or afterwards.

From a symptom to the end of a run, each record has its own part:

- `Symptom`: a rule's observation at one step, before it is confirmed.
- `Finding`: a confirmed observation, with step, rule and severity; a line of the findings file.
- `StopRecord` (stop.json): the request to stop the run, with the finding that caused it.
- `ExitRecord` (exit.json): how the run ended, with the `StopRecord` if it was stopped.
- `Status`: the present state of a run, computed from `ExitRecord` and heartbeats; never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from vinedresser.objects import Storage
from vinedresser.rules.actions.stop import StopOnSeverity
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.root_cause import cause_of
from vinedresser.rules.engine import Engine
from vinedresser.rules.standing import STALLED, ask_for_stacks, explain_stall, stand_still
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.findings import Findings
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import (
    ClaimRecord,
    ExitRecord,
    RunRecord,
    StacksRecord,
    StopRecord,
    SupervisorRecord,
    heartbeats,
    read_record,
)

__all__ = ["Newcomers", "Stopping", "judge"]

# Share of the time limit for which the ranks have to stand still, and seconds at the least: on a
# machine that is busy with something else, a rank that works may not run for a while.
_STILL = 0.25
_STILL_SECONDS = 5.0
# Seconds without a heartbeat, which is written every second, of an interpreter that is blocked.
_SILENT = 10.0
_CAUSES = {
    "start": "before its first step the training waits for something that does not come: another "
    "rank, an address that cannot be reached, data",
    "end": "the training is done, but its script waits for something that does not come; a process "
    "group of gloo that is freed right after a step may wait for itself",
}
_REMEDIES = {
    "start": "look at the output of the ranks; pass a timeout to init_process_group",
    "end": "its steps are complete: end the run; keep the process group and the model until the "
    "end of the script, and call dist.barrier() before",
}


class Stopping(Protocol):
    """Decides which findings stop a run, and requests the stop."""

    def stops(self, finding: Finding) -> bool:
        """Return whether a finding stops the run."""

    def stop(self, fatal: Finding, record: StopRecord) -> None:
        """Request the stop of the training.

        Args:
            record: origin of and reason for the request.
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
) -> Findings:
    """Apply rules to a run from its first step until it is over.

    The findings do not depend on whether the run still trains or on how often it is judged.

    Args:
        rules: rules to apply; they are not changed.
        live: make the training commit each step at once, and request its stop (`StopRecord`) when
            a finding stops it. The request names the root cause among all findings. An earlier
            request stays in force.
        on_finding: called with each finding, before a stop is requested.
        poll: seconds between two reads while there is no new step; None: see `Run.follow`.
        stopping: decides which findings stop the training; None: those of severity "stop".
        on_step: called with each step after the rules.

    Returns:
        The findings in the order in which they were made, with the rules that have judged.

    Raises:
        StoreError: the storage refused.
    """
    engine = Engine(rules)
    findings = Findings()
    ending = stopping or StopOnSeverity(run.storage)
    asked = not live
    seen = on_step or (lambda _step, _engine: None)

    stalls = _Stalls(run.storage, live=live)

    def take(new: list[Finding], until: float = math.inf) -> None:
        nonlocal asked
        new = stalls.settle(new, until)
        findings.extend(new)
        if on_finding:
            for finding in new:
                on_finding(finding)
        fatal = next(filter(ending.stops, new), None)
        if fatal and not (asked or run.finished):
            asked = True
            ending.stop(fatal, _stop_record(cause_of(fatal, findings), fatal.step))

    newcomers = Newcomers()

    def idle() -> None:
        take(engine.idle(time.time(), stalls.started))

    steps = run.follow(poll, urgent=live, on_idle=idle)
    for step in _held_until_training(steps) if live else steps:
        completed = live and newcomers.have_joined(step)
        # Some losses are known after a few updates, and a breach of a contract may be later.
        completed |= live and step.mode == "train" and step.step.bit_count() == 1
        if not engine.begun:
            take(engine.idle(step.time, stalls.started), step.time)
            # The hook completes the record before the first step of a model, up to a few losses.
            engine.begin(read_record(run.storage, RunRecord) or run.info)
        elif completed:
            _read_again(run, engine)
        take(engine.update(step), step.time)
        seen(step, engine)
    _read_again(run, engine)
    # A damaged record is one of the run's problems.
    end = read_record_or_none(run.storage, ExitRecord, ExitRecord.KEY, [])
    # The record of a killed training holds the time at which its death was noticed.
    if end is not None and end.cause in ("finished", "stopped"):
        take(engine.idle(end.ended, stalls.started), end.ended)
    whole = end is not None and end.cause == "finished"
    early = not whole and (end is None or end.stop is None or end.stop.by != "rule")
    attached = run.storage.exists(ClaimRecord.KEY)
    take(engine.finish(early=early))
    findings.checks = engine.checks(whole=whole, attached=attached)
    return findings


def _read_again(run: Run, engine: Engine) -> None:
    """Let rules that have begun read the record of a run again, which the hook completes."""
    if engine.begun:
        engine.on_record(read_record(run.storage, RunRecord) or run.info)


def _held_until_training(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, those before the first train step only when that one is there.

    Before it, the record of the run is not complete, such as at the evaluation of the first round
    of boosting, or at one that checks the evaluation before a training.
    """
    held: list[Step] | None = []
    for step in steps:
        if held is None:
            yield step
            continue
        held.append(step)
        if step.mode == "train":
            yield from held
            held = None
    yield from held or ()


def _stop_record(finding: Finding, step: int) -> StopRecord:
    """Return the request to stop a training.

    Args:
        step: step of the finding that stops the run.
    """
    return StopRecord(
        by="rule",
        rule=finding.rule,
        step=step,
        reason=finding.seen,
        time=time.time(),
        finding=finding.to_json(),
    )


class Newcomers:
    """The weights of a run that were captured so far.

    A script may train one model after another, such as an encoder and then a classifier on it. The
    record of the run describes a model from its first step on.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def have_joined(self, step: Step) -> bool:
        """Note the weights of the next step; return whether any is new."""
        if step.mode != "train":
            return False
        new = {name for name in step.measured_names if name.startswith("weights/")} - self._known
        self._known |= new
        return bool(new)


class _Stalls:
    """The findings about silence of one run.

    Args:
        live: ask its supervisor where the ranks stand.
    """

    def __init__(self, storage: Storage, *, live: bool) -> None:
        self._storage = storage
        self._live = live
        self._started: float | None = None
        self._held: Finding | None = None
        self._look_at = 0.0

    @property
    def started(self) -> float | None:
        """When the processes of the run were started, in seconds since the epoch, if by us."""
        if self._started is None:
            found = read_record_or_none(self._storage, SupervisorRecord, SupervisorRecord.KEY, [])
            self._started = None if found is None else found.started
        return self._started

    def settle(self, new: Iterable[Finding], until: float = math.inf) -> list[Finding]:
        """Return findings, with those about stalls explained; some are held back.

        Args:
            new: the findings of the rules.
            until: end of the silence, in seconds since the epoch; infinity: it lasts.
        """
        settled = []
        for finding in new:
            if finding.fault != STALLED:
                settled.append(finding)
                continue
            one = self._sectioned(finding, until)
            if one.evidence.get("section") in _CAUSES:
                self._held, self._look_at = one, 0.0
            else:
                live = self._live and until == math.inf
                settled.append(explain_stall(one, self._storage, live=live))
        return settled + self.due(until)

    def due(self, until: float = math.inf) -> list[Finding]:
        """Return a finding that was held back, once the ranks stand still.

        Call it repeatedly while the run is silent, and with its end afterwards; see `settle`.
        """
        held, now, lasts = self._held, time.time(), until == math.inf
        if held is None or (lasts and now < self._look_at):
            return []
        still = max(_STILL * held.value, _STILL_SECONDS)
        self._look_at = now + still
        if not lasts:
            self._held = None
        elif self._live:
            ask_for_stacks(self._storage)
        found = read_record_or_none(self._storage, StacksRecord, StacksRecord.KEY, [])
        if found is None or not held.evidence["silent_since"] + held.value <= found.time <= until:
            return []
        if not stand_still(found, still, self._blocked(found.time - max(still, _SILENT))):
            return []
        self._held = None
        section = held.evidence["section"]
        held = replace(held, cause=_CAUSES[section], remedy=_REMEDIES[section])
        one = explain_stall(held, self._storage, live=False)
        return [replace(one, seen=f"{one.seen}; unchanged for more than {still:.3g} s")]

    def _sectioned(self, finding: Finding, until: float) -> Finding:
        """Return a finding of the end as one, and with its severity: the training is no fault."""
        evidence = finding.evidence
        if evidence.get("section") == "step" and (done := self._done(finding, until)):
            seen = f"{done}, but the run has not ended for more than {finding.value:.0f} s"
            finding = replace(finding, seen=seen, evidence={**evidence, "section": "end"})
        if finding.evidence.get("section") != "end" or finding.severity == "stop":
            return finding
        return replace(finding, severity="info")

    def _done(self, finding: Finding, until: float) -> str:
        """Return which ranks had no other step to come when the silence was too long, or ""."""
        beats = heartbeats(self._storage)
        limit = finding.evidence["silent_since"] + finding.value
        if beats and all(beat.closed and beat.time <= limit for beat in beats):
            return "the training has ended"
        # A rank whose interpreter is blocked does not write down its last step.
        last = finding.evidence["expected_steps"]
        done = [beat.rank for beat in beats if last is not None and beat.last_step >= last - 1]
        return f"rank {done[0]} has done all {last:,} steps" if done and until == math.inf else ""

    def _blocked(self, before: float) -> list[int]:
        """Return the ranks whose last heartbeat was before a time; their interpreter is blocked."""
        beats = heartbeats(self._storage)
        return [beat.rank for beat in beats if not beat.closed and beat.time < before]
