"""`vinedresser show RUN` with the options that write pages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vinedresser.cli import main
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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--draw", "a.svg"], "--draw a.svg: the attention is a page; use .html"),
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
    assert sorted(one.name for one in here.iterdir()) == ["run"]
