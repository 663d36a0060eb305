"""`vinedresser ask` keeps and draws answers of stored runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from vinedresser.cli.application import app
from vinedresser.queries.stored.streams import streams
from vinedresser.testing.runs import make_run, step_record


def run_cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    places = [tmp_path / name for name in ("today", "monday", "tuesday")]
    for number, place in enumerate(places):
        records = [step_record(step, scalars={"losses/a": step + number}) for step in range(12)]
        make_run(place, records)
    return places


def test_answers_are_kept_and_drawn_beside_those_of_other_runs(
    runs: list[Path], tmp_path: Path
) -> None:
    today, monday, tuesday = map(str, runs)
    page = tmp_path / "losses.html"
    done = run_cli(
        *("ask", today, "loss", "--every", "4 steps", "--save", "means", "--plot", str(page)),
        *("--beside", monday, "--beside", tuesday),
    )
    assert done.exit_code == 0, done.output
    assert [one.value for one in streams(today)["means"]] == [1.5, 5.5, 9.5]
    drawn = page.read_text("utf-8")
    assert all(f"<title>{name}: " in drawn for name in ("today", "monday", "tuesday"))
    assert not (runs[1] / "streams").exists()


def test_a_limit_ends_the_stream_too(runs: list[Path]) -> None:
    done = run_cli("ask", str(runs[0]), "loss", "--limit", "2", "--save", "first")
    assert done.exit_code == 0, done.output
    assert [one.value for one in streams(runs[0])["first"]] == [0, 1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--beside", "x"], "--beside: give --plot FILE"),
        (["--plot", "x.svg", "--beside", "x", "--beside", "x"], "a run is given twice"),
        (["--save", "../x"], "is not a name for a stream"),
        (["--plot", "x.pdf"], "unknown format of charts; use .svg or .html"),
        (["--plot", "missing/x.svg"], "cannot be written: No such file or directory"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    runs: list[Path], options: list[str], says: str
) -> None:
    done = run_cli("ask", str(runs[0]), "loss", *options)
    assert done.exit_code != 0
    assert says in done.output + str(done.exception)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["--stored", "--json"])
def test_a_full_disk_behind_the_output_is_one_line(runs: list[Path], form: str) -> None:
    command = [sys.executable, "-m", "vinedresser", "ask", str(runs[0]), "loss", form]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    assert done.returncode == 2
    assert done.stderr == "vinedresser: the output: cannot be written: No space left on device\n"


def test_without_a_query_the_names_are_listed(tmp_path: Path) -> None:
    record = step_record(
        0,
        tensors={"weights/a": np.ones((2, 3))},
        scalars={"losses/a": 1.0, "metrics/epoch": 0.0, "metrics/\x1b[31m": 2.0},
        reductions={"gradients/a": {"l2": 1.0, "mean": 0.0}},
    )
    make_run(tmp_path / "run", [record])
    done = run_cli("ask", str(tmp_path / "run"))
    assert done.exit_code == 0, done.output
    lines = dict(line.split(maxsplit=1) for line in done.output.splitlines())
    assert lines["every:"] == "step, seconds, epoch, evaluation, flush"
    assert lines["losses/a"] == "number"
    assert lines["weights/a"].startswith("tensor")
    assert lines["gradients/a"] == "l2, mean"
    assert lines["epoch"] == "number of the epoch, from 0"
    assert "\x1b" not in done.output
    found = json.loads(run_cli("ask", str(tmp_path / "run"), "--json").output)
    assert found["names"]["gradients/a"] == "l2, mean"
    assert not found["live"]
