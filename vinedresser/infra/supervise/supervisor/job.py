"""The job of a run: one process, or the ranks that train together."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vinedresser.infra.supervise.supervisor.family import Family
from vinedresser.infra.supervise.supervisor.first_failure import first_failure
from vinedresser.infra.supervise.supervisor.metric_reader import MetricReader
from vinedresser.infra.supervise.supervisor.output_log import OutputLog
from vinedresser.infra.supervise.supervisor.output_pump import Outlet, OutputPump, Receiver
from vinedresser.infra.supervise.supervisor.rank import Rank
from vinedresser.infra.supervise.supervisor.rank_environment import RankEnvironments
from vinedresser.infra.supervise.supervisor.run_contract import RunContract
from vinedresser.infra.supervise.supervisor.shown import (
    ErrorsOfRank,
    Everything,
    WholeLines,
)
from vinedresser.infra.supervise.supervisor.trainer import Trainer
from vinedresser.processes import Environment
from vinedresser.store.records import LOG_KEY, LaunchRecord, rank_log_key

__all__ = ["Job"]

_NEVER = float("inf")
# Seconds to drain the pipes of killed processes: the data is there, but its receiver may be slow.
_DRAIN = 1.0
# Seconds in which a rank says where it stands, unless it is stopped by a signal.
_ANSWER = 1.0


class Job:
    """The job of a run: one process, or the ranks that train together.

    Args:
        launch: the command, and the number of ranks.
        environment: the complete environment that all ranks share.
        directory: the run directory, for the logs.
        selector: calls the key's data when ready; must accept files of any kind.
        report: called with one sentence per problem.
        belongs: returns whether an environment is that of a process of the run.
        contract: the tree that the script expects; None: none.

    Attributes:
        ranks: the ranks, by number.
        family: all processes of the run.
        late: ranks that were still running when they were asked to end because another one had
            failed.

    Raises:
        OSError: a process cannot be started, or no port is free; no process is left.
    """

    def __init__(
        self,
        launch: LaunchRecord,
        environment: Environment,
        directory: Path,
        selector: selectors.BaseSelector,
        *,
        report: Callable[[str], None],
        belongs: Callable[[Environment], bool],
        contract: RunContract | None = None,
    ) -> None:
        several = launch.ranks > 1
        # When the others were asked to end because one had failed.
        self._ended_peers = _NEVER
        self.late: list[int] = []
        self._meeting = RankEnvironments(launch, environment) if several else None
        self.family = Family(belongs)
        trainers: list[Trainer] = []
        try:
            if contract is not None:
                contract.prepare()
            for rank in range(launch.ranks):
                own = environment if self._meeting is None else self._meeting.of(rank)
                if contract is not None:
                    # Of a surrounding container, too; but what the user sets counts.
                    own = {**own, **contract.environment(rank), **launch.environment}
                trainers.append(Trainer(launch.argv, launch.cwd, own))
                self.family.adopt(trainers[-1])
        except OSError:
            self.family.kill()
            raise
        common = OutputLog(directory, LOG_KEY, report)
        self._logs = [common]
        self._reader: MetricReader | None = None
        if launch.metrics:
            self._reader = self._start_reader(launch, directory, selector, report)
        self._receivers = (Receiver(selector, 1), Receiver(selector, 2)) if launch.forward else ()
        self.ranks: list[Rank] = []
        for number, trainer in enumerate(trainers):
            logs = [common]
            if several:
                logs.append(OutputLog(directory, rank_log_key(number), report))
                self._logs.append(logs[-1])
            outlets = self._outlets(number, several=several)
            reader = self._reader if number == 0 else None
            self.ranks.append(Rank(number, trainer, logs, outlets, selector, reader=reader))

    def _start_reader(
        self,
        launch: LaunchRecord,
        directory: Path,
        selector: selectors.BaseSelector,
        report: Callable[[str], None],
    ) -> MetricReader | None:
        """Start the process that searches metrics in the output of rank 0."""
        try:
            return MetricReader(launch.metrics, directory, selector, self.family, report)
        except OSError as error:
            report(f"no metrics are searched in the output: {error}")
            return None

    def _outlets(self, rank: int, *, several: bool) -> tuple[Outlet, Outlet]:
        """Return where a rank's output is shown: all of rank 0, and the errors of the others."""
        out, error = self._receivers or (None, None)
        if not several:
            return Outlet(out, Everything()), Outlet(error, Everything())
        if rank == 0:
            return Outlet(out, WholeLines()), Outlet(error, WholeLines())
        return Outlet(None, Everything()), Outlet(error, ErrorsOfRank(rank))

    @property
    def running(self) -> bool:
        """Whether any rank is running."""
        return any(rank.running for rank in self.ranks)

    @property
    def failed(self) -> bool:
        """Whether any rank has failed."""
        return any(rank.failed for rank in self.ranks)

    def send(self, number: int) -> bool:
        """Send a signal to each rank; return whether any was still running.

        Rank 0 gets it last: by the time it decides at which step all stop, the others have it.
        """
        sent = [rank.trainer.send(number) for rank in reversed(self.ranks)]
        return any(sent)

    def end_peers(self) -> None:
        """Ask the ranks to end that are left after the failure of another one."""
        self._ended_peers = time.monotonic()
        self.late = [rank.number for rank in self.ranks if rank.running]
        for rank in self.ranks:
            if not rank.ends:
                rank.trainer.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the run."""
        if self._ended_peers < _NEVER:
            for rank in self.ranks:
                rank.cut_off |= rank.ends
        self.family.kill()

    def outcome(self) -> Rank:
        """Return the rank whose end is that of the job: the first that failed by itself."""
        failed = [rank for rank in self.ranks if rank.failed]
        alone = [rank for rank in failed if rank.failed_at <= self._ended_peers]
        return first_failure(alone or failed) if failed else self.ranks[0]

    def stacks(self, turn: Callable[[], None]) -> list[dict[str, Any]]:
        """Ask each rank where it stands; see `StacksRecord.ranks`.

        Args:
            turn: see `drain`.
        """
        asked = [rank for rank in self.ranks if rank.trainer.ask_stack()]
        deadline = time.monotonic() + _ANSWER
        before: list[Any] = []
        # Twice the same: it is written piece by piece.
        while (found := [rank.trainer.stack() for rank in asked]) != before or not all(found):
            if time.monotonic() > deadline:
                break
            before = found
            turn()
        return [
            {"state": rank.trainer.state, "frames": rank.trainer.stack()} for rank in self.ranks
        ]

    def drain(self, turn: Callable[[], None]) -> None:
        """Read the rest of the pipes, which processes outside the family may hold open.

        Args:
            turn: handles pending events, or the first that arrives within a tick.
        """
        pumps = [pump for rank in self.ranks for pump in rank.pumps]
        closing: tuple[Sequence[Receiver | OutputPump], ...] = (self._receivers, pumps)
        for group in closing:
            deadline = time.monotonic() + _DRAIN
            while time.monotonic() < deadline and not (
                all(one.closed for one in pumps) and all(one.idle for one in self._receivers)
            ):
                turn()
            for one in group:
                one.close()
        if self._reader is not None:
            self._reader.end(turn)

    def close(self) -> None:
        """Close the logs, and give the ports back."""
        for log in self._logs:
            log.close()
        if self._meeting is not None:
            self._meeting.close()
