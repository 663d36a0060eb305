"""`vinedresser show RUN` with the options that write pages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, SaveConfig
from vinedresser.cli import main
from vinedresser.infra.services.tracking.preparation import prepare_tracking
from vinedresser.infra.services.tracking.runs import create_run
from vinedresser.store.records import TrackingRecord, write_record
from vinedresser.store.step_record import Mode
from vinedresser.testing.runs import make_run, step_record

Said = Callable[..., tuple[object, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Return a function that runs a command, and returns its exit code and its output."""

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["vinedresser", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code, " ".join((output.out + output.err).split())

    return run


def test_attention(here: Path, said: Said) -> None:
    tensors = {"attention/a": np.full((2, 1, 3, 3), 1 / 3)}
    make_run(here / "run", [step_record(5, tensors=tensors)], name="../../elsewhere")
    code, output = said("show", "run", "--attention")
    assert code == 0, output
    assert output == "run-attention.html attention of ../../elsewhere, train step 5"

    (here / "words.txt").write_text("der\nHund\nbellt\n", encoding="utf-8")
    options = ("--tokens", "words.txt", "--example", "1", "--draw", "page.html")
    assert said("show", "run", "attention/a", "--attention", *options)[0] == 0
    page = (here / "page.html").read_text(encoding="utf-8")
    assert "Hund" in page
    assert "1 of 2" in page


def test_embeddings(here: Path, said: Said) -> None:
    generator = np.random.default_rng(0)
    modes: dict[int, Mode] = {0: "eval", 4: "train", 5: "eval"}
    records = [
        step_record(
            step,
            mode=mode,
            tensors={"inputs/batch": np.eye(8), "outputs/a": generator.random((8, 3))},
        )
        for step, mode in modes.items()
    ]
    make_run(here / "run", records)
    words = "8 examples of outputs/a at"
    assert said("show", "run", "--embeddings", "outputs/a") == (
        0,
        f"run-embeddings.html {words} eval steps 0, 5",
    )
    options = ("--mode", "train", "--draw", "a.png")
    code, output = said("show", "run", "--embeddings", "outputs/a", *options)
    assert (code, output) == (0, f"a.png {words} train steps 4")
    assert (here / "a.png").read_bytes().startswith(b"\x89PNG")
    code, output = said("show", "run", "--embeddings", "outputs/a", "--draw", "a.svg")
    assert (code, "use .html or .png" in output) == (2, True)


def test_mispredictions(here: Path, said: Said) -> None:
    tensors = {
        "labels/CrossEntropyLoss": np.array([0, 1, 1]),
        "predictions/CrossEntropyLoss": np.array([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]]),
        "inputs/batch": np.random.default_rng(0).random((3, 8, 8)),
    }
    make_run(here / "run", [step_record(5, mode="eval", tensors=tensors)])
    told = "1 wrong among 3 rows of the last evaluation, at step 5"
    assert said("show", "run", "--mispredictions") == (0, f"run-mispredictions.html {told}")
    options = ("--step", "5", "--draw", "wrong.png")
    assert said("show", "run", "--mispredictions", *options) == (0, f"wrong.png {told}")
    code, output = said("show", "run", "--mispredictions", "--step", "6")
    assert (code, "at step 6; set [capture.labels]" in output) == (2, True)


def test_saliency(here: Path, said: Said) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    names = ("weights", "biases", "model_inputs")
    collections = dict.fromkeys(names, SaveConfig(every=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(here / "run", collections=collections) as hook:
        hook.watch(model, optimizer=optimizer)
        model(torch.rand(4, 3)).sum().backward()
        optimizer.step()
    module = f"net_{os.getpid()}"
    source = "from torch import nn\ndef build():\n    return nn.Linear(3, 2)\n"
    (here / f"{module}.py").write_text(source, encoding="utf-8")
    options = ("--saliency", "--model", f"{module}:build")
    assert said("show", "run", *options) == (0, "run-saliency.html 4 examples at steps 0")
    code, output = said("show", "run", "--saliency")
    assert (code, "set [capture.loss_terms]" in output) == (2, True)


def test_captured_saliency(here: Path, said: Said) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    terms = {"loss_terms": SaveConfig(every=2, rows=3)}
    with Hook(here / "run", collections=terms) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            model(torch.rand(4, 1, 8, 8)).logsumexp(1).sum().backward()
            optimizer.step()
    told = "terms of the loss at steps 0, 2"
    assert said("show", "run", "--saliency") == (0, f"run-saliency.html {told}")
    assert said("show", "run", "--saliency", "--draw", "a.png") == (0, f"a.png {told}")
    assert (here / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_pages_in_mlflow(here: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{here}/mlflow.db"
    tensors = {
        "attention/a": np.full((1, 1, 2, 2), 0.5),
        "loss_terms/Net[total]": np.zeros(2),
        "loss_terms/Net[rows]": np.array([[0, 2], [1, 2]]),
    }
    run = make_run(here / "runs" / "one", [step_record(5, tensors=tensors)])
    options = ("show", "runs/one", "--attention", "--log")
    code, output = said(*options)
    assert (code, "MLflow does not track this run" in output) == (2, True)

    experiment = prepare_tracking(uri, "pages")
    id_ = create_run(uri, experiment, "one", {}, {})
    write_record(run.storage, TrackingRecord(uri, experiment, id_))
    code, output = said(*options)
    assert (code, "none of your flows has kept the runs" in output) == (2, True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    code, output = said(*options)
    assert (code, output.endswith(f"mlflow run {id_} artifact one-attention.html")) == (0, True)
    client = MlflowClient(uri)
    assert [artifact.path for artifact in client.list_artifacts(id_)] == ["one-attention.html"]
    assert client.get_run(id_).info.status == "RUNNING"
    code, output = said("explain", "runs/one", "--log")
    assert (code, output.endswith(f"mlflow run {id_} artifact one-explain.html")) == (0, True)
    assert "one-explain.html" in [artifact.path for artifact in client.list_artifacts(id_)]


def test_only_pages_are_logged(here: Path, said: Said) -> None:
    make_run(here / "run", [step_record(5, scalars={"losses/a": 1.0})])
    code, output = said("show", "run", "--log")
    assert (code, "--log: give --attention, --embeddings" in output) == (2, True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--draw", "a.svg"], "--draw a.svg: unknown format of attention; use .html"),
        (["--tokens", "none.txt"], "--tokens none.txt: cannot be read"),
        (["--step", "4"], "not captured in full at train step 4; nearest: 5"),
        (["--mode", "test"], "--mode test: no such mode"),
        (["--example", "2"], "example = 2: must be between 0 and 1"),
    ],
)
def test_attention_that_cannot_be_shown(
    here: Path, said: Said, options: list[str], problem: str
) -> None:
    tensors = {"attention/a": np.full((2, 1, 3, 3), 1 / 3)}
    make_run(here / "run", [step_record(5, tensors=tensors)])
    code, output = said("show", "run", "--attention", *options)
    assert code == 2
    assert problem in output
    assert sorted(path.name for path in here.iterdir()) == ["run"]


def test_explain_a_run(here: Path, said: Said) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    names = ("weights", "biases", "model_inputs", "loss_terms")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(here / "run", collections=dict.fromkeys(names, SaveConfig(every=1))) as hook:
        hook.watch(model, optimizer=optimizer)
        model(torch.rand(4, 3)).logsumexp(1).sum().backward()
        optimizer.step()
    module = f"explained_{os.getpid()}"
    source = "from torch import nn\ndef build():\n    return nn.Linear(3, 2)\n"
    (here / f"{module}.py").write_text(source, encoding="utf-8")
    told = "4 examples; those of train step 0"
    assert said("explain", "run") == (0, f"run-explain.html {told}")
    options = ("--model", f"{module}:build", "--draw", "page.html")
    assert said("explain", "run", *options) == (0, f"page.html {told}")
    assert (here / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run"], "set [capture.loss_terms] every = 100, rows = 6, or give --model"),
        (["run", "--window", "3"], "--window is for a monitor.toml, and this is a run"),
        (["run", "--draw", "a.png"], "--draw a.png: unknown format of explain; use .html"),
        (["none"], "none: not a run"),
        (["monitor.toml", "--log"], "monitor.toml: --model, --draw and --log are for runs"),
    ],
)
def test_what_cannot_be_explained(
    here: Path, said: Said, arguments: list[str], problem: str
) -> None:
    make_run(here / "run", [step_record(5, scalars={"losses/a": 1.0})])
    code, output = said("explain", *arguments)
    assert code == 2
    assert problem in output
    assert sorted(path.name for path in here.iterdir()) == ["run"]
