"""`VINEDRESSER_LOG_FORMAT=json`: every line of a command is a JSON object."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.flows.pruning.pruning_flows import prune, records
from tests.flows.pruning.pruning_flows import write as write_pruning
from tests.flows.test_notification_blocks import TRAINING
from tests.flows.test_sweep_flow import write
from vinedresser.cli.views.console import make_console, say
from vinedresser.plain_logs import json_line
from vinedresser.store.reading.reader import open_run

pytestmark = pytest.mark.thorough

FIELDS = {"time", "level", "message"}


def objects(text: str) -> list[dict[str, Any]]:
    """Return the lines of an output, each of which must be a log line."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.keys() >= FIELDS
        assert dt.datetime.fromisoformat(one["time"]).tzinfo is not None
        assert one["level"] in ("info", "warning", "error")
        assert one["message"].strip()
    return found


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_a_stop_is_an_object_with_run_rule_rank_and_step(
    tmp_path: Path, mlflow_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow_store(tmp_path / "runs")
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    path = tmp_path / "experiment.toml"
    command = f'[run]\nname = "broken"\ncommand = ["{sys.executable}", "train.py"]\n'
    path.write_text(command, encoding="utf-8")
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    done = vinedresser("train", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = objects(done.stdout) + objects(done.stderr)
    run = open_run(next((tmp_path / "runs").glob("broken*")))
    (stop,) = [one for one in lines if one.get("state") == "stopped"]
    finding = next(one for one in run.findings() if one.severity == "stop")
    assert stop["level"] == "warning"
    assert (stop["run"], stop["rule"], stop["rank"]) == (run.info.name, finding.rule, 0)
    assert (stop["step"], stop["seen"]) == (finding.step, finding.seen)
    started = [one for one in lines if one["message"] == f"{run.info.name} started"]
    assert [one["run"] for one in started] == [run.info.name]
    times = [one["time"] for one in objects(done.stdout)]
    assert times == sorted(times)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_trials_of_a_sweep_are_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "x = [0.5]\nkind = ['good', 'crash']", more="retries = 0")
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    done = vinedresser("sweep", "sweep.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = objects(done.stdout) + objects(done.stderr)
    ended = {one["run"]: (one["state"], one["level"]) for one in lines if "state" in one}
    assert ended == {"trial-0000": ("finished", "info"), "trial-0001": ("failed", "error")}
    (failed,) = [one for one in lines if one.get("state") == "failed"]
    assert "crashes" in failed["reason"]
    begun = {one["run"] for one in lines if " begins with " in one["message"]}
    assert begun <= {*ended}
    assert begun


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_rounds_of_a_pruning_are_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pruning(tmp_path, "rounds = 1")
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    code, output = prune(tmp_path)
    assert code == 0, output
    rounds = [one for one in objects(output) if "round" in one]
    stored = records(tmp_path / "runs" / "small")
    assert [(one["round"], one["run"], one["figure"], one["macs"]) for one in rounds] == [
        (one.number, one.run, one.figure, one.macs) for one in stored
    ]


@pytest.mark.parametrize(
    ("style", "level"), [("", "info"), ("yellow", "warning"), ("red", "error")]
)
def test_the_level_is_that_of_the_colour(
    style: str, level: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    console = make_console()
    say("a [b]\tc", console, style=style)
    console.print("d", style=style)
    assert [one["level"] for one in objects(capsys.readouterr().out)] == [level, level]


def test_a_reader_that_ends_early_is_no_error_of_the_command(tmp_path: Path) -> None:
    # It has ended before Python has begun.
    command = '"$0" -m vinedresser doctor | true'
    environment = {**os.environ, "VINEDRESSER_LOG_FORMAT": "json"}
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_an_error_is_an_object_and_an_unknown_format_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    done = vinedresser("train", "none\x1b[31m.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = objects(done.stderr)
    assert line["level"] == "error"
    assert "no such file" in line["message"]
    assert "\x1b" not in line["message"]
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "xml")
    command = [sys.executable, "-m", "vinedresser", "status"]
    other = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert other.returncode == 2
    assert other.stderr == "vinedresser: VINEDRESSER_LOG_FORMAT: must be text or json, not 'xml'\n"


def test_secrets_and_control_characters_of_a_line_are_plain() -> None:
    line = json_line(
        "a\x1b[31m\nb https://me:word@example.org", "error", {"run": "\x9bx", "rank": None}
    )
    found = json.loads(line)
    assert found.keys() == FIELDS | {"run"}
    assert "word" not in line
    assert not {"\x1b", "\x9b"} & set(found["message"] + found["run"])
    assert "\n" not in line
