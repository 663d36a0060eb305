"""`VINEDRESSER_LOG_FORMAT=json`: every line of a command is a JSON object."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.flows.test_notification_blocks import TRAINING
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
