"""Where the ranks of a stalled run stand, and which one the others wait for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
    write_first,
)

__all__ = ["STALLED", "explain_stall"]

STALLED = "stalled"
"""The fault of a finding that no step ends."""

# Seconds in which a supervisor answers.
_PATIENCE = 5.0
_TICK = 0.02
# Directories of libraries in the path of a file.
_LIBRARIES = ("site-packages", "dist-packages", "lib/python3", "vinedresser/capture", "<frozen")
# The frames in which a rank waits for others, by the end of their file, in words. A backward pass
# ends with the reduction of the gradients, a function of a distribution strategy with that, too.
_WAITS = {
    "torch/distributed/distributed_c10d.py": "waits in {function}",
    "torch/distributed/rendezvous.py": "waits for the others to begin",
    "torch/nn/parallel/distributed.py": "is in DistributedDataParallel",
    "torch/autograd/graph.py": "is in the backward pass",
    "tensorflow/python/eager/execute.py": "is in a function of TensorFlow",
    "tensorflow/python/eager/context.py": "is in a function of TensorFlow",
}
# The wrapper of each collective operation of torch, which says nothing.
_WRAPPER = "wrapper"


class _Place(NamedTuple):
    """Where a rank stands.

    Attributes:
        waits: how it waits for other ranks, such as "waits in all_reduce"; "" if it does not.
        where: the line of the script.
        state: see `StacksRecord`.
    """

    waits: str
    where: str
    state: str

    @property
    def words(self) -> str:
        """The place in words, after "rank 1"."""
        if self.state == "ended":
            return "has ended"
        if self.state == "stopped":
            return "is stopped by a signal"
        if not self.where:
            return "does not say where it is"
        if self.waits:
            return f"{self.waits} ({self.where})"
        return f"is at {self.where}"


def explain_stall(finding: Finding, storage: Storage, *, live: bool) -> Finding:
    """Return the finding about a stalled run with the places of its ranks.

    If some ranks wait in a collective operation and others do not, these are missing there, and the
    finding is about the first of them. A run that is judged later gives the same finding.

    Args:
        finding: the finding.
        storage: the run's storage; one on another machine is not asked.
        live: ask a run that still trains.

    Raises:
        StoreError: the storage refused.
    """
    if live and isinstance(storage, LocalStorage) and storage.exists(SupervisorRecord.KEY):
        _ask(storage)
    found = read_record_or_none(storage, StacksRecord, StacksRecord.KEY, [])
    if found is None:
        return finding
    if len(found.ranks) == 1:
        place = _place(found.ranks[0])._replace(waits="")
        return replace(finding, seen=f"{finding.seen}; the process {place.words}")
    places = {rank: _place(one) for rank, one in enumerate(found.ranks)}
    odd = _odd(places)
    words = {rank: f"rank {rank} {place.words}" for rank, place in places.items()}
    evidence = {
        **finding.evidence,
        "ranks": {str(rank): place.words for rank, place in places.items()},
        "missing": odd,
    }
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


def _ask(storage: Storage) -> None:
    """Ask the supervisor for the stacks, and wait for them."""
    write_first(storage, StacksRequest(time.time()))
    deadline = time.monotonic() + _PATIENCE
    while not storage.exists(StacksRecord.KEY) and time.monotonic() < deadline:
        time.sleep(_TICK)


def _place(one: Mapping[str, Any]) -> _Place:
    frames: Sequence[tuple[str, int, str]] = one["frames"]
    own = next((frame for frame in frames if not _of_library(frame[0])), None)
    where = f"{PurePath(own[0]).name}:{own[1]} in {own[2]}" if own is not None else ""
    waits = next((name for frame in frames if (name := _operation(frame[0], frame[2]))), "")
    return _Place(waits, where, one["state"])


def _of_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


def _operation(file: str, function: str) -> str:
    """Return how a rank waits for others in a frame; "" for any other frame."""
    if function == _WRAPPER:
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
