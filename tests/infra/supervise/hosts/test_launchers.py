"""Launchers start, log, explain and end the ranks of a run alike."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import until
from vinedresser.infra.supervise.hosts.kubernetes_launcher import job_manifest
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.processes import marked_processes
from vinedresser.store.records import LaunchRecord
from vinedresser.testing.launchers import LauncherConformance, Started

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {namespace: trainings}
spec:
  template:
    spec:
      containers:
        - name: training
          image: training:1
          env:
            - name: DATA_KEY
              valueFrom: {secretKeyRef: {name: data, key: key}}
          volumeMounts: [{name: runs, mountPath: /runs}]
      volumes: [{name: runs, persistentVolumeClaim: {claimName: runs}}]
"""
KUBERNETES = {"name": "kubernetes", "manifest": "job.yaml"}
BIN = Path(__file__).with_name("bin")


@pytest.mark.thorough
class TestSlurm(LauncherConformance):
    """A scheduler that runs the generated script for real; its nodes are processes."""

    @pytest.fixture
    def launch(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """See the base class."""
        monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
        return {"launcher": "slurm", "hosts": 2}

    def test_a_job_that_waits_in_the_queue_is_cancelled_by_a_stop(
        self, started: Callable[..., Started], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = tmp_path / "queue"
        queue.touch()
        monkeypatch.setenv("FAKE_QUEUE", str(queue))
        run = started("pathlib.Path('began').touch()")
        until((tmp_path / "queue.waits").exists)
        request_stop(run.directory, reason="not today")
        record = run.end()
        assert (record.cause, record.reason) == ("stopped", "not today")
        assert (tmp_path / "queue.cancelled").exists()
        assert not (tmp_path / "began").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
class TestMpi(LauncherConformance):
    """Open MPI, with a process for each rank."""

    @pytest.fixture
    def launch(self) -> dict[str, Any]:
        """See the base class."""
        return {"launcher": "mpi"}


@pytest.mark.slow
class TestTorchrun(LauncherConformance):
    """torchrun on two addresses of this machine."""

    @pytest.fixture
    def launch(self) -> dict[str, Any]:
        """See the base class."""
        return {"launcher": "torchrun", "hosts": ["127.0.0.1", "127.0.0.2"]}

    def test_one_that_is_killed_before_the_ranks_begin_is_said_to_be(
        self, started: Callable[..., Started]
    ) -> None:
        run = started("")

        def torchruns() -> list[int]:
            found = [*marked_processes(run.marker)]
            commands = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in found}
            return [one for one in found if b"distributed.run" in commands[one]]

        until(torchruns)
        os.kill(torchruns()[0], signal.SIGKILL)
        record = run.end()
        assert (record.cause, record.code, record.signal) == ("killed", None, "SIGKILL")
        assert record.reason == (
            "torchrun could not start the ranks: ended by SIGKILL: killed by a user, or by the "
            "kernel because memory ran out"
        )


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    """The address of a cluster of two nodes."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.mark.slow
# Of Ray's own processes.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
class TestRay(LauncherConformance):
    """Ray with two nodes, which are processes of this machine."""

    @pytest.fixture
    def launch(self, ray_address: str) -> dict[str, Any]:
        """See the base class."""
        return {"launcher": {"name": "ray", "address": ray_address}, "hosts": 2}


@pytest.mark.slow
class TestKubernetes(LauncherConformance):
    """A `kubectl` that checks the manifest and runs its pods as processes of this machine."""

    @pytest.fixture
    def launch(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
        """See the base class."""
        monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
        monkeypatch.setenv("FAKE_CLUSTER", str(tmp_path / "cluster"))
        manifest = tmp_path / "job.yaml"
        manifest.write_text(JOB, encoding="utf-8")
        return {"launcher": {"name": "kubernetes", "manifest": str(manifest)}, "hosts": 2}

    def test_the_manifest_is_valid(self, tmp_path: Path) -> None:
        validation = pytest.importorskip("kubernetes_validate")
        launch = LaunchRecord(["python"], "/", ranks=4, hosts=2, launcher=KUBERNETES)
        job = job_manifest(
            yaml.safe_load(JOB), launch, tmp_path / "A_run", "0123456789", "job.yaml"
        )
        validation.validate(job, "1.30", strict=True)
        assert job["spec"]["template"]["spec"]["volumes"] == [
            {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}
        ]
