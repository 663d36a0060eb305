"""Isolation and fixtures of all tests: an own home, a clean environment, fixed seeds."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import random
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.property_tests import register_profiles
from vinedresser.infra.catalog.state_folder import private_folder
from vinedresser.infra.services.servers import PrivatePrefect, start_private_prefect
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.infra.services.tracking.client import connected
from vinedresser.testing.s3_server import BUCKET, TestServer, seaweed

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

register_profiles()

if importlib.util.find_spec("triton"):
    # It comes with the CUDA build of torch; loaded after TensorFlow, it ends the process (SIGSEGV).
    importlib.import_module("triton")

# A forked child that collects functions of TensorFlow ends with a segmentation fault.
os.register_at_fork(after_in_child=gc.freeze)

_HOME = pytest.StashKey[Path]()
# A folder of all workers.
_SHARED = pytest.StashKey[Path]()

# Settings of the calling shell, which would reach the programs that tests start. One of them has
# each of these programs compile all sources again.
_FOREIGN = (
    *("VINEDRESSER_", "AWS_", "PREFECT_", "MLFLOW_", "XDG_", "FORCE_COLOR", "GITHUB_ACTIONS"),
    "PYTHONDONTWRITEBYTECODE",
)
_FOREIGN_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
# The folder of the state in a home.
_STATE = ".local/state/vinedresser"
# Bytes; a whole run of the tests fills less than a tenth of it.
_ROOM = 4 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before anything that reads it is imported.

    Each xdist worker gets its own home, since Prefect servers that share one fail to start. The
    homes of the workers and all temporary files are inside the home of the main process.
    """
    worker = hasattr(config, "workerinput")
    if not worker:
        # The compiler's cache outlives the session: filling it takes minutes.
        cache = f"{tempfile.gettempdir()}/vinedresser-tests-inductor"
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
        # Also read by pytest.
        tempfile.tempdir = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _temporary_root())
    # A short name: paths of sockets have at most 108 bytes.
    home = Path(tempfile.mkdtemp(prefix="w-" if worker else "vinedresser-tests-"))
    config.stash[_HOME] = home
    temporary = home / "tmp"
    temporary.mkdir()
    config.stash[_SHARED] = home.parent if worker else temporary
    _share_tables(config.stash[_SHARED] / "mlflow-tables", home / _STATE / "mlflow")
    tempfile.tempdir = str(temporary)
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in _FOREIGN_RANKS:
            del os.environ[name]
    os.environ |= {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PREFECT_HOME": str(home / "prefect"),
        # As importing vinedresser has set it.
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        # More threads than cores make small trainings slower, and their sums differ.
        "OMP_NUM_THREADS": "1",
        # Help texts and tables must not depend on the terminal.
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }


def _share_tables(shared: Path, own: Path) -> None:
    """Have all workers use one empty database of MLflow, which the first of them makes."""
    shared.mkdir(exist_ok=True)
    own.parent.mkdir(mode=0o700, parents=True)
    own.symlink_to(shared)


def _temporary_root() -> str:
    """Return a directory in memory if there is room: databases wait for the disk at each commit."""
    memory = "/dev/shm"
    chosen = "TMPDIR" in os.environ or not os.access(memory, os.W_OK)
    if chosen or shutil.disk_usage(memory).free < _ROOM:
        return tempfile.gettempdir()
    return memory


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Load the tests and the frameworks without looking for garbage, and leave them out later.

    Looking through all that they have loaded takes most of a second, and there it never finds any.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home and its contents."""
    tempfile.tempdir = None
    shutil.rmtree(config.stash[_HOME], ignore_errors=True)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed every loaded generator, and let nothing have been compiled."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    if "torch._dynamo" in sys.modules:
        # They tell the hook that something was compiled, perhaps by another test.
        sys.modules["torch._dynamo"].utils.counters.clear()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Clear what torch has compiled, before and after the test."""
    import torch

    def reset() -> None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    reset()
    yield
    reset()


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with MLflow's tables, made once per run of the tests."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    path = shared / "mlflow_template" / "mlflow.db"
    # Of several workers, the first makes it and the others wait.
    prepare_tracking(f"sqlite:///{path}", "Default", timeout=120.0)
    return path


@pytest.fixture
def mlflow_store(mlflow_template: Path) -> Callable[[Path], Path]:
    """Return a function that makes a store with an empty MLflow database and returns the store."""

    def make(store: Path) -> Path:
        store.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(mlflow_template, store / "mlflow.db")
        return store

    return make


@pytest.fixture
def mlflow_runs() -> Callable[..., dict[str, Any]]:
    """Return a function that reads a store's MLflow database.

    It takes the store and, optionally, a search expression of MLflow's; it maps run names to id,
    status, tags, params, metrics, files, and the steps of train/loss.
    """

    def read(store: Path, where: str = "") -> dict[str, Any]:
        with connected(f"sqlite:///{store / 'mlflow.db'}") as client:
            experiments = [experiment.experiment_id for experiment in client.search_experiments()]
            return {
                str(run.info.run_name): _contents(client, run)
                for run in client.search_runs(experiments, where)
            }

    return read


def _contents(client: MlflowClient, run: Run) -> dict[str, Any]:
    one = run.info.run_id
    return {
        "id": one,
        "status": run.info.status,
        "tags": run.data.tags,
        "params": run.data.params,
        "metrics": run.data.metrics,
        "files": sorted(entry.path for entry in client.list_artifacts(one)),
        "steps": sorted(point.step for point in client.get_metric_history(one, "train/loss")),
    }


@pytest.fixture(scope="session")
def prefect_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[PrivatePrefect]:
    """Return a Prefect server, one per xdist worker; the first one makes the tables for all."""
    # A private server looks after the folders of others in the same state folder.
    state = tmp_path_factory.mktemp("prefect")
    own = private_folder(private_folder(state / "vinedresser") / "prefect")
    shared = pytestconfig.stash[_SHARED] / "prefect-tables"
    with pytest.MonkeyPatch.context() as patch, shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shared.exists():
            shutil.copytree(shared, own, dirs_exist_ok=True)
        patch.setenv("XDG_STATE_HOME", str(state))
        server = start_private_prefect()
        server.wait()
        if not shared.exists():
            shared.mkdir()
            for table in own.glob("tables-*.db"):
                shutil.copy(table, shared)
    home = private_folder(pytestconfig.stash[_HOME] / _STATE / "prefect")
    shutil.copytree(shared, home, dirs_exist_ok=True)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared_prefect(prefect_server: PrivatePrefect) -> Iterator[None]:
    """Have the flows of a module use one server: each would start a private one, for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in prefect_server.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Return an S3 server with a bucket, one per xdist worker."""
    with seaweed(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty prefix on the server, for this process and its children.

    The spool is empty, too.
    """
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path / "spool"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
