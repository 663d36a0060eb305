"""`vinedresser compare`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vinedresser.cli import main
from vinedresser.infra.services.tracking.preparation import prepare_tracking
from vinedresser.infra.services.tracking.runs import create_run
from vinedresser.objects import LocalStorage
from vinedresser.store.records import TrackingRecord, write_record
from vinedresser.testing.runs import make_run, step_record


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with two runs, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, accuracy in (("bad", 0.2), ("good", 0.9)):
        record = step_record(7, mode="eval", scalars={"metrics/accuracy": accuracy})
        make_run(tmp_path / "runs" / name, [record], parameters={"lr": accuracy})
    return tmp_path / "runs"


def said(*arguments: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command and return its output."""
    sys.argv = ["vinedresser", *arguments]
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == code, output
    return " ".join((output.out + output.err).split())


def test_it_prints_the_winner_and_writes_the_page(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    output = said("compare", "runs", code=0, capsys=capsys)
    assert (
        "lr good 0.9 finished; cannot tell: no rule has judged it 0 0.9 bad 0.2 finished" in output
    )
    assert "Best: good, eval/accuracy 0.9, ahead of bad, 0.2; one run each" in output
    assert "good and bad differ first: step 7 (eval): metrics/accuracy 0.9 and 0.2" in output
    assert output.endswith("compare.html")
    assert "Best: good" in Path("compare.html").read_text(encoding="utf-8")
    two = said("compare", "runs/bad", "runs/good", "--output", "x/y.html", code=0, capsys=capsys)
    assert two.endswith("x/y.html")
    assert Path("x/y.html").exists()
    said("compare", "runs", "--direction", "up", code=2, capsys=capsys)
    assert "needs two runs" in said("compare", "runs/bad", code=2, capsys=capsys)


def test_a_parameter_may_have_the_name_of_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    for name, accuracy in (("bad", 0.2), ("good", 0.9)):
        record = step_record(7, mode="eval", scalars={"metrics/accuracy": accuracy})
        parameters = {"steps": round(accuracy * 1000)}
        make_run(tmp_path / "runs" / name, [record], parameters=parameters)
    monkeypatch.chdir(tmp_path)
    output = said("compare", "runs", code=0, capsys=capsys)
    assert "verdict steps steps good" in output
    assert "no rule has judged it 0 900 bad" in output


@pytest.mark.thorough
def test_the_page_goes_to_the_parent_in_mlflow(
    store: Path,
    mlflow_store: Callable[[Path], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    refused = said("compare", "runs", "--log", code=2, capsys=capsys)
    assert "the runs have no parent in MLflow" in refused
    uri = f"sqlite:///{mlflow_store(store.parent) / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    experiment = prepare_tracking(uri, "digits")
    parent = create_run(uri, experiment, "sweep", {}, {})
    for name in ("bad", "good"):
        child = create_run(uri, experiment, name, {}, {})
        write_record(
            LocalStorage(store / name), TrackingRecord(uri, experiment, child, parent=parent)
        )
    output = said("compare", "runs", "--log", code=0, capsys=capsys)
    assert output.endswith(f"mlflow run {parent} artifact compare.html")
    assert list((store.parent / "mlartifacts").rglob(f"{parent}/artifacts/compare.html"))
