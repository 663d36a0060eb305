"""Prunings of a small network as users run them: `vinedresser prune` with a file."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.cli.command_line import started_vinedresser, vinedresser
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.objects import LocalStorage
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.store.records import read_record

MODULE = "tests.pruning.rounds.functions"
PRUNE = f"""
[prune]
model = "{MODULE}:network"
weights = "{MODULE}:pretrain"
example = "{MODULE}:example"
train = "{MODULE}:train"
evaluate = "{MODULE}:evaluate"
losses = "{MODULE}:losses"
criterion = "taylor_weight"
amount = 4
{{more}}

[run]
name = "small"
cwd = "{ROOT}"
grace = 2.0
parameters = {{{{ lr = {{lr}}{{parameters}} }}}}
environment = {{{{ {{environment}} }}}}

{{tables}}
"""


def write(
    folder: Path,
    more: str = "rounds = 2",
    *,
    parameters: str = "",
    environment: str = "",
    tables: str = "[rules.nonfinite]",
    lr: float = 0.01,
) -> None:
    """Write a prune file."""
    text = PRUNE.format(
        more=more, parameters=parameters, environment=environment, tables=tables, lr=lr
    )
    (folder / "prune.toml").write_text(text, encoding="utf-8")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a pruning."""
    return started_vinedresser("prune", "prune.toml", *arguments, cwd=folder)


def prune(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a pruning; return its exit code and what it printed."""
    done = vinedresser("prune", "prune.toml", *arguments, cwd=folder, columns=200)
    return done.returncode, done.stdout + done.stderr


def complete(folder: Path, flow: subprocess.Popen[str], mark: Path | None) -> None:
    """Wait for a pruning; if there is a mark, kill it once that exists, and resume it."""
    if mark is None:
        output, _ = flow.communicate()
        code = flow.returncode
    else:
        until(mark.exists, "the phase", seconds=200)
        flow.send_signal(signal.SIGKILL)
        flow.communicate()
        code, output = prune(folder, "--resume")
    assert code == 0, output


def records(store: Path) -> list[RoundRecord]:
    """Return the records of the rounds, without what differs between machines and moments."""
    found: list[RoundRecord] = []
    while (
        one := read_record(LocalStorage(round_folder(store, len(found))), RoundRecord)
    ) is not None:
        same = {"latency": 1.0, "original_latency": 1.0, "run": one.run.partition("-2")[0]}
        bounds = {"latency_low": None, "latency_high": None}
        found.append(RoundRecord.from_json(one.to_json() | same | bounds))
    return found


def weights(store: Path) -> dict[str, bytes]:
    """Return all saved weights by path."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*.safetensors")
        if "models" in path.parts
    }
