"""A stopped training ends between two steps and saves its weights."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from types import FrameType

import pytest
from safetensors.numpy import load_file
from torch import nn

from tests.waiting import until
from tests.warm_python import TORCH
from vinedresser.capture import Hook, open_run
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.objects import LocalStorage
from vinedresser.store.records import StopRecord, write_record

PROGRAM = """
import atexit, os, signal, sys, time
import torch
from safetensors.torch import save_file
from torch import nn
from vinedresser.capture import Hook, SaveConfig

path, how = sys.argv[1:]
torch.set_num_threads(1)
if how in ("handler", "stuck"):
    def handle(number, frame):
        # Not print: the signal may come while the program is printing.
        os.write(1, b"own handler\\n")
        open(path + ".handled", "x").close()

    signal.signal(signal.SIGTERM, handle)
model, loss = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters())
hook = Hook(path, collections={"weights": SaveConfig(every=1)}).watch(model, loss, optimizer)
if how == "callback":
    def broken(directory, step):
        (directory / f"mine-{step}").write_text("x")
        raise ValueError("no room")
    hook.on_stop(broken)
atexit.register(lambda: print("atexit", flush=True))

def step():
    optimizer.zero_grad()
    loss(model(torch.randn(16, 4)), torch.randn(16, 1)).backward()
    optimizer.step()

try:
    step()
    step()
    # Then whole at once.
    open(path + ".begins", "w").write(str(os.getpid()))
    os.rename(path + ".begins", path + ".pid")
    while how == "stuck":
        time.sleep(0.01)
    if how == "evaluating":
        model.eval()
        while True:
            with torch.no_grad():
                model(torch.randn(16, 4))
    while True:
        step()
finally:
    save_file(model.state_dict(), path + ".final")
    print("finally", flush=True)
"""


@contextmanager
def training(path: Path, how: str) -> Iterator[tuple[int, Future[CompletedProcess[str]]]]:
    """Start the program; once it is in the middle of its training, yield its pid and its end."""
    words = ["-c", PROGRAM, str(path), how]
    with TORCH.running(words, path.parent, os.environ) as ended:
        begun = Path(f"{path}.pid")
        until(lambda: begun.exists() or ended.done(), "the training begins")
        assert begun.exists(), ended.result().stderr
        yield int(begun.read_text()), ended


def check_saved(path: Path, output: str, *, evaluating: bool = False) -> None:
    """Check that the last step was saved and that the program could clean up."""
    assert "finally\n" in output
    assert output.endswith("atexit\n")
    (checkpoint,) = (path / "checkpoints").iterdir()
    saved, final = load_file(checkpoint), load_file(f"{path}.final")
    assert {name: value.tobytes() for name, value in saved.items()} == {
        name: value.tobytes() for name, value in final.items()
    }
    run = open_run(path)
    steps = run.steps("train").tolist()
    assert checkpoint.name == f"step-{len(steps)}.safetensors"
    assert steps == list(range(len(steps)))
    assert run.tensor("weights/0.weight").steps().tolist() == steps
    assert evaluating == (len(steps) == 2)


@pytest.mark.thorough
def test_sigterm_saves_the_weights_and_lets_the_program_clean_up(tmp_path: Path) -> None:
    with training(tmp_path / "run", "plain") as (pid, ended):
        os.kill(pid, signal.SIGTERM)
        done = ended.result(60)
    assert (done.returncode, done.stderr) == (143, "")
    check_saved(tmp_path / "run", done.stdout)
    status = open_run(tmp_path / "run").status
    assert (status.state, status.signal) == ("killed", "SIGTERM")


@pytest.mark.thorough
def test_a_stop_record_makes_it_a_stop_and_the_programs_own_handler_is_called(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    with training(path, "handler") as (pid, ended):
        record = StopRecord("rule", "loss is not finite", time.time(), rule="nonfinite", step=1)
        write_record(LocalStorage(path), record)
        os.kill(pid, signal.SIGTERM)
        done = ended.result(60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("own handler\n")
    check_saved(path, done.stdout)
    status = open_run(path).status
    assert (status.state, status.rule) == ("stopped", "nonfinite")
    assert status.reason == "loss is not finite"


@pytest.mark.thorough
def test_a_stop_interrupts_an_evaluation(tmp_path: Path) -> None:
    with training(tmp_path / "run", "evaluating") as (pid, ended):
        os.kill(pid, signal.SIGTERM)
        done = ended.result(60)
    assert done.returncode == 143
    check_saved(tmp_path / "run", done.stdout, evaluating=True)


@pytest.mark.thorough
def test_a_failing_on_stop_callback_is_reported_and_the_run_ends(tmp_path: Path) -> None:
    with training(tmp_path / "run", "callback") as (pid, ended):
        os.kill(pid, signal.SIGTERM)
        done = ended.result(60)
    assert done.returncode == 143
    assert done.stdout == "finally\natexit\n"
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    steps = len(open_run(tmp_path / "run").steps("train"))
    assert saved.name == f"mine-{steps}"
    (line,) = done.stderr.splitlines()
    assert re.match(r"vinedresser: .*\bcheckpoint: ValueError: no room; ", line)


@pytest.mark.thorough
def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    with training(tmp_path / "run", "stuck") as (pid, ended):
        os.kill(pid, signal.SIGTERM)
        # It survives the first SIGTERM, since no step ends.
        until((tmp_path / "run.handled").exists, "the program's own handler")
        os.kill(pid, signal.SIGTERM)
        done = ended.result(60)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "own handler\n")


def test_sigterm_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    hook = Hook(tmp_path / "run").watch(nn.Linear(1, 1))
    assert signal.getsignal(signal.SIGTERM) != before
    hook.close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_still_kills_a_forked_child(tmp_path: Path) -> None:
    with Hook(tmp_path / "run").watch(nn.Linear(1, 1)):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"!")
            # signal.pause() would wait on after a signal that came just before it.
            while True:
                time.sleep(0.02)
        # Python loses a signal that arrives during a fork.
        assert os.read(reading, 1) == b"!"
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_a_closed_hook_that_a_later_handler_still_calls_ends_nothing(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with Hook(tmp_path / "first") as first:
            first.step(loss=1.0)
            ours = signal.getsignal(signal.SIGTERM)
            assert callable(ours)

            # Trainers install such handlers, which call what they find.
            def chained(number: int, frame: FrameType | None) -> None:
                ours(number, frame)

            signal.signal(signal.SIGTERM, chained)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(TrainingStopped):
                first.step(loss=1.0)
        with Hook(tmp_path / "second") as second:
            second.step(loss=1.0)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(TrainingStopped):
                second.step(loss=1.0)
    finally:
        signal.signal(signal.SIGTERM, before)
