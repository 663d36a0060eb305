"""No process connects to anything, or looks a name up, that the user has not configured.

Each command runs in a terminal with an empty home, as for a new user, under strace, which also sees
what native code does, in all processes that it starts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.terminal import Terminal
from tests.waiting import until
from vinedresser.cli.application import app

STRACE = (
    *("strace", "-DDD", "-f", "-q", "--seccomp-bpf", "-e", "signal=none", "-s", "160"),
    *("-e", "trace=connect,sendto,sendmsg,sendmmsg"),
)
# A system call with an address of the internet protocols, and one of this machine.
ADDRESS = re.compile(r"sin6?_addr")
LOCAL = re.compile(r'inet_addr\("127\.|AF_INET6, "(?:::1|::ffff:127\.[\d.]+)"')
# The port and the header of a question to a name server.
QUESTION = re.compile(r"htons\(53\)|\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0")
# What a new user has not set, and the tests, or the shell around them, have.
UNSET = (
    *("DO_NOT_TRACK", "CI", "PREFECT_HOME", "PREFECT_SERVER_ANALYTICS_ENABLED", "NO_COLOR"),
    *("MLFLOW_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"),
)

TRAIN = """
import argparse
import time

import torch
from torch import nn

from vinedresser.capture import Hook

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
loss_fn = nn.MSELoss()
with Hook().watch(model, loss=loss_fn, optimizer=optimizer) as hook:
    hook.tunable("lr", optimizer)
    for epoch in range(options.epochs):
        for _ in range(10):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            loss = loss_fn(model(x), x.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
            if options.epochs > 3:
                time.sleep(0.01)
        hook.metric("score", -float(loss.detach()))
"""
EXPERIMENT = """
[run]
name = "small"
command = ["python", "train.py"]

[variants.one]
parameters = { lr = 0.05 }

[variants.two]
parameters = { lr = 0.01 }
"""
SWEEP = """
[sweep]
metric = "score"
mode = "train"
direction = "maximize"
trials = 2
epochs = 3

[space]
lr = { log = [1e-3, 0.1] }

[run]
name = "search"
command = ["python", "train.py"]
"""
RULE = """
from vinedresser.rules import Rule


class Silent(Rule):
    name = "silent"
    needs = ()

    def update(self, step):
        return None
"""
LIBRARIES = """
import vinedresser

import dask.distributed, duckdb, keras, lightning, mlflow, optuna, prefect, ray, tensorflow, xgboost
from vinedresser.flows.train import train

train("experiment.toml")
"""
# Runs commands in turn, each in a child of its own: what most of them load is loaded once.
IN_TURN = """
import json, os, sys
from vinedresser.cli import application, main

for words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        sys.argv = ["vinedresser", *words]
        sys.exit(main())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"{words}: {code}")
"""
FILES = {
    "in_turn.py": IN_TURN,
    "quick.py": "print('trained')",
    "train.py": TRAIN,
    "experiment.toml": EXPERIMENT,
    "sweep.toml": SWEEP,
    "rule.py": RULE,
    "library.py": LIBRARIES,
}


class Traced:
    """Runs commands in terminals, under strace.

    Args:
        folder: working directory; the home is beside it.

    Attributes:
        folder: see above.
        environment: further variables.
        done: commands that were run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str | None] = {}
        self.done: set[str] = set()
        self._traces: list[Path] = []
        self._home = folder / "home"
        self._home.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")

    def start(self, *arguments: str, python: bool = False) -> Terminal:
        """Start a command, or Python with arguments."""
        trace = self.folder / f"trace-{len(self._traces)}"
        self._traces.append(trace)
        self._note(arguments)
        return Terminal(
            *arguments,
            cwd=self.folder,
            environment={**dict.fromkeys(UNSET), "HOME": str(self._home), **self.environment},
            program=(sys.executable, *(() if python else ("-m", "vinedresser"))),
            before=[*STRACE, "-o", str(trace)],
        )

    def run(self, *arguments: str, code: int | None = 0, python: bool = False) -> str:
        """Run a command, and return its output; the exit code None: any."""
        terminal = self.start(*arguments, python=python)
        output = terminal.output()
        assert code in (None, terminal.process.returncode), output[-3_000:]
        return output

    def run_in_turn(self, *commands: tuple[str, ...]) -> None:
        """Run commands that end with 0, one after another, under one strace."""
        for arguments in commands:
            self._note(arguments)
        self.run("in_turn.py", json.dumps(commands), python=True)

    def _note(self, arguments: tuple[str, ...]) -> None:
        self.done.add(" ".join(arguments[: 2 if arguments[0] in GROUPS else 1]))

    def foreign(self) -> list[str]:
        """Return the system calls that went elsewhere, or asked for a name."""
        found = []
        for trace in self._traces:
            until(partial(has_ended, trace), "strace")
            lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [line for line in lines if is_foreign(line)]
        return found


def has_ended(trace: Path) -> bool:
    """Return whether the first process of a trace has ended."""
    return "+++ exited" in trace.read_text(errors="replace")


def is_foreign(line: str) -> bool:
    """Return whether a system call goes to another machine, or asks for a name."""
    if QUESTION.search(line):
        return True
    return ADDRESS.search(line) is not None and LOCAL.search(line) is None


def interrupt(terminal: Terminal) -> None:
    """End a command that serves, with Ctrl-C."""
    until(lambda: "http://" in terminal.printed(), "the address")
    while terminal.process.poll() is None:
        terminal.type("\x03")
        # On a busy machine the first one may come before anything handles it.
        with suppress(subprocess.TimeoutExpired):
            terminal.process.wait(5.0)
    terminal.output()


def of_runs(traced: Traced) -> None:
    """Train, and look at the runs in every way."""
    one, two = "runs/small-one", "runs/small-two"
    traced.run("init", "experiment", "example")
    traced.run("train", "experiment.toml")
    traced.run("status")
    traced.run("show", one)
    traced.run("logs", one)
    traced.run("judge", one)
    traced.run("compare", one, two)
    traced.run("explain", one, code=None)
    traced.run("ask", one, "loss", "--limit", "1")
    traced.run("reconcile")
    traced.run("rerun", one, code=None)
    traced.run("doctor")
    traced.run("pin", one, "--why", "the best")
    traced.run("gc", "--state", "finished")
    traced.run("export", one, "--to", "run.zip")
    traced.run("import", "run.zip", "imported")
    traced.run("copy", two, "--to", "imported")
    traced.run("rm", f"imported/{Path(one).name}")
    traced.run("rules", "list")
    traced.run("rules", "describe", "vanishing_gradient")
    traced.run("rules", "test", "rule.py:Silent", "--run", one)
    traced.run("data", "convert", "experiment.toml", "data", "--format", "files")
    feeder = traced.start("data", "feed", "data", "channel")
    until((traced.folder / "channel_0").exists, "the pipe")
    (traced.folder / "channel_0").read_bytes()
    feeder.output()
    traced.run("data", "bench", "data", "--seconds", "0.01")
    traced.run("data", "show", "data/part-00000.tfrecord#0")
    interrupt(traced.start("watch", "--no-browser"))
    interrupt(traced.start("ui"))


def of_scripts(traced: Traced) -> None:
    """Check a script, and steer its training."""
    traced.run("check", "train.py")
    training = traced.start(
        *("run", "--name", "live", "--live", "--control", "--guard", "nonfinite"),
        *("train.py", "--epochs", "10000"),
    )
    run = "runs/live"
    until((traced.folder / run / "index").exists, "the training")
    traced.run_in_turn(
        ("ask", run, "norm(gradients) by layer", "--limit", "1"),
        ("capture", run, "--collection", "biases", "--every", "1"),
        ("set", run, "lr=0.02"),
        ("snapshot", run),
        ("checkpoint", run),
        ("pause", run),
        ("resume", run),
        ("stop", run),
        ("snapshots", run),
    )
    training.output()
    (snapshot,) = (traced.folder / run / "snapshots").iterdir()
    traced.run("replay", str(snapshot), "--script", "train.py")
    # In a tree like that of a container.
    config = traced.folder / "ml/input/config"
    config.mkdir(parents=True)
    hosts = {"current_host": "algo-1", "hosts": ["algo-1"]}
    (config / "resourceconfig.json").write_text(json.dumps(hosts))
    traced.environment |= {"SAGEMAKER_BASE_DIR": str(traced.folder / "ml")}
    traced.environment |= {"SAGEMAKER_PROGRAM": "quick.py"}
    traced.environment |= {"SAGEMAKER_SUBMIT_DIRECTORY": str(traced.folder)}
    traced.run("sagemaker", "train")


def of_sweeps(traced: Traced) -> None:
    """Search, as a flow of a private server, and add to the search."""
    traced.run("sweep", "sweep.toml")
    traced.run("enqueue", "runs/search", "lr=0.05")


def of_prunings(traced: Traced) -> None:
    """Prune the example's network, for one round."""
    traced.run("init", "prune", ".")
    path = traced.folder / "prune.toml"
    text = path.read_text(encoding="utf-8").replace("rounds = 6", "rounds = 1")
    path.write_text(text.replace("epochs = 3", "epochs = 1"), encoding="utf-8")
    traced.run("prune", "prune.toml")


def of_monitors(traced: Traced) -> None:
    """Serve, watch the requests, and explain a window."""
    traced.run("init", "monitor", ".")
    traced.run("service.py", python=True)
    traced.run("monitor", "monitor.toml")
    traced.run("explain", "monitor.toml", "--window", "1")


def of_servers(traced: Traced) -> None:
    """Start the standing servers, deploy to them, train into a bucket, and stop them."""
    output = traced.run("up", "--prefect", "--s3")
    exported = re.findall(r"export (\w+)='?([^'\s]+)", output)
    traced.environment |= dict(exported)
    traced.run("deploy", "experiment.toml")
    traced.run("run", "--store", "s3://vinedresser/runs", "train.py")
    traced.run("status", "s3://vinedresser/runs")
    traced.run("down")


def of_the_library(traced: Traced) -> None:
    """Import everything, and train with a function."""
    # Prefect starts a server of its own, which may take longer than 20 s.
    traced.environment["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "240"
    traced.run("library.py", python=True)


# Commands, with what runs them: a new command has to find its place here.
COMMANDS: dict[Callable[[Traced], None], str] = {
    of_runs: (
        "ask compare copy doctor explain export gc import init judge logs pin reconcile rerun rm "
        "show status train ui watch"
    ),
    of_scripts: (
        "capture check checkpoint pause replay resume run sagemaker set snapshot snapshots stop"
    ),
    of_sweeps: "enqueue sweep",
    of_prunings: "prune",
    of_monitors: "monitor",
    of_servers: "deploy down up",
    of_the_library: "",
}
GROUPS = {"data": {"bench", "convert", "feed", "show"}, "rules": {"list", "describe", "test"}}
GROUPED = {f"{group} {one}" for group, names in GROUPS.items() for one in names}
LONG = (of_runs, of_sweeps, of_prunings, of_monitors, of_servers, of_the_library)


def test_every_command_is_run() -> None:
    found: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    listed = " ".join(COMMANDS.values()).split()
    assert sorted([*listed, *GROUPS]) == sorted(found)
    assert {name: {*found[name].commands} for name in GROUPS} == GROUPS


def test_what_goes_elsewhere_is_seen(tmp_path: Path, strace: None) -> None:
    traced = Traced(tmp_path)
    asks = "import socket; socket.getaddrinfo('telemetry.example', 443)"
    traced.run("-c", asks, python=True, code=1)
    assert any("telemetry" in line for line in traced.foreign())
    connects = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('{}', 9))"
    traced.run("-c", connects.format("192.0.2.1"), python=True)
    traced.run("-c", connects.format("127.0.0.1"), python=True)
    assert sum("192.0.2.1" in line for line in traced.foreign()) == 1
    assert not any("127.0.0.1" in line for line in traced.foreign())


@pytest.fixture(scope="module")
def strace() -> None:
    """Skip tests where processes cannot be traced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace): NO CONNECTION WAS LOOKED AT")
    done = subprocess.run([*STRACE, "-o", "/dev/null", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"strace may not trace here: NO CONNECTION WAS LOOKED AT: {done.stderr!r}")


@pytest.mark.thorough
@pytest.mark.usefixtures("strace")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, marks=[pytest.mark.slow] if one in LONG else []) for one in COMMANDS],
    ids=lambda one: one.__name__,
)
def test_nothing_goes_elsewhere(tmp_path: Path, scenario: Callable[[Traced], None]) -> None:
    traced = Traced(tmp_path)
    scenario(traced)
    assert {*COMMANDS[scenario].split()} <= traced.done
    assert traced.done >= GROUPED or scenario is not of_runs
    assert traced.foreign() == []
