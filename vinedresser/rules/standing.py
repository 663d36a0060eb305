"""Where the ranks of a stalled run stand, and which one the others wait for."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NamedTuple

from vinedresser.objects import LocalStorage, Storage
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import (
    StacksRecord,
    StacksRequest,
    SupervisorRecord,
    write_record,
)

__all__ = ["STALLED", "ask_for_stacks", "explain_stall", "hangs", "stand_still"]

STALLED = "stalled"
"""The fault of a finding that no step ends."""

# Seconds in which a supervisor answers.
_PATIENCE = 5.0
_TICK = 0.02
# Characters of what is said about a collective.
_LONGEST = 200
# Directories of libraries in the path of a file.
_LIBRARIES = ("site-packages", "dist-packages", "lib/python3", "vinedresser/capture", "<frozen")
# Asks again and again whether the others are there.
_BEGINS = "waits for the others to begin"
# The frames in which a rank waits for others, by the end of their file, in words. A backward pass
# ends with the reduction of the gradients, a function of a distribution strategy with that, too.
_WAITS = {
    "torch/distributed/distributed_c10d.py": "waits in {function}",
    "torch/distributed/rendezvous.py": _BEGINS,
    "torch/nn/parallel/distributed.py": "is in DistributedDataParallel",
    "torch/autograd/graph.py": "is in the backward pass",
    "tensorflow/python/eager/execute.py": "is in a function of TensorFlow",
    "tensorflow/python/eager/context.py": "is in a function of TensorFlow",
}
# The wrapper of each collective operation of torch, and what is inside of one, say nothing.
_SAYS_NOTHING = re.compile(r"wrapper|_.*")
# The frames in which a rank saves a checkpoint.
_SAVES = re.compile(
    r"torch/(serialization|distributed/checkpoint/\w+)\.py:_?(legacy_|async_)?save"
    r"|safetensors/\w+\.py:save|keras/src/saving/\w+\.py:_?save"
)


class _Place(NamedTuple):
    """Where a rank stands.

    Attributes:
        waits: how it waits for other ranks, such as "waits in all_reduce"; "" if it does not.
        saves: whether it saves a checkpoint.
        where: the line of the script.
        state, here, works, collective: see `StacksRecord`.
    """

    waits: str
    saves: bool
    where: str
    state: str
    here: float
    works: bool
    collective: str = ""

    @property
    def words(self) -> str:
        """The place in words, after "rank 1"."""
        if self.state == "ended":
            return "has ended"
        if self.state == "stopped":
            return "is stopped by a signal"
        if not self.where:
            return "does not say where it is"
        if self.waits or self.saves:
            collective = f", {self.collective}" if self.waits and self.collective else ""
            return f"{self.waits or 'saves a checkpoint'}{collective} ({self.where})"
        return f"is at {self.where}"


def explain_stall(finding: Finding, storage: Storage, *, live: bool) -> Finding:
    """Return the finding about a stalled run with the places of its ranks.

    If some ranks wait in a collective operation and others do not, these are missing there, and the
    finding is about the first of them. A run that is judged later gives the same finding.

    Args:
        storage: the run's storage; one on another machine is not asked.
        live: ask a run that still trains.

    Raises:
        StoreError: the storage refused.
    """
    if live:
        ask_for_stacks(storage)
    found = read_record_or_none(storage, StacksRecord, StacksRecord.KEY, [])
    # That of an earlier stall says nothing about this one.
    if found is None or found.time < finding.evidence.get("silent_since", 0.0):
        return finding
    if len(found.ranks) == 1:
        place = _place(found.ranks[0])._replace(waits="")
        return replace(finding, seen=f"{finding.seen}; the process {place.words}")
    places = _places(found)
    odd = _odd(places)
    words = {rank: f"rank {rank} {place.words}" for rank, place in places.items()}
    evidence = {
        **finding.evidence,
        "ranks": {str(rank): place.words for rank, place in places.items()},
        "missing": odd,
    }
    if any(place.saves for place in places.values()):
        evidence["section"] = "checkpoint"
    if not odd:
        seen = f"{finding.seen}; {', '.join(words.values())}"
        return replace(finding, seen=seen, evidence=evidence)
    missing = ", ".join(words[rank] for rank in odd)
    others = ", ".join(text for rank, text in words.items() if rank not in odd)
    return replace(
        finding,
        rank=odd[0],
        seen=f"{finding.seen}; {missing}, while {others}",
        cause=f"rank {odd[0]} does not take part in what the others wait for: it takes another "
        "branch, has fewer batches, or does not come back from there",
        remedy="let all ranks run the same collective operations in the same order and equally "
        "often; what only one rank does must not take longer than the others wait",
        evidence=evidence,
    )


def hangs(finding: Finding) -> bool:
    """Return whether a finding is about a training that hangs, before it has done all its steps."""
    return finding.fault == STALLED and finding.evidence.get("section") != "end"


def ask_for_stacks(storage: Storage) -> None:
    """Ask the supervisor of a run on this machine for the stacks, and wait for them."""
    if not isinstance(storage, LocalStorage) or not storage.exists(SupervisorRecord.KEY):
        return
    write_record(storage, StacksRequest(time.time()))
    deadline = time.monotonic() + _PATIENCE
    # It removes the request once it has answered.
    while storage.exists(StacksRequest.KEY) and time.monotonic() < deadline:
        time.sleep(_TICK)


def stand_still(found: StacksRecord, seconds: float, blocked: Collection[int]) -> bool:
    """Return whether no rank has got ahead: each waits for another one, or for nothing that works.

    What waits for others may be busy with that.

    Args:
        seconds: for how long they have to stand there.
        blocked: ranks whose interpreter has not run for as long.
    """
    places = _places(found)
    running = {rank: one for rank, one in places.items() if one.state == "running"}
    missing = {rank: one for rank, one in running.items() if not one.waits} or running
    idle = all(
        not one.works or rank in blocked or one.waits == _BEGINS for rank, one in missing.items()
    )
    return bool(running) and idle and all(one.here >= seconds for one in running.values())


def _places(found: StacksRecord) -> dict[int, _Place]:
    return {rank: _place(one) for rank, one in enumerate(found.ranks)}


def _place(one: Mapping[str, Any]) -> _Place:
    frames: Sequence[tuple[str, int, str]] = one["frames"]
    own = next((frame for frame in frames if not _of_library(frame[0])), None)
    where = f"{PurePath(own[0]).name}:{own[1]} in {own[2]}" if own is not None else ""
    waits = next((name for frame in frames if (name := _operation(frame[0], frame[2]))), "")
    saves = any(_SAVES.search(f"{file}:{function}") for file, _, function in frames)
    here, works = one.get("here", 0.0), one.get("works", True)
    collective = one.get("collective", "")[:_LONGEST]
    return _Place(waits, saves, where, one["state"], here, works, collective)


def _of_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


def _operation(file: str, function: str) -> str:
    """Return how a rank waits for others in a frame; "" for any other frame."""
    if _SAYS_NOTHING.fullmatch(function) and file.endswith("distributed_c10d.py"):
        return ""
    ways = (text for end, text in _WAITS.items() if file.endswith(end))
    return next(ways, "").format(function=function)


def _odd(places: Mapping[int, _Place]) -> list[int]:
    """Return the ranks that others wait for; [] if that is not certain."""
    waiting = [rank for rank, place in places.items() if place.waits and place.state == "running"]
    if not waiting:
        return []
    missing = [rank for rank in places if rank not in waiting]
    if missing:
        return missing
    # All wait, but not for the same.
    usual = Counter((place.waits, place.where) for place in places.values()).most_common(2)
    if len(usual) < 2 or usual[0][1] == usual[1][1]:
        return []
    return [rank for rank, one in places.items() if (one.waits, one.where) != usual[0][0]]
