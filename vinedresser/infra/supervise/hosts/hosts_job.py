"""The job of a run whose ranks a launcher starts, on one host or several."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vinedresser.errors import CorruptData, StoreError
from vinedresser.infra.supervise.hosts.commands import launcher_command
from vinedresser.infra.supervise.hosts.elsewhere import RankElsewhere
from vinedresser.infra.supervise.hosts.host import BLOCKED, SILENT
from vinedresser.infra.supervise.hosts.placing import part_size
from vinedresser.infra.supervise.hosts.rank_output import RankOutput
from vinedresser.infra.supervise.supervisor.family import Family
from vinedresser.infra.supervise.supervisor.first_failure import first_failure
from vinedresser.infra.supervise.supervisor.output_log import OutputLog
from vinedresser.infra.supervise.supervisor.output_pump import Outlet, Receiver
from vinedresser.infra.supervise.supervisor.rank import Rank
from vinedresser.infra.supervise.supervisor.shown import ErrorsOfRank, Everything, WholeLines
from vinedresser.infra.supervise.supervisor.trainer import Trainer
from vinedresser.objects import LocalStorage
from vinedresser.processes import Environment
from vinedresser.store.records import (
    LOG_KEY,
    HostOrders,
    HostReport,
    LaunchRecord,
    host_key,
    read_record,
    write_record,
)

_NEVER = float("inf")
# Seconds between two looks at the reports, and between two signs of life.
_LOOK, _SIGN = 0.05, 1.0
# Seconds from the first host to the last: before that, a scheduler may let them wait for days.
_GATHERING = 300.0
# Seconds for the last report of a host whose launcher has ended, for its answer to an order, and
# for the end of a launcher whose hosts have ended, or that is asked to end.
_LAST, _ANSWER, _ENDING = 3.0, 3.0, 10.0
_DRAIN = 1.0


class HostsJob:
    """The job of a run whose ranks a launcher starts, on one host or several; compare `Job`.

    Args:
        launch: the command, its ranks, their hosts and their launcher.
        directory: the run directory, which all hosts share.
        selector: calls the key's data when ready; must accept files of any kind.
        report: called with one sentence per problem.
        belongs: returns whether an environment is that of a process of the run.

    Attributes:
        ranks: the ranks, by number.
        family: the launcher, and all processes of the run on this machine.
        fault: why the ranks could not be started, one sentence; "" if they could.
        ended_by: number of the signal that ended the launcher before the ranks began; 0: none.
        told: what has asked a host to end, one sentence; "" if nothing has.

    Raises:
        OSError: the launcher cannot be started.
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
    ) -> None:
        self._launch, self._say, self._selector = launch, report, selector
        self._storage = LocalStorage(directory)
        self.fault = self.told = ""
        self.ended_by = 0
        self.ranks = [RankElsewhere(number) for number in range(launch.ranks)]
        size = part_size(launch)
        parts = [self.ranks[at : at + size] for at in range(0, launch.ranks, size)]
        self._hosts = [_Host(number, part, self._storage) for number, part in enumerate(parts)]
        self._orders = HostOrders(0)
        self._looked, self._signed = time.monotonic(), 0.0
        self._first_came = self._launcher_ended = self._ended_peers = _NEVER
        self._tell()
        trainer = Trainer(launcher_command(launch, directory), launch.cwd, environment)
        self.family = Family(belongs)
        self.family.adopt(trainer)
        common = self._common = OutputLog(directory, LOG_KEY, report)
        name = launch.system.name
        hidden = Outlet(None, Everything())

        def deliver(lines: list[str]) -> None:
            common.write(f"[{name}] {line}" for line in lines)

        self._launcher = Rank(-1, trainer, deliver, (hidden, hidden), selector)
        self._receivers = (Receiver(selector, 1), Receiver(selector, 2)) if launch.forward else ()
        self._outputs = [
            RankOutput(directory, rank.number, common, self._outlets(rank.number))
            for rank in self.ranks
        ]

    def _outlets(self, rank: int) -> list[Outlet]:
        """Return where a rank's output is shown: all of rank 0, and the errors of the others."""
        if not self._receivers:
            return []
        if rank == 0:
            return [Outlet(self._receivers[0], WholeLines())]
        return [Outlet(self._receivers[1], ErrorsOfRank(rank))]

    @property
    def identities(self) -> list[dict[str, Any]]:
        """The launcher's process, as JSON; those of the ranks may be on other machines."""
        return [asdict(self._launcher.trainer.identity)]

    @property
    def running(self) -> bool:
        """Whether any rank is running, or may still begin."""
        return not self.fault and any(rank.running for rank in self.ranks)

    @property
    def failed(self) -> bool:
        """Whether any rank has failed, and not because its launcher has ended its host.

        If it has, another host is lost, or all are told to end, which is known soon.
        """
        known = time.monotonic() - _ENDING
        return any(
            rank.failed and (not host.told or rank.failed_at < known)
            for host in self._hosts
            for rank in host.ranks
        )

    @property
    def late(self) -> list[int]:
        """See `Job.late`."""
        return [rank.number for rank in self.ranks if rank.late]

    def tend(self) -> None:
        """Do what is due every few milliseconds."""
        now = time.monotonic()
        self.family.reap_orphans()
        if now < self._looked + _LOOK:
            return
        self._look(now)
        if not self._orders.workers:
            self._gather(now)
        else:
            self._notice_lost(now)
        for output in self._outputs:
            output.move()
        if now >= self._signed + _SIGN:
            self._tell()

    def _look(self, now: float) -> None:
        """Read the reports of the hosts."""
        if now > self._looked + BLOCKED:
            for host in self._hosts:
                host.seen += now - self._looked
        self._looked = now
        for host in self._hosts:
            if problem := host.look(now):
                host.seen = now
                self._say(problem)
            report = host.report
            if report is not None and report.problem and not self.fault:
                self.fault = f"{host.name}: {report.problem}"
        told = [host for host in self._hosts if host.told]
        # Not only the others of a host that is lost, which its launcher ends.
        ends = all((host.told or host.over) and not host.lost for host in self._hosts)
        if told and ends and not self.told:
            self.told = f"{told[0].name}: {told[0].told}"

    def _gather(self, now: float) -> None:
        """Give the start signal once all hosts are there."""
        missing = [host for host in self._hosts if host.report is None]
        if len(missing) < len(self._hosts):
            self._first_came = min(self._first_came, now)
        if self._over(now) and not self.fault:
            self.fault = f"{self._launch.system.name} could not start the ranks"
            code, said = self._launcher.trainer.exit_code(), self._launcher.said
            # The signal may have ended a process of the launcher, whose code it passes on.
            number = -code if code < 0 else code - 128
            if 0 < number <= signal.SIGRTMAX:
                self.ended_by = number
            else:
                self.fault += f": {said or f'exit code {code}'}"
        elif missing and now > self._first_came + _GATHERING:
            names = ", ".join(str(host.number) for host in missing)
            self.fault = (
                f"{len(missing)} of {len(self._hosts)} hosts (number {names}) have not begun "
                f"within {_GATHERING:.0f} s after the first"
            )
        elif not missing and not self.fault:
            self._begin([host.report for host in self._hosts if host.report is not None])

    def _begin(self, reports: list[HostReport]) -> None:
        machines = {(report.process["host"], report.process["boot"]) for report in reports}
        lonely = [
            host
            for host, one in zip(self._hosts, reports, strict=True)
            if len(machines) > 1 and one.address.startswith("127.")
        ]
        if lonely:
            self.fault = (
                f"{lonely[0].name}: has no address that other hosts can reach; make its name "
                "resolve to one"
            )
            return
        for host, one in zip(self._hosts, reports, strict=True):
            if len(host.ranks) > one.cores:
                self._say(f"{host.name}: {len(host.ranks)} ranks share {one.cores} cores")
        workers = [f"{report.address}:{port}" for report in reports for port in report.ports]
        self._orders = HostOrders(self._orders.sign, workers, self._orders.orders)
        self._tell()

    def _notice_lost(self, now: float) -> None:
        """Notice hosts that are gone: their launcher has ended, or they are silent."""
        over = self._over(now)
        for host in self._hosts:
            silent = now > host.seen + SILENT
            if host.over and any(rank.running for rank in host.ranks):
                host.lose(host.told or "its process is gone", now)
            if not host.over and (over or silent):
                why = "its process is gone"
                if silent:
                    why = f"has been silent for {SILENT:.0f} s: it or its network has failed"
                host.lose(why, now)

    def _over(self, now: float) -> bool:
        """Return whether the launcher has ended, and its hosts have had time to say so."""
        if self._launcher.running:
            return False
        self._launcher_ended = min(self._launcher_ended, now)
        return now > self._launcher_ended + _LAST

    def send(self, number: int) -> bool:
        """Send a signal to each rank; return whether any was still running."""
        if not self._orders.workers and number == signal.SIGTERM:
            for rank in self.ranks:
                rank.end(-number, at=time.monotonic())
            return self._launcher.trainer.send(signal.SIGTERM)
        running = self.running
        self._order("signal", number)
        return running

    def end_peers(self) -> None:
        """Ask the ranks to end that are left after the failure of another one."""
        self._ended_peers = time.monotonic()
        self._order("end_peers")

    def ask_family(self) -> None:
        """Do nothing: each host asks what its ranks have left behind."""

    def kill(self) -> None:
        """Kill all ranks, and end the launcher."""
        self._order("kill")
        self._await(lambda: all(host.over or host.report is None for host in self._hosts), _ANSWER)
        now = time.monotonic()
        for host in self._hosts:
            if not host.over:
                host.lose("has not ended its ranks when it was told to", now)
        # Once all is over, it ends by itself; a scheduler may be slow to notice.
        started = self._orders.workers and not any(host.report is None for host in self._hosts)
        if not started or not self._await(lambda: not self._launcher.running, _ENDING):
            self._launcher.trainer.send(signal.SIGTERM)
            self._await(lambda: not self._launcher.running, _ENDING)
        self.family.kill()

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition; return whether it has come true."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self._events()
            self.tend()
        return condition()

    def _events(self) -> None:
        for key, _ in self._selector.select(_LOOK):
            key.data()

    def outcome(self) -> RankElsewhere:
        """Return the rank whose end is that of the job: the first that failed by itself."""
        every = [rank for rank in self.ranks if rank.failed]
        ended = {rank.number for host in self._hosts if host.told for rank in host.ranks}
        failed = [rank for rank in every if rank.number not in ended] or every
        alone = [rank for rank in failed if rank.failed_at <= self._ended_peers]
        return first_failure(alone or failed) if failed else self.ranks[0]

    def stacks(self, turn: Callable[[], None]) -> list[dict[str, Any]]:
        """Ask each rank where it stands; see `StacksRecord.ranks`.

        Args:
            turn: handles pending events, or the first that arrives within a tick.
        """
        self._order("stacks")
        deadline = time.monotonic() + _ANSWER
        while not all(host.has_done(len(self._orders.orders)) for host in self._hosts):
            if time.monotonic() > deadline:
                break
            turn()
            self.tend()
        silent = {"state": "running", "frames": [], "here": 0.0, "works": True}
        return [
            stack for host in self._hosts for stack in host.stacks or [silent] * len(host.ranks)
        ]

    def drain(self, turn: Callable[[], None]) -> None:
        """Read the rest of the logs, and show it.

        Args:
            turn: see `stacks`.
        """
        for pump in self._launcher.pumps:
            pump.close()
        deadline = time.monotonic() + _DRAIN
        # All of them, not only until one has nothing.
        while max([one.move() for one in self._outputs]) and time.monotonic() < deadline:
            turn()
        for output in self._outputs:
            output.close()
        while time.monotonic() < deadline and not all(one.idle for one in self._receivers):
            turn()
        for receiver in self._receivers:
            receiver.close()

    def close(self) -> None:
        """Close the log."""
        self._common.close()

    def _order(self, *order: Any) -> None:
        orders = [*self._orders.orders, list(order)]
        self._orders = HostOrders(self._orders.sign, self._orders.workers, orders)
        self._tell()

    def _tell(self) -> None:
        """Write the orders, with a new sign of life."""
        self._signed = time.monotonic()
        sign, workers, orders = self._orders.sign + 1, self._orders.workers, self._orders.orders
        self._orders = HostOrders(sign, workers, orders, time.time())
        try:
            write_record(self._storage, self._orders)
        except StoreError as error:
            self._say(str(error))


class _Host:
    """One process of the launcher, and the ranks that it starts.

    Attributes:
        report: its last report; None before the first.
        seen: when that arrived, by the monotonic clock.
        over: whether its ranks have ended, or count as such.
        lost: whether it has not said so itself.
        stacks: where its ranks stand, once it was asked.
    """

    def __init__(self, number: int, ranks: list[RankElsewhere], storage: LocalStorage) -> None:
        self.number, self.ranks, self._storage = number, ranks, storage
        self.report: HostReport | None = None
        self.seen = _NEVER
        self.over = self.lost = False
        self.stacks: list[dict[str, Any]] = []

    @property
    def told(self) -> str:
        """See `HostReport.told`."""
        return self.report.told if self.report is not None else ""

    @property
    def name(self) -> str:
        """Its number and the name of its machine."""
        host = self.report.process["host"] if self.report is not None else ""
        return f"host {self.number}" + (f" ({host})" if host else "")

    def has_done(self, orders: int) -> bool:
        """Return whether it has carried out a number of orders, or cannot."""
        return self.over or (self.report is not None and self.report.done >= orders)

    def look(self, now: float) -> str:
        """Read its report; return a sentence about one that cannot be read, else ""."""
        if self.over:
            return ""
        try:
            found = read_record(self._storage, HostReport, key=host_key(self.number))
        except (CorruptData, StoreError) as error:
            return str(error)
        if found is None or (self.report is not None and found.sign == self.report.sign):
            return ""
        self.report, self.seen, self.stacks = found, now, found.stacks
        for rank, one in zip(self.ranks, found.ranks, strict=False):
            rank.late = bool(one.get("late"))
            if one["code"] is not None:
                ago = one["ago"]
                rank.end(one["code"], at=now if ago is None else now - ago, said=one["text"])
        self.over = found.over
        return ""

    def lose(self, why: str, now: float) -> None:
        """Count its ranks as ended, since it does not say so."""
        self.over = self.lost = True
        for rank in self.ranks:
            rank.end(-signal.SIGKILL, at=now, lost=f"{self.name}: {why}")
