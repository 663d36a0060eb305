"""Signals that are not vinedresser's: the training gets each once, and no other process ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.foreign_signals import holding_foreign
from vinedresser.infra.supervise.launcher import pass_on, request_stop, supervise, wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.processes import ProcessIdentity
from vinedresser.store.records import ExitRecord, SupervisorRecord, read_record

Prepared = Callable[..., Path]

# Counts the signals that it gets, until a file says that this was all.
COUNTS = """
import collections, json, pathlib, signal, sys, time
counts = collections.Counter()
def count(number, _):
    counts[signal.Signals(number).name] += 1
    pathlib.Path("counts.new").write_text(json.dumps(counts))
    pathlib.Path("counts.new").replace("counts")
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM):
    signal.signal(number, count)
pathlib.Path("ready").touch()
while not pathlib.Path("over").exists():
    time.sleep(0.01)
sys.exit(99)
"""


class Supervised:
    """A run that this process supervises on a thread, as a command does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory.parent
        self._thread = threading.Thread(target=supervise, args=(directory,))
        self._thread.start()
        until((self.folder / "ready").exists, "the program to run")
        until((directory / SupervisorRecord.KEY).exists, "its supervisor's record")
        record = read_record(LocalStorage(directory), SupervisorRecord)
        assert record is not None
        self.supervisor = ProcessIdentity(**record.supervisor).pid
        self.trainer = ProcessIdentity(**record.trainer).pid

    def counts(self) -> str:
        """Return the numbers of signals that the program has got."""
        counts = self.folder / "counts"
        return counts.read_text(encoding="utf-8") if counts.exists() else ""

    def end(self) -> ExitRecord:
        """Let the program end."""
        (self.folder / "over").touch()
        record = wait_for_exit(self.directory, 30)
        self._thread.join()
        assert record is not None
        return record


@pytest.mark.thorough
@pytest.mark.parametrize("forward", [True, False])
def test_each_signal_reaches_the_training_once(prepared: Prepared, forward: bool) -> None:
    run = Supervised(prepared(COUNTS, forward=forward))
    # SLURM sends it to all processes, the first to this one and the last to the training.
    pass_on(signal.SIGUSR1)
    os.kill(run.supervisor, signal.SIGUSR1)
    os.kill(run.trainer, signal.SIGUSR1)
    # To the command, and to the supervisor alone.
    pass_on(signal.SIGUSR2)
    os.kill(run.supervisor, signal.SIGALRM)
    until(lambda: "USR2" in run.counts() and "ALRM" in run.counts(), "both to be passed on")
    assert '"SIGUSR1": 1' in run.counts()
    end = run.end()
    assert run.counts().count(": 1") == 3
    assert (end.cause, end.code) == ("crashed", 99)
    name = r"SIG(USR1|USR2|ALRM)"
    assert re.fullmatch(rf"exit code 99 after {name} and {name} and {name}", end.reason)


def test_a_sigterm_that_was_sent_to_all_is_not_repeated(prepared: Prepared) -> None:
    run = Supervised(prepared(COUNTS))
    os.kill(run.trainer, signal.SIGTERM)
    os.kill(run.supervisor, signal.SIGTERM)
    pass_on(signal.SIGTERM)
    request_stop(run.directory, reason="sent SIGTERM")
    until(lambda: "TERM" in run.counts(), "the program to get it")
    end = run.end()
    assert run.counts() == '{"SIGTERM": 1}'
    # How it ended is its own.
    assert (end.cause, end.code) == ("stopped", 99)


@pytest.mark.thorough
def test_a_training_that_did_not_get_a_sigterm_sent_to_the_others_gets_it(
    prepared: Prepared,
) -> None:
    run = Supervised(prepared(COUNTS, grace=2.0))
    os.kill(run.supervisor, signal.SIGTERM)
    pass_on(signal.SIGTERM)
    until(lambda: "TERM" in run.counts(), "the program to get it")
    assert run.end().cause == "stopped"


HELPERS = {
    "judge": ("vinedresser.rules.judge_server",),
    "supervisors": ("vinedresser.infra.supervise.supervisor.server", "0"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("module", HELPERS.values(), ids=HELPERS)
def test_no_helper_ends_because_of_a_signal(module: tuple[str, ...]) -> None:
    own, other = socket.socketpair()
    with own, other, holding_foreign():
        helper = subprocess.Popen(
            [sys.executable, "-m", *module], stdin=other.fileno(), stdout=subprocess.DEVNULL
        )
        # While it starts, too.
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN + 3):
            helper.send_signal(number)
    assert helper.wait(60) == 0
