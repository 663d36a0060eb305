"""The hook of one rank of several: what all do at the same step, and a warning about lone ones."""

from __future__ import annotations

import json
import sys

from vinedresser.capture.recording.joint_stop import JointStop
from vinedresser.capture.recording.pace import SharedPace
from vinedresser.capture.recording.session import Session
from vinedresser.capture.run.environment import Environment, process_group
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.store.finding import Finding
from vinedresser.store.records import LaunchRecord, findings_key, read_record

__all__ = ["prepare_rank"]

# Not the name of a group of rules, which is an identifier.
_GROUP = "trainer-ranks"
# Share of the grace period in which a rank waits for the decision of rank 0 when to stop.
_SHARE = 0.5
# Number of steps after which a training has joined its peers, if it does so at all.
_JOINED = 5


def prepare_rank(run: OpenedRun, environment: Environment, session: Session) -> None:
    """Prepare the session of one rank of several; does nothing for a single process.

    All ranks capture the same steps, since they are compared: they share the pace that rank 0
    chooses or, without a common directory, capture without a limit. Those of a launched run stop
    together.

    Args:
        run: the run.
        environment: rank and number of ranks of this process.
        session: session of the hook.
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
    if environment.rank == 0 and launch.ranks > 1:

        def look(steps: int) -> None:
            if steps == _JOINED and _trains_alone(run):
                finding = _apart(launch.ranks)
                session.shield.report(finding.seen)
                text = json.dumps(finding.to_json()) + "\n"
                storage.put(findings_key(_GROUP), [text.encode()])

        session.each_step.append(session.shield.guard("looking for the other ranks", look))


def _apart(ranks: int) -> Finding:
    """Return the finding about ranks that train apart."""
    return Finding(
        rule="ranks_apart",
        severity="warning",
        step=_JOINED - 1,
        since=0,
        mode="train",
        rank=0,
        tensor="",
        statistic="ranks",
        value=float(ranks),
        threshold=1.0,
        confidence=1.0,
        seen=f"rank 0 of {ranks} has not called torch.distributed.init_process_group in its first "
        f"{_JOINED} steps: it trains by itself, and may write the same files as the others",
        cause="the script does not join the other processes, or was not made for several",
        remedy="call torch.distributed.init_process_group and wrap the model in "
        "DistributedDataParallel, or start it with one rank",
    )


def _trains_alone(run: OpenedRun) -> bool:
    """Return whether a torch training has not joined other processes in a way that is known."""
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
    known = run.record.framework == "torch" and not any(
        other_way in sys.modules for other_way in other_ways
    )
    return known and process_group() is None and not _uses_rpc()


def _uses_rpc() -> bool:
    """Return whether this process takes part in torch's remote procedure calls."""
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is not None and rpc.is_available() and rpc.api._is_current_rpc_agent_set()
