"""Trials on a snapshot of a stopped run choose the correction of the run that replaces it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.paths import ROOT
from tests.replay.test_script import HEAD, call
from tests.replay.what_if.trainings import fast, train
from tests.tasks.remedy.findings import finding
from tests.tasks.remedy.test_remedy import experiment
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.rules.findings_file import FindingsFile
from vinedresser.snapshots.reading import list_snapshots
from vinedresser.snapshots.record import Reason, SnapshotRecord
from vinedresser.snapshots.replay_record import ReplayRecord, read_replay
from vinedresser.store.records import ExitRecord, StopRecord, TrackingRecord, write_record
from vinedresser.tasks.config.remedy_settings import RemedySettings
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts
from vinedresser.tasks.remedy.trials import corrections, snapshot_before

# A script whose learning rate is too high.
SCRIPT = (
    HEAD.replace("int(sys.argv[1])", "0")
    + """
rows = torch.randn(256, 6)
labels = (rows[:, 0] > 0).long() + (rows[:, 1] > 0).long()
model, loss_fn = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]), momentum=0.9)
hook = Hook("runs/run", guard="nonfinite", snapshots=SnapshotSettings(every=100))
hook.watch(model, loss=loss_fn, optimizer=optimizer)
for inputs, wanted in DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True):
    optimizer.zero_grad()
    loss_fn(model(inputs), wanted).backward()
    optimizer.step()
hook.close()
"""
)


def stop(run: Path, proposed: dict[str, Any]) -> None:
    """Stop a run by a rule of step 0 that proposes new values of parameters."""
    storage, found = LocalStorage(run), finding(proposed, since=0)
    FindingsFile(storage, "default").add(found)
    record = StopRecord("rule", "", 1.0, "own", 0, found.to_json())
    write_record(storage, ExitRecord("stopped", "", 2.0, stop=record))


def stopped(run: Path, proposed: dict[str, Any], factory: str, *, steps: int = 1) -> RemedyAttempts:
    """Train with a learning rate of 2 until a rule stops it; return its attempts.

    Args:
        run: directory of the run.
        proposed: what the rule proposes.
        factory: function of `tests.replay.what_if.trainings`.
        steps: number of steps; 0: without a snapshot.
    """
    torch.manual_seed(0)
    train(run, fast(), steps)
    stop(run, proposed)
    settings = RemedySettings(factory=f"tests.replay.what_if.trainings:{factory}", seconds=300.0)
    spec = RunSpec("run", ["train"], {"lr": 2.0, "clip": 0}, {}, 100)
    return RemedyAttempts(RunPlace(run), spec, settings, TrackingRecord("", "0", ""), ROOT)


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("shared_prefect")
def test_what_the_trials_prove_replaces_what_the_rule_proposes(tmp_path: Path) -> None:
    # A rule that is wrong.
    one = stopped(tmp_path / "run", {"width": 8}, "fast")
    attempt = one.next()
    assert attempt is not None, one.left
    assert attempt.remedy is not None
    (name,) = attempt.remedy.changed
    saved = read_replay(LocalStorage(tmp_path / "run"), "step-0", [])
    assert saved is not None
    expected = {"learning rate": ("lr", 0.2), "clipping": ("clip", 1.0)}[next(iter(saved.cures))]
    assert (name, attempt.spec.parameters[name]) == expected
    assert attempt.remedy.tried == f"on step 0: {saved.tried}"
    assert "cures it (loss " in attempt.remedy.tried


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("shared_prefect")
def test_a_script_needs_no_factory(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(SCRIPT, encoding="utf-8")
    call(tmp_path, "train.py", "--lr", "8.0")
    run, settings = tmp_path / "runs" / "run", RemedySettings(seconds=300.0)
    stop(run, {"lr": 4.0})
    spec = RunSpec("run", [sys.executable, "train.py"], {"lr": 8.0}, {}, 100)
    tracking = TrackingRecord("", "0", "")
    attempt = RemedyAttempts(RunPlace(run), spec, settings, tracking, tmp_path).next()
    assert attempt is not None
    assert attempt.remedy is not None
    assert attempt.remedy.tried.startswith("on step 0: ")
    assert "cures it (loss " in attempt.remedy.tried
    assert attempt.remedy.changed["lr"][1] in (0.8, 0.08)


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("shared_prefect")
def test_without_trials_the_rule_decides_and_why_is_told(tmp_path: Path) -> None:
    attempt = stopped(tmp_path / "run", {"lr": 0.5}, "fast", steps=0).next()
    assert attempt is not None
    assert attempt.remedy is not None
    assert attempt.remedy.changed == {"lr": [2.0, 0.5]}
    assert attempt.remedy.tried == "not possible: no snapshot of a torch training"
    attempt = stopped(tmp_path / "other", {"lr": 0.5}, "missing").next()
    assert attempt is not None
    assert attempt.remedy is not None
    assert attempt.remedy.changed == {"lr": [2.0, 0.5]}
    assert attempt.remedy.tried.startswith("not possible on step 0: ")
    assert "has no function missing" in attempt.remedy.tried


@pytest.mark.parametrize(
    ("kind", "values", "parameters", "expected"),
    [
        ("learning rate", [2.0, 0.2], {"optimizer.lr": 2.0}, [{"optimizer.lr": 0.2}]),
        # A schedule has lowered the rate meanwhile: the change is a factor.
        ("learning rate", [0.5, 0.05], {"lr": 2.0}, [{"lr": 0.2}]),
        ("clipping", [930.0, 1.0], {"max_grad_norm": 100.0}, [{"max_grad_norm": 1.0}]),
        ("clipping", [930.0, 1.0], {"grad-clip": 0}, [{"grad-clip": 1.0}]),
        ("clipping", [930.0, 1.0], {"max_steps": 100}, []),
        ("eps", [1e-8, 1e-4], {"adam_eps": 1e-8}, [{"adam_eps": 1e-4}]),
        ("dropout", [0.9, 0.0], {"dropout": 0.9}, [{"dropout": 0.0}]),
        ("dropout", [0.9, 0.0], {"drop": True}, []),
        ("weight decay", [1.0, 0.0], {"weight_decay": 1.0}, [{"weight_decay": 0.0}]),
        ("weight decay", [1.0, 0.0], {"lr_decay": 0.1}, []),
        ("precision", [], {"lr": 2.0}, []),
        ("unknown", [1.0, 2.0], {"unknown": 1.0}, []),
    ],
)
def test_a_proved_change_is_a_value_of_a_parameter(
    kind: str, values: list[float], parameters: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    assert corrections(ReplayRecord(1.0, "", cures={kind: values}), parameters) == expected


@pytest.mark.thorough
def test_changes_are_tried_from_before_the_symptom(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", fast(), 1)
    (made,) = list_snapshots(LocalStorage(tmp_path / "run"), [])

    def taken(step: int, reason: Reason = "periodic", **changes: Any) -> SnapshotRecord:
        return replace(made, step=step, reason=reason, **changes)

    several = [taken(0), taken(100), taken(150, "nonfinite"), taken(200)]
    assert snapshot_before(several, 150) == several[1]
    assert snapshot_before(several[2:], 150) == several[2]
    assert snapshot_before([taken(5, rank=1), taken(6, framework="keras")], 10) is None


def test_the_factory_and_the_time_are_settings(tmp_path: Path) -> None:
    table = '[remedy]\nfactory = "net:again"\nseconds = 20.0'
    assert experiment(tmp_path, table) == RemedySettings(factory="net:again", seconds=20.0)
    for wrong in ('factory = "net.again"', "seconds = 0.0", "seconds = inf"):
        with pytest.raises(ConfigError, match=rf"remedy.*{wrong[:7]}"):
            experiment(tmp_path, f"[remedy]\n{wrong}")
