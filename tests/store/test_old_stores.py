"""Stores that earlier versions have written are read as those of today.

Each archive in `old_stores/` has the runs of one day's code: `hooked`, a script with a hook; from
27 November on `snap`, the same with snapshots; and `search`, a sweep of two trials, one of them
pruned. Folders of the machine are replaced by others. A change of the format adds an archive, and
keeps these.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from tests.warm_python import TORCH
from vinedresser import compare, open_run, open_store, verdict
from vinedresser.errors import CorruptData
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.snapshots.reading import list_snapshots

ARCHIVES = sorted((Path(__file__).parent / "old_stores").glob("*.tar.xz"))
SNAPSHOTS = [archive for archive in ARCHIVES if archive.name >= "2026-11-27"]
# The training of all runs; `losses` is what it computes.
SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(256, 8)
y = (x.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
loss_fn = nn.CrossEntropyLoss()
losses = []
for epoch in range(3):
    for rows in torch.arange(256).split(32):
        optimizer.zero_grad()
        loss = loss_fn(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(losses)
"""


@pytest.fixture(scope="module")
def losses() -> list[float]:
    """The losses of `hooked`, of a training without vinedresser."""
    done = TORCH.run(["-c", SCRIPT.replace("RATE", "0.1")], ROOT, os.environ)
    assert done.returncode == 0, done.stderr
    found: list[float] = json.loads(done.stdout)
    return found


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extraction_filter = tarfile.data_filter
        opened.extractall(folder)
    return folder


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_runs_of_an_old_store_have_their_values_and_ends(
    archive: Path, tmp_path: Path, losses: list[float]
) -> None:
    store = unpacked(archive, tmp_path)
    run = open_run(store / "hooked")
    (loss,) = run.scalars("losses").values()
    assert loss.of("train").values.tolist() == pytest.approx(losses, rel=1e-4)
    assert run.status.state == "finished"
    assert verdict(run).kind == "cannot tell"
    assert {len(metric.of("train")) for metric in run.scalars("metrics").values()} == {3}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_an_old_sweep_is_listed_judged_and_compared(archive: Path, tmp_path: Path) -> None:
    store = unpacked(archive, tmp_path)
    trials = open_store(store / "search")
    assert sorted(trials[name].status.state for name in trials) == ["finished", "stopped"]
    for name in trials:
        judge(trials[name], [rule() for rule in RULES.values()])
    found = compare(store / "search")
    assert found.settings["lr"]
    assert "sweep search" in vinedresser("status", str(store), cwd=tmp_path).stdout


@pytest.mark.thorough
@pytest.mark.parametrize("archive", SNAPSHOTS, ids=lambda path: path.name)
def test_the_step_of_an_old_snapshot_is_run_again(archive: Path, tmp_path: Path) -> None:
    store = unpacked(archive, tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT.replace("RATE", "0.5"))
    (snapshot, *_) = list_snapshots(open_run(store / "snap").storage, [])
    ended = vinedresser(
        "replay", f"snap/snapshots/{snapshot.name}", "--script", "train.py", cwd=tmp_path
    )
    # On the processor that computed it, which these snapshots do not name, all bits are the same.
    assert "loss 0.918377: the same" in ended.stdout, ended.stdout + ended.stderr
    same = "gradients: 4 of 4" in ended.stdout
    assert same or "does not say which processor computed it" in ended.stdout, ended.stdout


def test_a_run_of_a_newer_format_is_refused_with_the_reason(tmp_path: Path) -> None:
    store = unpacked(ARCHIVES[-1], tmp_path)
    record = store / "hooked" / "run.json"
    record.write_text(record.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(CorruptData, match=r"hooked/run\.json.*a newer version of vinedresser"):
        open_run(store / "hooked")
    listed = vinedresser("status", str(store), cwd=tmp_path)
    assert "unreadable" in listed.stdout
