"""Supervision of one run, from its start to its exit record."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from vinedresser.errors import CorruptData, KeyTaken, LaunchError, NotARun, StoreError
from vinedresser.infra.supervise.gpus import visible_gpus
from vinedresser.infra.supervise.hosts.hosts_job import HostsJob
from vinedresser.infra.supervise.launch_values import read_memory_file
from vinedresser.infra.supervise.supervisor.arriving import ArrivingSignals
from vinedresser.infra.supervise.supervisor.first_failure import is_victim
from vinedresser.infra.supervise.supervisor.job import Job
from vinedresser.infra.supervise.supervisor.limits import Limits
from vinedresser.infra.supervise.supervisor.machine import this_machine
from vinedresser.infra.supervise.supervisor.ownership import Ownership
from vinedresser.infra.supervise.supervisor.prctl import become_subreaper
from vinedresser.infra.supervise.supervisor.run_contract import RunContract
from vinedresser.infra.supervise.supervisor.say import say
from vinedresser.infra.supervise.supervisor.stop_requests import StopRequests
from vinedresser.infra.supervise.supervisor.system_metrics import SystemMetrics
from vinedresser.infra.supervise.supervisor.verdict import never_started, not_startable, verdict
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    METRICS_VARIABLE,
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    ExitRecord,
    LaunchRecord,
    RunRecord,
    StacksRecord,
    StacksRequest,
    StopRecord,
    SupervisorRecord,
    heartbeats,
    read_record,
    started_for,
    write_record,
)

# Seconds between two looks for stop.json; everything else arrives as an event.
_TICK = 0.02
_NEVER = float("inf")
# Share of the grace period after which a trainer that should have got SIGTERM is sent it.
_REMINDER = 0.75
# Seconds that the peers of a failed rank have to fail, too, or to end, before they are asked to:
# then their output says how they noticed, and what they had captured is stored. A rank that says
# that another one is gone may be the first to end, while the cause still prints its error. Before
# the first step, ranks that fail alike do so at different times, which must not look like the fault
# of one of them if it may be left out.
_NOTICE, _LONGER_NOTICE = 0.3, 1.0
# Seconds until they are killed; one that waits in a collective cannot answer.
_PEER_GRACE = 3.0
# Seconds to retry the exit record on a full disk before leaving it to `reconcile`.
_EXIT_PATIENCE = 60.0


class Supervisor:
    """Supervises one run from its start to its exit record.

    Args:
        directory: the run directory, absolute, locked by the caller.
        values: descriptor of a file in memory with the values of the launch that are not stored;
            None: all are stored.
        channel: descriptor on which the owner passes signals on; None if there is none.

    Raises:
        NotARun: it was not prepared by the launcher.
        LaunchError: it was started before.
        StoreError: its records cannot be read.
    """

    def __init__(
        self, directory: Path, values: int | None = None, channel: int | None = None
    ) -> None:
        self._directory = directory
        self._storage = LocalStorage(directory, anchor=RunRecord.KEY)
        run = read_record(self._storage, RunRecord)
        launch = read_record(self._storage, LaunchRecord)
        if run is None or launch is None:
            missing = RunRecord.KEY if run is None else LaunchRecord.KEY
            raise NotARun(f"{directory}: has no {missing}; prepare the run before starting it")
        for trace in (ExitRecord.KEY, SupervisorRecord.KEY):
            if self._storage.exists(trace):
                raise LaunchError(f"{directory}: was started before: {trace} exists")
        self._run_id = run.id
        sagemaker = launch.contract == "sagemaker"
        self._launch = launch if values is None else read_memory_file(values, launch)
        self._contract = RunContract(self._storage, run, self._launch) if sagemaker else None
        self._stored = launch.environment
        # Not epoll, which rejects regular files, such as redirected output.
        self._selector = selectors.PollSelector()
        self._reported: set[str] = set()
        ownership = Ownership(self._storage, launch, self._selector, self._report)
        self._signals = ArrivingSignals(channel, self._selector)
        self._requests = StopRequests(self._storage, ownership, self._signals, self._report)
        self._passed_on: StopRecord | None = None
        # Of the monotonic clock: SIGKILL, and SIGTERM for a trainer that should have got it, or
        # for the peers of a failed rank.
        self._deadline = self._reminder = _NEVER
        # When a rank was seen to have failed, and whether it may be left out of the next start.
        self._failed_at, self._dispensable = _NEVER, False

    def run(self) -> None:
        """Supervise to the end, and write the exit record.

        Raises:
            StoreError: see `_commit`.
        """
        stop = self._requests.look()
        self._commit(never_started(stop) if stop else self._supervise())

    def _supervise(self) -> ExitRecord:
        become_subreaper()
        shared = (self._launch, self._environment(), self._directory, self._selector)
        belongs = started_for(self._directory, self._run_id)
        job: Job | HostsJob
        try:
            if self._launch.system.name != "local":
                job = HostsJob(*shared, report=self._report, belongs=belongs)
            else:
                job = Job(*shared, report=self._report, belongs=belongs, contract=self._contract)
        except OSError as error:
            return not_startable(error)
        self._record(job)
        self._await_end(job)
        ended = time.time()
        job.kill()
        job.drain(self._turn)
        job.close()
        return verdict(
            job,
            stop=self._passed_on,
            signals=self._signals.names,
            steps=self._steps(),
            ended=ended,
            failure="" if self._contract is None else self._contract.failure(),
        )

    def _environment(self) -> dict[str, str]:
        """Return the environment of the trainer, or of the launcher of its ranks."""
        own = self._launch.environment
        if self._launch.system.name != "local":
            # Its hosts read the others, such as those by which the training is captured.
            own = {name: value for name, value in own.items() if name not in self._stored}
        searched = {METRICS_VARIABLE: json.dumps(self._launch.metrics)}
        return {
            # Python would print into a pipe in blocks of 8 KiB, but users wait for the lines.
            "PYTHONUNBUFFERED": "1",
            **os.environ,
            **own,
            **(searched if self._launch.metrics else {}),
            RUN_VARIABLE: str(self._directory),
            RUN_ID_VARIABLE: self._run_id,
        }

    def _record(self, job: Job | HostsJob) -> None:
        trainer, *peers = job.identities
        own = asdict(this_process())
        try:
            write_record(self._storage, SupervisorRecord(own, trainer, time.time(), peers))
            # After the start, which nothing delays.
            write_record(self._storage, this_machine(self._launch.argv[0], self._environment()))
        except StoreError as error:
            self._report(str(error))

    def _await_end(self, job: Job | HostsJob) -> None:
        """Serve the ranks until all have ended, by themselves, on request or after a failure."""
        next_look = 0.0
        system = self._system_metrics()
        limits = Limits(self._launch, job.family.members)
        while job.running:
            self._turn()
            now = time.monotonic()
            if not job.running or now < next_look:
                continue
            next_look = now + _TICK
            self._tend(job)
            if system is not None:
                system.tend(now)
            self._keep_to(limits, now)
            if now >= self._deadline:
                job.kill()
            elif now >= self._reminder:
                self._reminder = _NEVER
                self._remind(job)
            elif self._passed_on is None and job.failed:
                self._expect_end_of_peers(job, now)
            elif self._passed_on is None:
                self._look_for_stop(job)
                self._look_for_stacks(job)
        if self._passed_on is None and (job.told or self._signals.arrived_here(signal.SIGTERM)):
            # The training got it, too, and has ended before it was passed on.
            self._passed_on = self._requests.look()
        if self._passed_on is not None:
            self._await_family(job)

    def _system_metrics(self) -> SystemMetrics | None:
        """Return what records the load of the machine; None if the ranks are on others."""
        if self._launch.system.name != "local":
            return None
        return SystemMetrics(self._directory, visible_gpus(self._environment()), self._report)

    def _keep_to(self, limits: Limits, now: float) -> None:
        """Ask the run to end if it is over a limit."""
        if self._passed_on is None and (reason := limits.exceeded(now)):
            self._requests.ask("limit", reason)

    def _tend(self, job: Job | HostsJob) -> None:
        """Do what is due every tick, and pass on what asks the ranks for something."""
        job.tend()
        if job.told:
            # What starts the ranks is the owner.
            self._requests.ask("owner", job.told)
        for number in self._signals.take():
            job.send(number)

    def _expect_end_of_peers(self, job: Job | HostsJob, now: float) -> None:
        """Give the peers of a rank that has failed time to notice by themselves."""
        if self._failed_at == _NEVER:
            self._failed_at = now
            self._dispensable = self._launch.min_ranks is not None and not self._steps()
        elif self._reminder == _NEVER:
            # They were asked to end.
            return
        # What it has said may be read after its end.
        longer = self._dispensable or is_victim(job.outcome().said)
        self._reminder = self._failed_at + (_LONGER_NOTICE if longer else _NOTICE)
        self._deadline = self._reminder + min(self._launch.grace, _PEER_GRACE)

    def _remind(self, job: Job | HostsJob) -> None:
        """Ask the ranks to end that have not, after a stop or a failure."""
        if self._passed_on is None:
            job.end_peers()
        else:
            job.send(signal.SIGTERM)

    def _look_for_stop(self, job: Job | HostsJob) -> None:
        """Pass a request to stop on to the training, unless it has got the same signal."""
        stop = self._requests.look()
        if stop is None or self._signals.pending(signal.SIGTERM):
            return
        now, grace = time.monotonic(), self._launch.grace
        if self._signals.everywhere(signal.SIGTERM):
            # A second one would end the training before it has saved its checkpoint.
            self._reminder = now + _REMINDER * grace
        elif not job.send(signal.SIGTERM):
            return
        self._passed_on, self._deadline = stop, now + grace

    def _look_for_stacks(self, job: Job | HostsJob) -> None:
        """Record where the ranks stand if a judge asks, because no step ends."""
        if not self._storage.exists(StacksRequest.KEY):
            return
        try:
            asked = read_record(self._storage, StacksRequest)
            if asked is not None:
                ranks = job.stacks(self._turn)
                for beat in heartbeats(self._storage):
                    if beat.collective and 0 <= beat.rank < len(ranks):
                        # Ranks of a host that does not answer share what is said about them.
                        ranks[beat.rank] = {**ranks[beat.rank], "collective": beat.collective}
                write_record(self._storage, StacksRecord(asked.time, ranks))
        except (CorruptData, StoreError) as error:
            self._report(str(error))
        finally:
            with suppress(StoreError):
                self._storage.delete(StacksRequest.KEY)

    def _await_family(self, job: Job | HostsJob) -> None:
        """Give the processes that a stopped trainer left behind the rest of its grace period."""
        job.ask_family()
        while job.family.members() and time.monotonic() < self._deadline:
            self._turn()

    def _turn(self) -> None:
        """Handle pending events, or the first that arrives within a tick."""
        for key, _ in self._selector.select(_TICK):
            key.data()

    def _steps(self) -> dict[int, int]:
        """Return the last completed optimizer step of each rank that has one."""
        try:
            beats = heartbeats(self._storage)
        except StoreError as error:
            self._report(str(error))
            return {}
        return {beat.rank: beat.last_step for beat in beats if beat.last_step >= 0}

    def _commit(self, record: ExitRecord) -> None:
        """Write the exit record; retry while the disk is full.

        Raises:
            StoreError: it could not be written for a minute, or the directory was removed.
        """
        deadline = time.monotonic() + _EXIT_PATIENCE
        pause = 0.05
        while True:
            try:
                write_record(self._storage, record, exclusive=True)
            except KeyTaken:
                # By the hook, or damaged, which its readers notice.
                return
            except StoreError as error:
                self._report(f"{error}; cannot record how the training ended ({record.cause})")
                if self._requests.removed or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
            else:
                return

    def _report(self, message: str) -> None:
        """Print a message to the standard error, each only once."""
        if message not in self._reported:
            self._reported.add(message)
            say(f"{self._directory.name}: {message}")
