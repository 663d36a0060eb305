"""Channels on S3 are downloaded before anything else begins."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.waiting import until
from vinedresser.data.downloading import download
from vinedresser.objects import open_storage

RUN = """
[run]
name = "one"
command = ["python", "train.py"]
contract = "sagemaker"
[rules]
preset = "none"
"""
SWEEP = """
[sweep]
metric = "accuracy"
trials = 1
[space]
lr = { log = [1e-3, 1.0] }
"""
# What a trial reports to be one.
SCRIPT = """
from vinedresser.capture import Hook
with Hook() as hook:
    hook.step(loss=1.0)
    with hook.mode("eval"):
        hook.metric("accuracy", 1.0)
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("shared_prefect"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, text: str, channel: str) -> None:
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "file.toml").write_text(f'{RUN}{text}[data]\ntrain = "{channel}"\n', encoding="utf-8")


def test_a_sweep_without_its_channel_has_not_begun(s3: str, tmp_path: Path) -> None:
    write(tmp_path, SWEEP, f"{s3}/rows")
    done = vinedresser("sweep", "file.toml", cwd=tmp_path, code=2)
    said = f"vinedresser: {tmp_path}/file.toml: data.train: {s3}/rows: no such object"
    assert said in done.stderr.splitlines()
    open_storage(s3).put("rows/a.csv", [b"1"])
    # Neither --resume nor another name.
    vinedresser("sweep", "file.toml", cwd=tmp_path, code=0)


def test_ctrl_c_during_a_download_ends_a_training_before_it_begins(s3: str, tmp_path: Path) -> None:
    open_storage(s3).put("rows/a.csv", [b"1"])
    write(tmp_path, "", f"{s3}/rows")
    folder, log = download(f"{s3}/rows"), tmp_path / "log"
    with (folder.parent / "lock").open("a") as other, log.open("wb") as output:
        # Another process downloads.
        fcntl.flock(other, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "vinedresser", "train", "file.toml"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output)
        until(lambda: "waiting for another process" in log.read_text(), "the download", 120)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT, log.read_text()
    assert "another process still downloads it" in log.read_text()
    assert not [*(tmp_path / "runs").glob("one*")]
