"""A sweep sends one digest, and no message about each of its trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.test_sweep_flow import sweep, write
from tests.rules.actions.servers import web_server

MakeStore = Callable[[Path], Path]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.thorough
def test_a_sweep_with_broken_trials_sends_one_digest(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, 'x = [0.5, 0.9]\nkind = ["good", "nan"]')
    with web_server([]) as server:
        text = f"""
[actions]
on_stop = ["stop", "notify"]
[actions.notify]
webhook = "{server.url}"
"""
        path = tmp_path / "sweep.toml"
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
        code, output = sweep(tmp_path)
        assert code == 0, output
        assert server.asked == 1
        ((key, told),) = server.taken
        # Resumed without anything new, it says nothing again.
        code, output = sweep(tmp_path, "--resume")
        assert (code, server.asked) == (0, 1), output
    assert key == told["id"]
    assert told["kind"] == "digest"
    assert told["text"] == "search: 2 finished, 2 stopped; best trial-0002"
    assert told["sweep"]["best"][0]["parameters"] == {"x": 0.9, "kind": "good"}
    (cause,) = told["sweep"]["causes"]
    assert cause["trials"] == ["trial-0001", "trial-0003"]
    assert told["facts"]["Broken"].startswith("nonfinite: 2 trials, such as trial-0001: accuracy")


@pytest.mark.slow
def test_a_dead_receiver_is_reported_once_and_harms_no_trial(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, "x = [0.5, 0.9]")
    with web_server([500] * 100) as server:
        text = (
            '[actions]\non_stop = ["stop", "notify"]\n'
            f'[actions.notify]\nwebhook = "{server.url}"\npatience = 0.2\n'
        )
        path = tmp_path / "sweep.toml"
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
        code, output = sweep(tmp_path)
    assert "2 finished" in output
    assert output.count("action notify failed: 127.0.0.1") == 1
    assert "secret-path" not in output
    assert code == 1
