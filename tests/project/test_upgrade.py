"""A store in which an earlier version trains is taken over by this one.

The earlier version is a wheel of the code of a day, built from the history of the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from tests.waiting import until
from vinedresser import open_run, open_store

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

DAY = "2026-11-27T12:00"
TRAIN = """
import sys, time
from vinedresser.capture import Hook
from vinedresser.version import __file__ as version

print("version in", version, flush=True)
with Hook() as hook:
    for step in range(int(sys.argv[1])):
        hook.step(loss=1 / (1 + step))
        time.sleep(0.02)
"""


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed wheel of the earlier version."""
    folder = tmp_path_factory.mktemp("earlier")
    git = ("git", "-C", str(ROOT))
    found = subprocess.run(
        [*git, "rev-list", "-1", f"--before={DAY}", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not (commit := found.stdout.strip()):
        pytest.skip(f"the history has no version of {DAY}: NO UPGRADE WAS TRIED")
    run(*git, "archive", "--output", str(folder / "code.tar"), commit)
    (folder / "code").mkdir()
    run("tar", "-xf", str(folder / "code.tar"), "-C", str(folder / "code"))
    pip = (sys.executable, "-m", "pip")
    alone = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "wheel", *alone, "--wheel-dir", str(folder), str(folder / "code"))
    [wheel] = folder.glob("*.whl")
    run(*pip, "install", *alone, "--target", str(folder / "site"), str(wheel))
    return folder / "site"


def test_a_training_of_the_earlier_version_is_stopped_by_this_one(
    tmp_path: Path, earlier: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")

    def train(name: str, steps: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "run", "--name", name, "train.py", str(steps)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(earlier)},
            stdout=subprocess.DEVNULL,
        )

    assert train("ended", 20).wait() == 0
    running = train("running", 100_000)
    place = tmp_path / "runs/running"
    try:
        until(lambda: [*place.glob("index/0/*.json")] or running.poll() is not None, "the training")
        assert open_run(place).status.state == "running"
        assert f"version in {earlier}" in (place / "log.txt").read_text(encoding="utf-8")
        assert vinedresser("doctor", "runs", cwd=tmp_path).stdout.count("store: runs") == 1
        vinedresser("stop", "runs/running", cwd=tmp_path, code=0)
        assert running.wait() == 130
    finally:
        # With its flow, the training ends.
        running.kill()
        running.wait()
    vinedresser("run", "--name", "new", "train.py", "20", cwd=tmp_path, code=0)
    states = {name: run.status.state for name, run in open_store(tmp_path / "runs").items()}
    assert states == {"ended": "finished", "running": "stopped", "new": "finished"}
    said = vinedresser("compare", "runs/ended", "runs/new", cwd=tmp_path, code=0).stdout
    assert "train/loss" in said
    said = vinedresser("gc", "--keep", "1", "--delete", cwd=tmp_path, code=0).stdout
    assert "2 runs, " in said
    assert [*open_store(tmp_path / "runs")] == ["new"]
