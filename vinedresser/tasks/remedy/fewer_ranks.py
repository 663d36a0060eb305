"""With how many ranks a training can begin again whose host, GPU or rank is gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vinedresser.explain.formatting import count
from vinedresser.infra.supervise.gpus import visible_gpus
from vinedresser.infra.supervise.hosts.reachable import unreachable_hosts
from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason
from vinedresser.infra.supervise.supervisor.first_failure import is_victim
from vinedresser.objects.base import get_or_none
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import ExitRecord, rank_log_key
from vinedresser.tasks.config.run_spec import RunTable
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.places.checkpoints import rank_count

__all__ = ["FailingRank", "Room", "failing_rank", "room_for_ranks"]

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


class FailingRank(NamedTuple):
    """A rank without which a training begins again.

    Attributes:
        rank: its number.
        ranks: number of ranks of the runs in which it failed.
        host: its host, which is left out; "": it is this one.
    """

    rank: int
    ranks: int
    host: str = ""


class Room(NamedTuple):
    """The ranks for which there is room.

    Attributes:
        ranks: their number.
        hosts: see `LaunchSettings`.
        why: why they are fewer than the file says; "" if they are not.
    """

    ranks: int
    hosts: int | list[str]
    why: str


def room_for_ranks(run: RunTable, failing: Collection[FailingRank]) -> Room:
    """Return for how many ranks there is room: hosts by name are asked, and GPUs counted.

    Args:
        run: what the file says.
        failing: ranks without which it begins again.
    """
    said = [
        f"rank {rank} of {ranks}{host and f' (host {host})'} failed twice before its first step"
        for rank, ranks, host in sorted(failing, key=lambda one: (-one.ranks, one.rank))
    ]
    if not isinstance(run.hosts, int):
        silent = {*unreachable_hosts(run.hosts, INTERRUPTED.is_set)}
        left_out = silent | {one.host for one in failing}
        hosts = [host for host in run.hosts if host not in left_out]
        why = [f"host {host} does not answer" for host in run.hosts if host in silent]
        ranks = run.ranks // len(run.hosts) * len(hosts)
        return Room(ranks, hosts, ", ".join([*why, *said]))
    ranks = run.ranks - len(failing)
    if run.gpus_per_rank and not run.elsewhere and len(gpus := visible_gpus()) < run.own_gpus:
        said.append(f"this machine has {count(len(gpus), 'GPU')}")
        ranks = min(ranks, len(gpus) // run.gpus_per_rank)
    return Room(ranks, run.hosts, ", ".join(said))


def failing_rank(runs: Sequence[Run]) -> int | None:
    """Return the rank by which a training cannot begin again, though it has trained before.

    In the last two runs it failed before its first step, with an error that no other rank had.

    Args:
        runs: the training's runs, all of which are over.

    Raises:
        StoreError: a run cannot be read.
    """
    earlier, repeated = runs[:-2], runs[-2:]
    if not any(len(run.steps("train")) for run in earlier):
        return None
    failed = {(rank_count(run), _failed_rank(run)) for run in repeated}
    [(ranks, rank), *others] = failed
    if others or rank is None or not 0 <= rank < ranks:
        return None
    return rank if all(_failed_alone(run, rank, ranks) for run in repeated) else None


def _failed_rank(run: Run) -> int | None:
    end = read_record_or_none(run.storage, ExitRecord, ExitRecord.KEY, [])
    return None if end is None else end.rank


def _failed_alone(run: Run, rank: int, ranks: int) -> bool:
    """Return whether a rank took no step, and its error is that of no other rank."""
    if len(run.steps("train", rank)) or is_victim(_error(run, rank)):
        return False
    # Numbers, such as that of the rank or an address, make no other error.
    errors = [_NUMBER.sub("", _error(run, number)) for number in range(ranks)]
    return errors.count(errors[rank]) == 1


def _error(run: Run, rank: int) -> str:
    """Return what the output of a rank says about its failure."""
    reason = CrashReason()
    log = get_or_none(run.storage, rank_log_key(rank)) or b""
    reason.feed(log.decode(errors="replace").splitlines())
    return reason.text
