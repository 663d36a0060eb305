"""The hook of one rank of several: what all do at the same step, and a warning about lone ones."""

from __future__ import annotations

import sys

from vinedresser.capture.recording.joint_stop import JointStop
from vinedresser.capture.recording.pace import SharedPace
from vinedresser.capture.recording.session import Session
from vinedresser.capture.run.environment import Environment, process_group
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.objects import LocalStorage
from vinedresser.store.records import LaunchRecord, read_record

__all__ = ["prepare_rank"]

# Share of the grace period in which a rank waits for the decision of rank 0 when to stop.
_SHARE = 0.5
# Number of steps after which a training has joined its peers, if it does so at all.
_JOINED = 5


def prepare_rank(run: OpenedRun, environment: Environment, session: Session) -> None:
    """Prepare the session of one rank of several; does nothing for a single process.

    All ranks capture the same steps, since they are compared: they share the pace that rank 0
    chooses or, on an object store, capture without a limit. Those of a launched run stop together.

    Args:
        run: the run.
        environment: rank and number of ranks of this process.
        session: session of the hook.
    """
    storage = run.storage
    if environment.world_size == 1:
        return
    if not isinstance(storage, LocalStorage):
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
                session.shield.report(
                    f"none of the {launch.ranks} ranks has called "
                    "torch.distributed.init_process_group: each trains by itself, and may write "
                    "the same files"
                )

        session.each_step.append(session.shield.guard("looking for the other ranks", look))


def _trains_alone(run: OpenedRun) -> bool:
    """Return whether a torch training has not joined other processes in a way that is known."""
    other_ways = ("mpi4py", "horovod", "deepspeed", "ray")
    known = run.record.framework == "torch" and not any(
        other_way in sys.modules for other_way in other_ways
    )
    return known and process_group() is None
