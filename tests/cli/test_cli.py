"""Commands as a user types them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.explain.reports.pages import finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import MachineRecord, findings_key, read_record
from vinedresser.testing.runs import make_run, step_record

TRAINING = textwrap.dedent(
    """
    import sys
    import torch
    from vinedresser.capture import Hook

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    loss_fn = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook("elsewhere").watch(model, loss=loss_fn, optimizer=optimizer)
    x, y = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    for step in range(20 if "--long" not in sys.argv else 10**9):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        if "--nan" in sys.argv and step == 7:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
    print("done", *sys.argv[1:])
    """
)
FAILING = """
from vinedresser.capture import Hook

hook = Hook("elsewhere")
hook.step(loss=1.0)
raise ValueError("as asked")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """Return a folder with the finished run `runs/one`, and its command."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    options = ("--name", "one", "--steps", "20", "--capture-budget", "0.1")
    return folder, vinedresser("run", *options, "train.py", "--lr", "0.1", cwd=folder)


def test_run_passes_on_arguments_output_and_exit_code(
    finished: tuple[Path, CompletedProcess[str]],
) -> None:
    project, done = finished
    assert done.returncode == 0, done.stderr
    assert "done --lr 0.1\n" in done.stdout
    run = open_run(project / "runs" / "one")
    assert run.status.state == "finished"
    assert list(run.steps("train")) == list(range(20))
    assert not (project / "elsewhere").exists()
    assert run.info.parameters == {"lr": 0.1}
    assert run.info.capture_budget == 0.1
    machine = read_record(run.storage, MachineRecord)
    assert machine is not None
    assert (machine.host, machine.cores) == (socket.gethostname(), len(os.sched_getaffinity(0)))
    assert machine.packages["numpy"] == run.info.versions["numpy"]


@pytest.mark.thorough
def test_a_run_is_tracked_where_asked_for_and_judged_as_live(
    project: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command]
        subprocess.run(git, cwd=project, check=True)
    store = mlflow_store(project / "runs")
    options = ["--track", "--rule", "nonfinite"]
    done = vinedresser("run", *options, "train.py", "--nan", "--lr", "0.2", cwd=project)
    assert done.returncode == 3
    recorded = mlflow_runs(store)["train-1"]
    assert recorded["status"] == "KILLED"
    assert recorded["params"] == {"nan": "True", "lr": "0.2"}
    assert recorded["tags"]["stop.rule"] == "nonfinite"
    assert recorded["tags"]["vinedresser.directory"] == str(store / "train-1")
    commit = open_run(store / "train-1").info.code
    assert len(commit) == 40
    assert recorded["tags"]["mlflow.source.git.commit"] == commit
    assert {"report.html", "machine.json", "log.txt"} <= {*recorded["files"]}
    assert recorded["steps"][:7] == list(range(7))
    finding = next(entry for entry in open_run(store / "train-1").findings())
    # The update of step 7 makes the weights NaN; step 8 is the first to show it.
    assert (finding.rule, finding.step) == ("nonfinite", 8)
    offline = vinedresser("judge", "runs/train-1", "--rule", "nonfinite", cwd=project)
    assert finding.seen in " ".join(offline.stdout.split())
    healthy = vinedresser("judge", "runs/train-1", "--rule", "vanishing_gradient", cwd=project)
    assert healthy.returncode == 0
    # What is no tracking URI is told before the script starts.
    refused = vinedresser("run", "--tracking-uri", "here", "train.py", cwd=project)
    assert refused.returncode == 2
    assert "'here'" in refused.stderr
    assert not (store / "train-2").exists()


@pytest.mark.thorough
def test_a_crash_shows_the_traceback_unchanged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILING, encoding="utf-8")
    done = vinedresser("run", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert "ValueError: as asked" in done.stderr
    status = open_run(tmp_path / "runs" / "train-1").status
    assert (status.state, status.reason) == ("crashed", "ValueError: as asked")


@pytest.mark.thorough
def test_the_first_interrupt_stops_the_run_with_a_checkpoint(project: Path) -> None:
    command = [sys.executable, "-m", "vinedresser", "run", "--name", "one", "train.py", "--long"]
    process = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)
    run = project / "runs" / "one"
    deadline = time.monotonic() + 60
    while not list(run.glob("index/0/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "asking the runs to stop" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert (open_run(run).status.state, open_run(run).status.by) == ("stopped", "person")
    assert len(list(run.glob("checkpoints/*.safetensors"))) == 1


def test_show_and_status(finished: tuple[Path, CompletedProcess[str]]) -> None:
    project, _ = finished
    shown = vinedresser("show", "runs/one", cwd=project)
    assert "losses/CrossEntropyLoss" in shown.stdout
    scalar = vinedresser("show", "runs/one", "losses/CrossEntropyLoss", "--step", "3", cwd=project)
    value = (
        open_run(project / "runs" / "one").scalars("losses")["losses/CrossEntropyLoss"].values[3]
    )
    assert f"{value:.6g}" in scalar.stdout
    status = vinedresser("status", cwd=project)
    assert "one" in status.stdout
    assert "finished" in status.stdout


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_a_narrow_terminal_shows_whole_names_and_verdicts(tmp_path: Path, columns: int) -> None:
    names = [f"resnet50-cosine-lr0.01-wd1e-4-augmented-seed-{seed}" for seed in (1, 2)]
    for name in names:
        scalars = {"losses/CrossEntropyLoss": 0.25, "metrics/accuracy": 0.5}
        run = make_run(tmp_path / "runs" / name, [step_record(0, scalars=scalars)], name=name)
        line = json.dumps(finding(rule="exploding_loss").to_json()) + "\n"
        run.storage.put(findings_key("default"), [line.encode()])
    shown = vinedresser("status", "runs", cwd=tmp_path, columns=columns)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert shown.stdout.count("exploding_loss") == len(names)
    # Pieces of a folded name stand below each other.
    joined = "".join(line.split("  ")[0].strip() for line in lines)
    assert all(name in joined for name in names)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nowhere.py"), "nowhere.py"),
        (("run", "--rule", "vanish", "train.py"), "rule; did you mean vanishing_gradient? ("),
        (("run", "--capture-budget", "2", "train.py"), "--capture-budget = 2.0: must be above 0"),
        (("run", "--ranks", "2000", "train.py"), "--ranks: must be from 1 to 1024, not 2000"),
        (("run", "--at", "3", "train.py"), "--at: `vinedresser run` has no such option"),
        (("run", "--store", "train.py/runs", "train.py"), "train.py: a file, not a folder"),
        (("run", "--store", "/proc/runs", "train.py"), "this folder cannot be made here"),
        (("train", "sweep.toml"), "run by `vinedresser sweep sweep.toml`"),
        (("run", "--rule", "nonfinite:a", "train.py"), "expected NAME:KEY=VALUE"),
        (("run", "--name", "taken", "train.py"), "taken: already holds a run"),
        (("run", "--name", "../x", "train.py"), "--name: '../x' is not a valid directory name"),
        (("train", "nowhere.toml"), "nowhere.toml: no such file"),
        (("train", "data.toml"), "/images: no such file or directory"),
        (("judge", "nowhere"), "nowhere: not a run"),
        (("judge", "runs/taken", "--rule", "nonfinite:evry=3"), "evry"),
        (("show", "nowhere"), "nowhere: not a run"),
        (("show", "runs/taken", "losses/x"), "no tensor or scalar losses/x"),
        (("show", "runs/taken", "--mode", "test", "x"), "no such mode"),
        (("show", "runs"), "it is a store of 1 run, such as runs/taken"),
        (("show", "runs/takn"), "there is no run.json; did you mean taken?"),
        (("status", "nowhere"), "nowhere: no such directory"),
        (("status", "runs/takn"), "no such directory; did you mean taken?"),
        (("reconcile", "nowhere"), "nowhere: no such directory"),
        (("ui", "runs"), "runs: no run in it is tracked by MLflow"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    project: Path, arguments: tuple[str, ...], message: str
) -> None:
    taken = project / "runs" / "taken"
    taken.mkdir(parents=True)
    (taken / "run.json").write_text('{"id": "0", "name": "taken", "created": 0}', encoding="utf-8")
    (project / "sweep.toml").write_text("[run]\n[space]\n", encoding="utf-8")
    run = '[run]\nname = "a"\ncommand = ["python", "train.py"]\n'
    (project / "data.toml").write_text(f'{run}[data]\ntrain = "images"\n', encoding="utf-8")
    done = vinedresser(*arguments, cwd=project)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("vinedresser: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.thorough
def test_judging_uses_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run", [step_record(0)])
    (tmp_path / "own.py").write_text(
        "import os, threading\n"
        "from vinedresser.rules.base import Rule\n"
        "class Own(Rule):\n"
        "    needs = ()\n"
        "    def update(self, step):\n"
        "        own = len(os.listdir('/proc/self/task')) - threading.active_count()\n"
        "        print('threads of libraries:', own)\n"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    for command in (["judge", "run", "--rule"], ["rules", "test", "--run", "run"]):
        done = vinedresser(*command, "own.py:Own", cwd=tmp_path)
        assert "threads of libraries: 0" in done.stdout, done.stderr
