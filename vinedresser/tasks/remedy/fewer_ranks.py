"""With how many ranks a training can begin again whose host, GPU or rank is gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vinedresser.explain.formatting import count
from vinedresser.infra.supervise.gpus import visible_gpus
from vinedresser.infra.supervise.hosts.reachable import unreachable_hosts
from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason
from vinedresser.objects.base import get_or_none
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import ExitRecord, rank_log_key
from vinedresser.tasks.config.run_spec import RunTable
from vinedresser.tasks.interruption import INTERRUPTED

__all__ = ["Room", "failing_rank", "room_for_ranks"]


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


def room_for_ranks(run: RunTable, failing: Collection[tuple[int, str]]) -> Room:
    """Return for how many ranks there is room: hosts by name are asked, and GPUs counted.

    Args:
        run: what the file says.
        failing: ranks without which it begins again, each with its host, which is left out; "": it
            is this one.
    """
    said = [
        f"rank {rank}{host and f' (host {host})'} failed twice before its first step"
        for rank, host in sorted(failing)
    ]
    if not isinstance(run.hosts, int):
        silent = {*unreachable_hosts(run.hosts, INTERRUPTED.is_set)}
        left_out = silent | {host for _, host in failing}
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
    failed = {(run.info.world_size, _failed_rank(run)) for run in repeated}
    [(_, rank), *others] = failed
    if others or rank is None or not all(_failed_alone(run, rank) for run in repeated):
        return None
    return rank


def _failed_rank(run: Run) -> int | None:
    end = read_record_or_none(run.storage, ExitRecord, ExitRecord.KEY, [])
    return None if end is None else end.rank


def _failed_alone(run: Run, rank: int) -> bool:
    """Return whether a rank took no step, and its error is that of no other rank."""
    errors = [_error(run, number) for number in range(run.info.world_size)]
    return not len(run.steps("train", rank)) and errors.count(errors[rank]) == 1


def _error(run: Run, rank: int) -> str:
    """Return what the output of a rank says about its failure."""
    reason = CrashReason()
    log = get_or_none(run.storage, rank_log_key(rank)) or b""
    reason.feed(log.decode(errors="replace").splitlines())
    # Numbers, such as that of the rank, make no other error.
    return re.sub(r"\d+", "", reason.text)
