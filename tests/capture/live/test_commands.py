"""What the commands say about a training in a process of its own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.capture.live.live_training import listens
from tests.cli.command_line import vinedresser
from tests.waiting import until
from vinedresser.store.reading.reader import open_run

pytestmark = pytest.mark.thorough

TRAINING = """
import sys, time
from vinedresser.capture import Hook

knobs = {"a": 1.0, "b": 1.0}
with Hook(sys.argv[1], live=True) as hook:
    for name in knobs:
        hook.tunable(
            name,
            get=lambda name=name: knobs[name],
            set=lambda value, name=name: knobs.update({name: value}),
            max=10,
        )
    while True:
        for _ in range(10):
            hook.step(loss=1.0)
            time.sleep(0.005)
        hook.event("epoch")
"""


@dataclass
class Training:
    """A training in a process of its own.

    Attributes:
        path: directory of the run.
        process: the process.
    """

    path: Path
    process: Popen[bytes]

    def asked(self, *arguments: str) -> Popen[str]:
        """Return a client that has just been started."""
        command = [sys.executable, "-m", "vinedresser", "ask", str(self.path), *arguments]
        return Popen(command, stdout=PIPE, stderr=PIPE, text=True)

    def told(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return a finished command; the run is its second word."""
        command, *rest = arguments
        return vinedresser(command, str(self.path), *rest, cwd=self.path.parent)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    process = Popen([sys.executable, str(script), str(tmp_path / "run")])
    try:
        until(lambda: listens(tmp_path / "run"), "the training begins")
        yield Training(tmp_path / "run", process)
    finally:
        process.kill()
        process.wait()


def test_the_client_of_a_killed_training_is_told_so(training: Training) -> None:
    with training.asked("loss", "--json") as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        training.process.kill()
        training.process.wait()
        _, errors = client.communicate(timeout=60)
    assert client.returncode == 2
    assert errors == (
        f"vinedresser: {training.path}: the run is dead: no process runs it and no exit was "
        "recorded\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "why"),
    [
        (
            "epock",
            "its script has not called hook.event('epock') so far; did you mean epoch?",
        ),
        ("flush", "its windows are closed by flush_live"),
        ("900 seconds", "its first window of 900 seconds has not ended"),
    ],
)
def test_a_client_that_waits_is_told_why(training: Training, every: str, why: str) -> None:
    with training.asked("loss", "--every", every) as client:
        assert client.stderr is not None
        assert client.stderr.readline() == f"{training.path}: no answer yet: {why}\n"
        client.kill()


@pytest.mark.slow
def test_a_client_of_a_paused_training_is_told_so(training: Training) -> None:
    assert training.told("pause").returncode == 0
    with training.asked("loss", "--limit", "1") as client:
        assert client.stderr is not None
        told = client.stderr.readline()
        assert told == f"{training.path}: no answer yet: the training is paused\n"
        assert training.told("resume").returncode == 0
        answer, errors = client.communicate(timeout=60)
    assert (client.returncode, answer[:4], errors) == (0, "step", "")


def test_parameters_are_changed_between_the_same_two_steps(training: Training) -> None:
    done = training.told("set", "a=2", "b=3", "--at", "next-epoch")
    assert done.returncode == 0, done.stderr
    changes = open_run(training.path).controls()
    assert [(change.parameter, change.new) for change in changes] == [("a", [2.0]), ("b", [3.0])]
    assert changes[0].step == changes[1].step
    who = pwd.getpwuid(os.getuid()).pw_name
    assert changes[0].reason == f"vinedresser adjust, {who} on {os.uname().nodename}"


def test_each_refused_change_is_said_and_the_others_are_made(training: Training) -> None:
    done = training.told("set", "a=20", "b=4", "c=1")
    assert done.returncode == 2
    assert "b changed from 1 to 4 as of step" in done.stdout
    [line] = done.stderr.splitlines()
    assert "a: cannot be set to 20" in line
    assert "c is not declared by hook.tunable('c', …); declared: a, b" in line
    assert [control.parameter for control in open_run(training.path).controls()] == ["b"]


def test_a_request_that_waits_says_for_what(training: Training) -> None:
    done = training.told("set", "a=2", "--at", "step 10000000", "--timeout", "0")
    assert done.returncode == 0
    assert done.stdout == (
        f"{training.path}: request sent; the training has not reached step 10000000\n"
    )


def test_what_a_killed_training_has_answered_is_drawn(training: Training) -> None:
    picture = training.path.parent / "loss.svg"
    with training.asked("loss", "--json", "--plot", str(picture)) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        training.process.kill()
        training.process.wait()
        client.communicate(timeout=60)
    assert client.returncode == 2
    assert picture.read_text().startswith("<svg")
