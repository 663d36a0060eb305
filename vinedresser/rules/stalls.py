"""Findings that no step ends: explained, and outside of the steps confirmed.

What a script does before its first step and after its last one may take hours: downloads,
compilations, a last evaluation, an upload. Nothing of the run itself says how long. So a finding
about it is held back until all ranks were seen to stand still: in the same frames whenever they
were asked, while no process of theirs works.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace

from vinedresser.objects import Storage
from vinedresser.rules.standing import STALLED, ask_for_stacks, explain_stall, stand_still
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import StacksRecord, SupervisorRecord, heartbeats

__all__ = ["Stalls"]

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


class Stalls:
    """The findings about silence of one run.

    Args:
        storage: storage of the run.
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
