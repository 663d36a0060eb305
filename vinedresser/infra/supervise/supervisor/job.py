"""The job of a run: one process, or the ranks that train together."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vinedresser.infra.supervise.supervisor.family import Family
from vinedresser.infra.supervise.supervisor.first_failure import first_failure
from vinedresser.infra.supervise.supervisor.output_log import OutputLog
from vinedresser.infra.supervise.supervisor.output_pump import Outlet, OutputPump, Receiver
from vinedresser.infra.supervise.supervisor.rank import Rank
from vinedresser.infra.supervise.supervisor.rank_environment import (
    LOOPBACK,
    Part,
    ReservedPorts,
    rank_environment,
)
from vinedresser.infra.supervise.supervisor.run_contract import RunContract
from vinedresser.infra.supervise.supervisor.shown import (
    ErrorsOfRank,
    Everything,
    WholeLines,
)
from vinedresser.infra.supervise.supervisor.spied_stacks import spied_stacks
from vinedresser.infra.supervise.supervisor.trainer import Trainer
from vinedresser.processes import Environment
from vinedresser.store.records import (
    LOG_KEY,
    METRICS_VARIABLE,
    RUN_VARIABLE,
    LaunchRecord,
    rank_log_key,
)

_NEVER = float("inf")
# Seconds to drain the pipes of killed processes: the data is there, but its receiver may be slow.
_DRAIN = 1.0
# Seconds in which a rank says where it stands, unless it is stopped by a signal.
_ANSWER = 1.0
# Bytes that may wait for the reader of metrics; lines beyond that are left out, since no training
# waits for it.
_MOST_WAITING = 8 * 1024**2
# Seconds that it has to end after the last line.
_PATIENCE = 10.0


class Job:
    """The job of a run on this machine: one process, or the ranks that train together.

    Args:
        launch: the command, and the number of ranks.
        environment: the complete environment that all ranks share.
        directory: the run directory, for the logs.
        selector: calls the key's data when ready; must accept files of any kind.
        report: called with one sentence per problem.
        belongs: returns whether an environment is that of a process of the run.
        contract: the tree that the script expects; None: none.
        part: the ranks that are started here, of a run on several hosts; None: all of them.

    Attributes:
        ranks: the ranks, by number.
        family: all of its processes.
        fault, ended_by, told: "", 0 and "", since its ranks have begun, and all end together; see
            `HostsJob`.
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
        part: Part | None = None,
    ) -> None:
        # A script of several ranks reads its variables also if one rank is left.
        several = launch.ranks > 1 or launch.min_ranks is not None or part is not None
        self.fault = self.told = ""
        self.ended_by = 0
        # When the others were asked to end because one had failed.
        self._ended_peers = _NEVER
        self.late: list[int] = []
        self._ports = ReservedPorts(launch.ranks if several and part is None else 0)
        # The common log of a run on several hosts is written elsewhere.
        common = [OutputLog(directory, LOG_KEY, report)] if part is None else []
        if part is None:
            workers = [f"{LOOPBACK}:{port}" for port in self._ports.numbers]
            part = Part(range(launch.ranks), workers, 0, launch.ranks)
        self.family = Family(belongs)
        trainers: list[Trainer] = []
        try:
            if contract is not None:
                contract.prepare()
            for rank in part.ranks:
                own = rank_environment(launch, environment, part, rank) if several else environment
                if contract is not None:
                    # Of a surrounding container, too; but what the user sets counts.
                    own = {**own, **contract.environment(rank), **launch.environment}
                trainers.append(Trainer(launch.argv, launch.cwd, own))
                self.family.adopt(trainers[-1])
        except OSError:
            self.family.kill()
            raise
        self._logs = [*common]
        self._reader: _MetricReader | None = None
        if launch.metrics and 0 in part.ranks:
            self._reader = self._start_reader(launch, directory, selector, report)
        self._receivers = (Receiver(selector, 1), Receiver(selector, 2)) if launch.forward else ()
        self.ranks: list[Rank] = []
        for number, trainer in zip(part.ranks, trainers, strict=True):
            of_rank = [OutputLog(directory, rank_log_key(number), report)] if several else []
            self._logs += of_rank
            prefix = f"[rank {number}] " if several else ""
            reader = self._reader if number == 0 else None
            deliver = partial(_deliver, prefix, common, of_rank, reader)
            outlets = self._outlets(number, several=several)
            self.ranks.append(Rank(number, trainer, deliver, outlets, selector))

    def _start_reader(
        self,
        launch: LaunchRecord,
        directory: Path,
        selector: selectors.BaseSelector,
        report: Callable[[str], None],
    ) -> _MetricReader | None:
        """Start the process that searches metrics in the output of rank 0."""
        try:
            return _MetricReader(launch.metrics, directory, selector, self.family, report)
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
    def identities(self) -> list[dict[str, Any]]:
        """The processes of the ranks, as JSON."""
        return [asdict(rank.trainer.identity) for rank in self.ranks]

    def tend(self) -> None:
        """Do what is due every few milliseconds."""
        self.family.reap_orphans()

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

    def ask_family(self) -> None:
        """Ask the processes to end that the ranks have left behind."""
        self.family.ask()

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
        trainers = [rank.trainer for rank in self.ranks]
        silent = [one.identity.pid for one in trainers if one.running and not one.stack()]
        spied = spied_stacks(silent, turn)
        return [one.place(spied.get(one.identity.pid, [])) for one in trainers]

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
                all(one.closed for one in pumps)
                and all(receiver.idle for receiver in self._receivers)
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
        self._ports.close()


def _deliver(
    prefix: str,
    common: list[OutputLog],
    of_rank: list[OutputLog],
    reader: _MetricReader | None,
    lines: list[str],
) -> None:
    """Write lines to the common log, with their rank, to that of the rank, and to a reader."""
    if reader is not None:
        reader.write(lines)
    for log in common:
        log.write(f"{prefix}{line}" for line in lines)
    for log in of_rank:
        log.write(lines)


class _MetricReader:
    """The process that searches metrics in the output of a training.

    It is a process of its own, since the supervisor loads the standard library only. Of a captured
    Python process, the hook has found them before (`vinedresser.capture.run.printed_lines`).

    Args:
        metrics: see `LaunchSettings`.
        selector: calls the key's data when ready.
        report: called with one sentence per problem.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        metrics: Mapping[str, str],
        directory: Path,
        selector: selectors.BaseSelector,
        family: Family,
        report: Callable[[str], None],
    ) -> None:
        own = {RUN_VARIABLE: str(directory), METRICS_VARIABLE: json.dumps(metrics)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vinedresser.capture.attach.printed_metrics"],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        family.spare(self._process.pid)
        assert self._process.stdin is not None, "a pipe"
        self._input = self._process.stdin
        self._receiver = Receiver(selector, self._input.fileno())
        self._waiting = 0
        self._report = report

    def write(self, lines: Sequence[str]) -> None:
        """Send lines, unless too many wait."""
        content = "".join(f"{line}\n" for line in lines).encode()
        if self._waiting > _MOST_WAITING:
            self._report("metrics are missing: lines were printed faster than they are searched")
            return
        self._waiting += len(content)

        def written() -> None:
            self._waiting -= len(content)

        self._receiver.write(content, written)

    def end(self, turn: Callable[[], None]) -> None:
        """Wait until it has stored what it found in the last line.

        Args:
            turn: handles pending events, or the first that arrives within a tick.
        """
        deadline = time.monotonic() + _PATIENCE
        while not self._receiver.idle and time.monotonic() < deadline:
            turn()
        self._receiver.close()
        self._input.close()
        try:
            code = self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:
            self._report(f"metrics are missing: their reader ended with exit code {code}")
