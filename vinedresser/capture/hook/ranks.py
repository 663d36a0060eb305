"""The hook of one rank of several: what all do at the same step, and a warning about lone ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress

from vinedresser.capture.recording.joint_stop import JointStop
from vinedresser.capture.recording.pace import SharedPace
from vinedresser.capture.recording.session import Session
from vinedresser.capture.run.connections import connected
from vinedresser.capture.run.environment import Environment, process_group
from vinedresser.capture.run.flight_recorder import FlightRecorder
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.errors import KeyTaken
from vinedresser.objects import LocalStorage
from vinedresser.processes import is_alive
from vinedresser.store.finding import Finding
from vinedresser.store.records import LaunchRecord, findings_key, heartbeats, read_record

__all__ = ["RanksApart", "prepare_rank"]

# Not the name of a group of rules, which is an identifier.
_GROUP = "trainer-ranks"
# Share of the grace period in which a rank waits for the decision of rank 0 when to stop.
_SHARE = 0.5
# Number of steps after which a training has joined its peers, if it does so at all.
_JOINED = 5


def prepare_rank(
    run: OpenedRun, environment: Environment, session: Session, framework: Callable[[], str]
) -> None:
    """Prepare the session of one rank of several; does nothing for a single process.

    All ranks capture the same steps, since they are compared: they share the pace that rank 0
    chooses or, without a common directory, capture without a limit. Those of a launched run stop
    together.

    Args:
        environment: rank and number of ranks of this process.
        session: session of the hook.
        framework: returns that of the training, known after its first step.
    """
    storage = run.directory
    if environment.world_size == 1:
        return
    if storage is None:
        session.budget.share = 1.0
        return
    if environment.rank:
        # Nothing to measure: it follows rank 0.
        session.budget.share = 1.0
    session.budget.schedule = SharedPace(storage, environment.rank, session.shield)
    if not run.launched:
        return
    launch = session.shield.guard("reading the launch record", read_record)(storage, LaunchRecord)
    if launch is None:
        return
    session.joint_stop = JointStop(storage, environment.rank, session.signal, _SHARE * launch.grace)
    recorder = FlightRecorder()
    session.collective = session.shield.guard(
        "reading torch's flight recorder", recorder.look, metered=False
    )
    if launch.ranks > 1:
        apart = RanksApart(
            framework, storage, environment.rank, launch.ranks, session.shield.report
        )
        look = session.shield.guard("looking for the other ranks", apart.look)
        session.each_step.append(look)


class RanksApart:
    """Looks for another rank that trains, too, while none has joined the other.

    A rank that only acts, or serves data, takes no step; one that exchanges its weights by its own
    means is connected to the others.

    Args:
        framework: returns that of the training, known after its first step.
        storage: the run's directory, on a file system.
        report: prints a line.
    """

    def __init__(
        self,
        framework: Callable[[], str],
        storage: LocalStorage,
        rank: int,
        ranks: int,
        report: Callable[[str], None],
    ) -> None:
        self._framework = framework
        self._storage = storage
        self._rank = rank
        self._ranks = ranks
        self._report = report
        # Ever more rarely, since a rank may start much later than this one.
        self._next = _JOINED

    def look(self, steps: int) -> None:
        """Report ranks that train apart, once, at the end of a train step of this one."""
        if steps != self._next:
            return
        self._next *= 2
        if self._framework() != "torch" or not _trains_alone():
            self._next = 0
            return
        training = [
            beat
            for beat in heartbeats(self._storage)
            if beat.rank != self._rank
            and beat.last_step >= _JOINED - 1
            # What one that has ended was connected to is not known.
            and not beat.closed
            and is_alive(beat.identity()) is not False
        ]
        if not training:
            return
        self._next = 0
        if connected(beat.identity() for beat in training):
            return
        finding = _apart(self._rank, self._ranks, training[0].rank, steps)
        line = json.dumps(finding.to_json()) + "\n"
        # The others look at the same step: the first one reports it.
        with suppress(KeyTaken):
            self._storage.put(findings_key(_GROUP), [line.encode()], exclusive=True)
            self._report(finding.seen)


def _apart(rank: int, ranks: int, other: int, steps: int) -> Finding:
    """Return the finding about ranks that train apart."""
    return Finding(
        rule="ranks_apart",
        severity="warning",
        step=steps - 1,
        since=0,
        mode="train",
        rank=rank,
        tensor="",
        statistic="ranks",
        value=float(ranks),
        threshold=1.0,
        confidence=1.0,
        seen=f"rank {rank} of {ranks} has not called torch.distributed.init_process_group in its "
        f"first {steps} steps, and is not connected to rank {other}, which trains, too: each "
        "trains by itself, and they may write the same files",
        cause="the script does not join the other processes, or was not made for several",
        remedy="call torch.distributed.init_process_group and wrap the model in "
        "DistributedDataParallel, or start it with one rank",
    )


def _trains_alone() -> bool:
    """Return whether this process has not joined others in a way that is known."""
    other_ways = (
        "deepspeed",
        "flwr",
        "hivemind",
        "horovod",
        "mpi4py",
        "ray",
        "torch_xla",
        "torchft",
    )
    other = any(other_way in sys.modules for other_way in other_ways)
    return not other and process_group() is None and not _uses_rpc()


def _uses_rpc() -> bool:
    """Return whether this process takes part in torch's remote procedure calls."""
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is not None and rpc.is_available() and rpc.api._is_current_rpc_agent_set()
