"""Messages with the user's own text, by a notification block of a real Prefect server."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.rules.actions.servers import WebServer, web_server
from tests.warm_python import COMMANDS
from vinedresser.objects import LocalStorage
from vinedresser.rules.actions.base import ActionContext
from vinedresser.rules.actions.block import BlockAction
from vinedresser.rules.actions.settings import NotifySettings
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("shared_prefect"),
]

TRAINING = """
import time
from vinedresser.capture import Hook

with Hook() as hook:
    for step in range(100_000):
        hook.step(loss=float("nan") if step > 20 else 1.0)
        time.sleep(0.005)
"""
MAKE = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.system import Secret

CustomWebhookNotificationBlock(
    name="team", url=sys.argv[1], json_data={"subject": "{{subject}}", "body": "{{body}}"}
).save("team", overwrite=True)
Secret(value="x").save("word", overwrite=True)
"""


@pytest.fixture(scope="module")
def server_of_blocks(shared_prefect: None) -> Iterator[WebServer]:
    """Save a webhook and another block; return the server that the webhook names."""
    with web_server([]) as server:
        done = COMMANDS.run(["-c", MAKE, server.url], Path(), os.environ)
        assert done.returncode == 0, done.stderr
        yield server


@pytest.fixture
def receiver(server_of_blocks: WebServer) -> WebServer:
    """Return the server of the webhook, which nobody has asked."""
    server_of_blocks.codes.clear()
    server_of_blocks.taken.clear()
    server_of_blocks.asked = 0
    return server_of_blocks


def write(folder: Path, block: str, template: str = "") -> Path:
    """Write an experiment whose training is stopped, and its script."""
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    path = folder / "experiment.toml"
    path.write_text(
        f"""
[run]
name = "broken"
command = ["{sys.executable}", "train.py"]
parameters = {{ lr = 0.5 }}
[actions]
on_stop = ["stop", "notify"]
template = "{template}"
[actions.notify]
block = "{block}"
patience = 1
""",
        encoding="utf-8",
    )
    return path


def test_a_stop_is_told_in_the_user_s_words_by_a_block(
    tmp_path: Path, mlflow_store: Callable[[Path], Path], receiver: WebServer
) -> None:
    mlflow_store(tmp_path / "runs")
    template = "$run ($parameters) $kind: ${rule} at $step costs $$5 ${severity}"
    path = write(tmp_path, "custom-webhook/team", template)
    done = vinedresser("train", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ((_, told),) = receiver.taken
    assert receiver.url not in done.stdout + done.stderr
    run = open_run(next((tmp_path / "runs").glob("broken*")))
    finding = next(one for one in run.findings() if one.severity == "stop")
    expected = f"{run.info.name} (lr=0.5) problem: {finding.rule} at {finding.step} costs $5 stop"
    assert told["subject"] == expected
    assert finding.seen in told["body"]


@pytest.mark.usefixtures("receiver")
def test_a_missing_block_is_an_error_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {
        "slack-webhook/none": "no such block on your Prefect server",
        "secret/word": "is no notification block",
    }
    for block, problem in refused.items():
        done = vinedresser("train", str(write(tmp_path, block)), cwd=tmp_path)
        assert done.returncode == 2
        assert f"experiment.toml: actions.notify.block: {block}: {problem}" in done.stderr
    monkeypatch.delenv("PREFECT_API_URL")
    done = vinedresser("train", str(write(tmp_path, "custom-webhook/team")), cwd=tmp_path)
    assert (done.returncode, "set PREFECT_API_URL" in done.stderr) == (2, True)
    assert not (tmp_path / "runs").exists()


def test_a_receiver_that_fails_is_told_without_its_address(
    tmp_path: Path, receiver: WebServer
) -> None:
    receiver.codes += [500] * 9
    finding = Finding(
        *("nonfinite", "stop", 7, 6, "train", 0, "losses/x", "value", float("nan"), 0.0, 1.0),
        *("the loss is NaN", "overflow", "divide by 10", {}),
    )
    document = {"text": "a\nb", "facts": {"Run": "x"}}
    context = ActionContext("1" * 32, finding, LocalStorage(tmp_path), document, threading.Event())
    action = BlockAction(NotifySettings(block="custom-webhook/team", patience=0.1))
    result = action.take(context)
    assert receiver.asked
    assert result.word == "failed"
    assert "secret-path" not in result.detail
    assert "HTTPStatusError" in result.detail
