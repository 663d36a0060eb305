"""Published rule sets, reimplemented from their published thresholds, for comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.faults.peers import autotrainer, debugger, umlaut
from benchmarks.faults.peers.evidence import PEER_CAPTURE, Alarm, Evidence

__all__ = ["PEERS", "PEER_CAPTURE", "Alarm", "Evidence", "autotrainer", "debugger", "umlaut"]

PEERS: dict[str, Callable[[Evidence], list[Alarm]]] = {
    "AUTOTRAINER": autotrainer.alarms_of,
    "UMLAUT": umlaut.alarms_of,
    "Debugger, every 500 steps": partial(debugger.alarms_of, every=500),
    "Debugger, every 20 steps": partial(debugger.alarms_of, every=20),
}
