"""What every test gets: a home of its own, nothing from outside, fixed seeds."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.testing.s3_server import BUCKET, TestServer, seaweed

_HOME = pytest.StashKey[Path]()

# Settings of whoever runs the tests; they would reach the programs that we start.
_FOREIGN = ("VINEDRESSER_", "AWS_", "PREFECT_", "MLFLOW_", "XDG_", "FORCE_COLOR", "GITHUB_ACTIONS")
_FOREIGN_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before anything is imported that reads it.

    Each worker of xdist gets a home of its own: several Prefect servers that start on one fail.
    Temporary files lie in the home, and so do the homes of the workers: all goes with it.
    """
    # What pytest keeps for a look afterwards, and what is slow to make anew, stays where it was.
    shared = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{shared}/vinedresser-tests-inductor")
    # Short, since sockets lie below it, whose paths have 108 bytes at the most.
    worker = hasattr(config, "workerinput")
    home = Path(tempfile.mkdtemp(prefix="w-" if worker else "vinedresser-tests-"))
    config.stash[_HOME] = home
    temporary = home / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in _FOREIGN_RANKS:
            del os.environ[name]
    os.environ |= {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        # More threads than cores make small trainings slower, and their sums differ.
        "OMP_NUM_THREADS": "1",
        # Help texts and tables must not depend on who looks at them.
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home, with all that is in it."""
    tempfile.tempdir = None
    shutil.rmtree(config.stash[_HOME], ignore_errors=True)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed every generator that is loaded; a test that wants another seed sets its own."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Forget what torch has compiled, before the test and after it."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


_READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
found = {}
for run in client.search_runs([e.experiment_id for e in client.search_experiments()]):
    files = sorted(entry.path for entry in client.list_artifacts(run.info.run_id))
    history = client.get_metric_history(run.info.run_id, "train/loss")
    found[run.info.run_name] = {
        "id": run.info.run_id, "status": run.info.status,
        "tags": run.data.tags, "params": run.data.params,
        "metrics": run.data.metrics, "files": files, "steps": sorted(m.step for m in history),
    }
print(json.dumps(found))
"""


@pytest.fixture
def mlflow_runs() -> Callable[[Path], dict[str, Any]]:
    """Return a function that reads a store's MLflow database in a process of its own.

    By run name it gives id, status, tags, params, metrics, files, and the steps of train/loss.
    """

    def read(store: Path) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", _READ_MLFLOW, f"sqlite:///{store / 'mlflow.db'}"],
            check=True,
            capture_output=True,
            text=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return read


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Return a real S3 server, one for each worker of xdist, with a bucket."""
    with seaweed(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a fresh place on it, which this process and its children can reach.

    What is to be uploaded waits in a place of its own, too.
    """
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path / "spool"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
