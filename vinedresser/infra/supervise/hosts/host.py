"""The process on a host that starts its ranks, logs their output, and ends them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import CorruptData, LaunchError, NotARun, StoreError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.hosts.placing import interface_of, own_address, own_placing
from vinedresser.infra.supervise.supervisor.job import Job
from vinedresser.infra.supervise.supervisor.prctl import become_subreaper
from vinedresser.infra.supervise.supervisor.rank_environment import Part, ReservedPorts
from vinedresser.infra.supervise.supervisor.say import say
from vinedresser.objects import LocalStorage
from vinedresser.processes import Environment, this_process
from vinedresser.store.records import (
    HOST_VARIABLE,
    METRICS_VARIABLE,
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    HostOrders,
    HostReport,
    LaunchRecord,
    RunRecord,
    host_key,
    read_record,
    started_for,
    write_record,
)

__all__ = ["BLOCKED", "SILENT", "Host"]

SILENT = 60.0
"""Seconds without a sign of the other side after which it counts as gone."""
BLOCKED = 5.0
"""Seconds between two looks, meant to be short, that the store or this machine stood still: no
sign of the other side could be seen, and its silence says nothing."""

# Seconds between two events, between two looks at the orders, and between two reports.
_TICK, _LOOK, _REPORT = 0.02, 0.05, 1.0
_NEVER = float("inf")
# Share of the grace period after which ranks that should have got SIGTERM are sent it.
_REMINDER = 0.75


class Host:
    """Starts the ranks of a run that belong to this process, and ends with them.

    Args:
        directory: the run directory, which the supervisor and all hosts share.

    Raises:
        NotARun: it is not a prepared run.
        LaunchError: no launcher has started this process.
        StoreError: its records cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._storage = LocalStorage(directory, anchor=RunRecord.KEY)
        run = read_record(self._storage, RunRecord)
        launch = read_record(self._storage, LaunchRecord)
        if run is None or launch is None:
            raise NotARun(f"{directory}: not a prepared run; do all hosts share this directory?")
        # Its output is shown by the supervisor, which reads the logs.
        self._run_id, self._launch = run.id, replace(launch, forward=False)
        self._placing = own_placing(launch)
        self._address = own_address(launch.hosts)
        self._ports = ReservedPorts(len(self._placing.ranks), self._address)
        self._selector = selectors.PollSelector()
        self._orders = HostOrders(0)
        self._heard = time.monotonic()
        self._job: Job | None = None
        self._told = self._problem = ""
        self._foreign: list[int] = []
        self._sign = self._done = 0
        self._stacks: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._looked, self._reported = self._heard, 0.0
        # Of the monotonic clock: SIGKILL, and SIGTERM for ranks that should have got it.
        self._deadline = self._reminder = _NEVER
        self._asked = False

    def run(self) -> None:
        """Wait for the other hosts, start the ranks, serve them to their end, and report it."""
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._on_signal(number))
        handle_foreign(self._foreign.append)
        try:
            self._check()
            while not self._orders.workers and not self._ends_early():
                self._turn()
            if self._orders.workers:
                self._serve()
        except LaunchError as error:
            self._problem = str(error)
        except OSError as error:
            # Of the program, or of its directory.
            self._problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        finally:
            self._ports.close()
            self._report(over=True)

    def _check(self) -> None:
        """Check what the ranks need here."""
        for name in self._launch.environment_from:
            if name not in os.environ:
                raise LaunchError(f"{name} is not set there; run.environment_from names it")

    def _ends_early(self) -> bool:
        """Return whether the ranks are not to be started any more."""
        ends = any(order[0] in ("signal", "kill") for order in self._orders.orders)
        return ends or self._told != ""

    def _serve(self) -> None:
        placing, launch = self._placing, self._launch
        workers = self._orders.workers
        part = Part(placing.ranks, workers, placing.local_rank, placing.local_size)
        belongs = started_for(self._directory, self._run_id)
        number = str(placing.number)
        job = self._job = Job(
            launch,
            self._environment(),
            self._directory,
            self._selector,
            report=say,
            # Other hosts of the run may be on this machine.
            belongs=lambda one: one.get(HOST_VARIABLE) == number and belongs(one),
            part=part,
        )
        while job.running:
            self._turn()
        if self._asked:
            job.family.ask()
            while job.family.members() and time.monotonic() < self._deadline:
                self._turn()
        job.kill()
        job.drain(self._events)
        job.close()

    def _environment(self) -> Environment:
        own, metrics = {**os.environ}, self._launch.metrics
        if self._launch.system.name == "torchrun":
            # The ranks meet at rank 0, and not at torchrun's own store.
            own["TORCHELASTIC_USE_AGENT_STORE"] = "False"
            if own.get("OMP_NUM_THREADS") == "1":
                # torchrun sets it, whatever the number of cores.
                del own["OMP_NUM_THREADS"]
        # gloo would take the address to which the host's own table of names leads, often 127.0.1.1.
        interface = "" if self._address.startswith("127.") else interface_of(self._address)
        return {
            "PYTHONUNBUFFERED": "1",
            **({"GLOO_SOCKET_IFNAME": interface} if interface else {}),
            **own,
            **self._launch.environment,
            **({METRICS_VARIABLE: json.dumps(metrics)} if metrics else {}),
            RUN_VARIABLE: str(self._directory),
            RUN_ID_VARIABLE: self._run_id,
            HOST_VARIABLE: str(self._placing.number),
        }

    def _events(self) -> None:
        for key, _ in self._selector.select(_TICK):
            key.data()

    def _turn(self) -> None:
        """Handle pending events, orders and time limits, and report."""
        self._events()
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return
        if now > self._looked + BLOCKED:
            self._heard += now - self._looked
        self._looked = now
        self._look(now)
        job = self._job
        if job is not None:
            job.tend()
            while self._foreign:
                number = self._foreign.pop()
                # SLURM sends a signal to all processes of a step.
                if self._launch.system.name != "slurm":
                    job.send(number)
            if self._told and not self._asked:
                self._stop(job, now, sent=self._launch.system.name == "slurm")
            if now >= self._deadline:
                job.kill()
            elif now >= self._reminder:
                self._reminder = _NEVER
                job.send(signal.SIGTERM)
            for order in self._orders.orders[self._done :]:
                self._carry_out(job, order, now)
        self._report()

    def _look(self, now: float) -> None:
        """Read the orders; a supervisor that no longer writes them is gone."""
        try:
            found = read_record(self._storage, HostOrders)
        except (CorruptData, StoreError) as error:
            say(str(error))
            found, self._heard = None, now
        if found is not None and found.sign != self._orders.sign:
            self._orders, self._heard = found, now
        elif now > self._heard + SILENT and not self._told:
            self._told = f"the run's supervisor has been silent for {SILENT:.0f} s"

    def _carry_out(self, job: Job, order: list[Any], now: float) -> None:
        self._done += 1
        if order[0] == "kill":
            job.kill()
        elif order[0] == "end_peers":
            job.end_peers()
        elif order[0] == "stacks":
            self._stacks = job.stacks(self._events)
        elif order == ["signal", signal.SIGTERM]:
            # A second one would end a training before it has saved its checkpoint.
            if not self._asked:
                self._stop(job, now, sent=False)
        elif order[0] == "signal":
            job.send(order[1])

    def _stop(self, job: Job, now: float, *, sent: bool) -> None:
        """Ask the ranks to stop, unless they have got the same signal."""
        self._asked = True
        self._deadline = now + self._launch.grace
        if sent:
            self._reminder = now + _REMINDER * self._launch.grace
        else:
            job.send(signal.SIGTERM)

    def _on_signal(self, number: int) -> None:
        self._told = self._told or f"was sent {signal.Signals(number).name}"

    def _report(self, *, over: bool = False) -> None:
        """Write a report if a second has passed, or something has changed."""
        now = time.monotonic()
        job = self._job
        ranks = []
        for rank in job.ranks if job is not None else ():
            # A rank that ends because of an error reports it once it has ended.
            failed = rank.failed
            ranks.append(
                {
                    "code": None if rank.running else rank.code,
                    "text": rank.said if failed else "",
                    "ago": now - rank.failed_at if failed else None,
                    "late": job is not None and rank.number in job.late,
                }
            )
        state: dict[str, Any] = {
            "ranks": [one | {"ago": None} for one in ranks],
            "done": self._done,
            "told": self._told,
            "problem": self._problem,
            "over": over,
        }
        if now < self._reported + _REPORT and state == self._last:
            return
        self._reported, self._last = now, state
        self._sign += 1
        report = HostReport(
            process=asdict(this_process()),
            sign=self._sign,
            address=self._address,
            ports=self._ports.numbers,
            cores=cores(),
            **{**state, "ranks": ranks},
            stacks=self._stacks,
        )
        try:
            write_record(self._storage, report, key=host_key(self._placing.number))
        except StoreError as error:
            say(str(error))
