"""Supervision of one run, from its start to its exit record."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vinedresser.errors import KeyTaken, LaunchError, NotARun, StoreError
from vinedresser.infra.supervise.launch_values import read_memory_file
from vinedresser.infra.supervise.supervisor.arriving import ArrivingSignals
from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason
from vinedresser.infra.supervise.supervisor.output_log import OutputLog
from vinedresser.infra.supervise.supervisor.output_pump import OutputPump
from vinedresser.infra.supervise.supervisor.ownership import Ownership
from vinedresser.infra.supervise.supervisor.prctl import become_subreaper
from vinedresser.infra.supervise.supervisor.say import say
from vinedresser.infra.supervise.supervisor.stop_requests import StopRequests
from vinedresser.infra.supervise.supervisor.trainer import Trainer
from vinedresser.infra.supervise.supervisor.verdict import never_started, not_startable, verdict
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    LOG_KEY,
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    ExitRecord,
    LaunchRecord,
    RunRecord,
    StopRecord,
    SupervisorRecord,
    last_step,
    read_record,
    started_for,
    write_record,
)

# Seconds between two looks for stop.json; everything else arrives as an event.
_TICK = 0.02
_NEVER = float("inf")
# Share of the grace period after which a trainer that should have got SIGTERM is sent it.
_REMINDER = 0.75
# Seconds to drain the pipes of killed processes: the data is there, but its receiver may be slow.
_DRAIN = 1.0
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
        self._launch = launch if values is None else read_memory_file(values, launch)
        # Not epoll, which rejects regular files, such as redirected output.
        self._selector = selectors.PollSelector()
        self._reported: set[str] = set()
        ownership = Ownership(self._storage, launch, self._selector, self._report)
        self._signals = ArrivingSignals(channel, self._selector)
        self._requests = StopRequests(self._storage, ownership, self._signals, self._report)
        self._passed_on: StopRecord | None = None
        # Of the monotonic clock: SIGKILL, and SIGTERM for a trainer that should have got it.
        self._deadline = self._reminder = _NEVER

    def run(self) -> None:
        """Supervise to the end, and write the exit record.

        Raises:
            StoreError: see `_commit`.
        """
        stop = self._requests.look()
        self._commit(never_started(stop) if stop else self._supervise())

    def _supervise(self) -> ExitRecord:
        become_subreaper()
        belongs = started_for(self._directory, self._run_id)
        launch = self._launch
        try:
            trainer = Trainer(launch.argv, launch.cwd, self._environment(), belongs)
        except OSError as error:
            return not_startable(error)
        self._record(trainer)
        log = OutputLog(self._directory / LOG_KEY, self._report)
        complaint = CrashReason()
        pumps = self._connect(trainer, log, complaint)
        self._await_end(trainer)
        ended = time.time()
        trainer.kill_family()
        self._drain(pumps)
        log.close()
        return verdict(
            trainer.exit_code(),
            stop=self._passed_on,
            complaint=complaint.text,
            signals=self._signals.names,
            last_step=self._last_step(),
            ended=ended,
        )

    def _environment(self) -> dict[str, str]:
        """Return the trainer's environment."""
        return {
            # Python would print into a pipe in blocks of 8 KiB, but users wait for the lines.
            "PYTHONUNBUFFERED": "1",
            **os.environ,
            **self._launch.environment,
            RUN_VARIABLE: str(self._directory),
            RUN_ID_VARIABLE: self._run_id,
        }

    def _record(self, trainer: Trainer) -> None:
        identities = asdict(this_process()), asdict(trainer.identity)
        try:
            write_record(self._storage, SupervisorRecord(*identities, started=time.time()))
        except StoreError as error:
            self._report(str(error))

    def _connect(
        self, trainer: Trainer, log: OutputLog, complaint: CrashReason
    ) -> tuple[OutputPump, OutputPump]:
        """Register the trainer's output streams with the selector."""

        def deliver_error(lines: list[str]) -> None:
            log.write(lines)
            complaint.feed(lines)

        out, error = trainer.outputs
        out_target, error_target = (1, 2) if self._launch.forward else (None, None)
        return (
            OutputPump(self._selector, out, out_target, log.write),
            OutputPump(self._selector, error, error_target, deliver_error),
        )

    def _await_end(self, trainer: Trainer) -> None:
        """Serve the trainer until it has ended, by itself or on request."""
        running = True

        def on_end() -> None:
            nonlocal running
            running = False
            self._selector.unregister(trainer.ended)

        self._selector.register(trainer.ended, selectors.EVENT_READ, on_end)
        next_look = 0.0
        while running:
            self._turn()
            now = time.monotonic()
            if not running or now < next_look:
                continue
            next_look = now + _TICK
            trainer.reap_orphans()
            for number in self._signals.take():
                trainer.send(number)
            if self._passed_on is None:
                self._look_for_stop(trainer)
            elif now >= self._deadline:
                trainer.kill_family()
            elif now >= self._reminder:
                trainer.send(signal.SIGTERM)
                self._reminder = _NEVER
        if self._passed_on is None and self._signals.arrived_here(signal.SIGTERM):
            # The training got it, too, and has ended before it was passed on.
            self._passed_on = self._requests.look()
        if self._passed_on is not None:
            self._await_family(trainer)

    def _look_for_stop(self, trainer: Trainer) -> None:
        """Pass a request to stop on to the trainer, unless it has got the same signal."""
        stop = self._requests.look()
        if stop is None or self._signals.pending(signal.SIGTERM):
            return
        now, grace = time.monotonic(), self._launch.grace
        if self._signals.everywhere(signal.SIGTERM):
            # A second one would end the training before it has saved its checkpoint.
            self._reminder = now + _REMINDER * grace
        elif not trainer.send(signal.SIGTERM):
            return
        self._passed_on, self._deadline = stop, now + grace

    def _await_family(self, trainer: Trainer) -> None:
        """Give the processes that a stopped trainer left behind the rest of its grace period."""
        trainer.ask_family()
        while trainer.family() and time.monotonic() < self._deadline:
            self._turn()

    def _turn(self) -> None:
        """Handle pending events, or the first that arrives within a tick."""
        for key, _ in self._selector.select(_TICK):
            key.data()

    def _drain(self, pumps: Sequence[OutputPump]) -> None:
        """Read the rest of the pipes, which processes outside the family may hold open."""
        for give_up in (OutputPump.forward_no_more, OutputPump.close):
            deadline = time.monotonic() + _DRAIN
            while not all(pump.closed for pump in pumps) and time.monotonic() < deadline:
                self._turn()
            for pump in pumps:
                give_up(pump)

    def _last_step(self) -> int | None:
        try:
            return last_step(self._storage)
        except StoreError as error:
            self._report(str(error))
            return None

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
