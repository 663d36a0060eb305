"""The services of deploy/compose.yaml as processes, with its commands, variables, health checks.

No container engine is needed: names of hosts become the loopback address, ports free ones, and
folders those of the test. The images themselves are not built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.paths import ROOT
from tests.waiting import until
from vinedresser.infra.services.servers.local_server import LocalServer, free_ports, stop_server

COMPOSE = ROOT / "deploy" / "compose.yaml"
SECRETS = {
    "POSTGRES_PASSWORD": "of-postgres",
    "S3_SECRET_KEY": "secret-of-s3-0123",
    "PREFECT_PASSWORD": "of-prefect",
    "MLFLOW_PASSWORD": "mlflow-password-1",
    "MLFLOW_SECRET_KEY": "0123456789",
}
# Ports of the services, and others that SeaweedFS and Prefect's worker would take.
PORTS = ("5432", "8333", "4200", "5000", "8080")
SEAWEED = ("master", "volume", "filer", "master.grpc", "volume.grpc", "filer.grpc", "s3.grpc")
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
# PostgreSQL refuses to run as root.
NOBODY: dict[str, Any] = (
    {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
)

pytestmark = pytest.mark.timeout(900)

TRAIN = """
import torch
from torch import nn
from vinedresser.capture import Hook

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = nn.MSELoss()
with Hook().watch(model, loss=loss_fn, optimizer=optimizer):
    for _ in range(30):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        loss_fn(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
"""
EXPERIMENT = """
[run]
name = "small"
store = "s3://experiments/runs"
command = ["python", "train.py"]

[variants.one]
parameters = {}
"""


def services() -> dict[str, Any]:
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return dict(document["services"])


@dataclass
class Machine:
    """The machine on which the services run as processes."""

    folder: Path
    ports: dict[str, str]
    stack: ExitStack
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return a value of the file as it is on this machine."""
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: SECRETS[match[1]], text)
        text = re.sub(r"\b(?:postgres|s3|prefect|mlflow)(?=:\d)|^0\.0\.0\.0$", "127.0.0.1", text)
        text = re.sub(r"(?<==)(?:0\.0\.0\.0|s3)$", "127.0.0.1", text)
        text = re.sub(r"(?<==)/data$", str(self.folder / "s3"), text)
        return re.sub(r"\b(?:5432|8333|4200|5000|8080)\b", lambda match: self.ports[match[0]], text)

    def environment(self, service: dict[str, Any]) -> dict[str, str]:
        """Return the variables of a container of the service, and those that this machine needs."""
        own = {name: self.here(value) for name, value in service.get("environment", {}).items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        dockerfile = (COMPOSE.parent / "Dockerfile").read_text(encoding="utf-8")
        (line,) = re.findall(r"^ENV (.*)$", dockerfile, re.MULTILINE)
        image = dict(setting.split("=") for setting in line.split())
        port = {"PREFECT_WORKER_WEBSERVER_PORT": self.ports["8080"]}
        return {"PATH": path, "HOME": str(home), **image, **port, **own}

    def start(self, name: str, command: list[str]) -> None:
        """Start a service and wait until its health check succeeds."""
        service = services()[name]
        environment = self.environment(service)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        log = self.stack.enter_context((folder / "log.txt").open("wb"))
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        self.stack.callback(stop_server, LocalServer(process, ""), grace=60.0)
        check = [self.here(word) for word in service["healthcheck"]["test"][1:]]

        def is_healthy() -> bool:
            assert process.poll() is None, (folder / "log.txt").read_text()[-2000:]
            return not subprocess.run(
                check, env=environment, capture_output=True, check=False
            ).returncode

        until(is_healthy, f"health of {name}: {check}", seconds=300)

    def command(self, name: str) -> list[str]:
        return [self.here(word) for word in services()[name]["command"]]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a machine on which all services run."""
    found = free_ports("127.0.0.1", [0] * (len(PORTS) + len(SEAWEED)), "the test")
    numbers = [str(number) for number in found]
    with ExitStack() as stack:
        machine = Machine(
            tmp_path_factory.mktemp("compose"), dict(zip(PORTS, numbers, strict=False)), stack
        )
        (machine.folder / "s3").mkdir()
        start_postgres(machine)
        options = zip(SEAWEED, numbers[len(PORTS) :], strict=True)
        others = [
            f"-{name.replace('.grpc', '')}.port{'.grpc' * ('.grpc' in name)}={number}"
            for name, number in options
        ]
        more = [*others, "-s3.port.iceberg=0", "-s3.port.lance=0"]
        machine.start("s3", ["weed", *machine.command("s3"), *more])
        subprocess.run(
            machine.command("buckets"),
            env=machine.environment(services()["buckets"]),
            check=True,
        )
        for name in ("prefect", "mlflow", "worker"):
            machine.start(name, machine.command(name))
        yield machine


def start_postgres(machine: Machine) -> None:
    """Do what the image does: make the database and run the scripts of its folder."""
    if not POSTGRES:
        pytest.skip("no PostgreSQL here")
    programs = POSTGRES[-1].parent
    environment = services()["postgres"]["environment"]
    user = environment["POSTGRES_USER"]
    # Where another user may look.
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    machine.stack.callback(shutil.rmtree, folder)
    password = folder / "password"
    password.write_text(SECRETS["POSTGRES_PASSWORD"], encoding="utf-8")
    if NOBODY:
        for path in (folder, password):
            os.chown(path, NOBODY["user"], NOBODY["group"])
    data = ("-D", folder / "data")
    asks = ("-A", "scram-sha-256", "--pwfile", password)
    subprocess.run(
        [programs / "initdb", *data, "-U", user, *asks],
        check=True,
        stdout=subprocess.DEVNULL,
        **NOBODY,
    )
    listens = ("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}")
    server = subprocess.Popen(
        [programs / "postgres", *data, "-p", machine.ports["5432"], *listens],
        stderr=subprocess.DEVNULL,
        **NOBODY,
    )
    machine.stack.callback(server.wait, 60)
    machine.stack.callback(server.kill)
    address = {
        "PGHOST": "127.0.0.1",
        "PGPORT": machine.ports["5432"],
        "PGUSER": user,
        "PGPASSWORD": SECRETS["POSTGRES_PASSWORD"],
        "PGDATABASE": "postgres",
    }
    ready = services()["postgres"]["healthcheck"]["test"][1:]
    ready[0] = str(programs / ready[0])
    until(
        lambda: not subprocess.run(ready, env=address, capture_output=True, check=False).returncode
    )
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    scripts = [
        f"CREATE DATABASE {environment['POSTGRES_DB']};",
        document["configs"]["databases"]["content"],
    ]
    for script in scripts:
        subprocess.run([programs / "psql", "-qc", script], env=address, check=True)


@pytest.mark.slow
def test_a_deployed_experiment_is_trained_and_recorded(machine: Machine) -> None:
    folder = machine.folder / "experiments"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    environment = machine.environment(services()["worker"])

    def told(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        log = machine.folder / "worker" / "log.txt"
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{log.read_text()[-4000:]}"
        return done.stdout

    told("vinedresser", "deploy", "experiment.toml")
    told("prefect", "deployment", "run", "train/small", "--watch")
    (result,) = map(
        json.loads, told("vinedresser", "status", "s3://experiments/runs", "--json").splitlines()
    )
    assert result["state"] == "finished"
    account = ("admin", SECRETS["MLFLOW_PASSWORD"])
    with httpx.Client(base_url=environment["MLFLOW_TRACKING_URI"], auth=account) as mlflow:
        searched = mlflow.post("/api/2.0/mlflow/experiments/search", json={"max_results": 9})
        (experiment,) = [
            one["experiment_id"]
            for one in searched.json()["experiments"]
            if one["name"] != "Default"
        ]
        found = mlflow.post("/api/2.0/mlflow/runs/search", json={"experiment_ids": [experiment]})
    (run,) = found.json()["runs"]
    assert run["info"]["status"] == "FINISHED"
    listed = told("mlflow", "artifacts", "list", "--run-id", run["info"]["run_id"])
    assert "report.html" in listed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("port", "path"), [("4200", "/api/flows/count"), ("5000", "/api/2.0/mlflow/experiments/search")]
)
def test_servers_ask_for_a_password(machine: Machine, port: str, path: str) -> None:
    url = f"http://127.0.0.1:{machine.ports[port]}{path}"
    assert httpx.post(url, json={}).status_code == 401
    assert httpx.post(url, json={}, auth=("vinedresser", "password")).status_code == 401


@pytest.mark.slow
def test_the_object_store_asks_for_a_key(machine: Machine) -> None:
    answer = httpx.get(f"http://127.0.0.1:{machine.ports['8333']}/experiments")
    assert answer.status_code == 403


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_our_containers_reap_processes_and_have_no_rights() -> None:
    ours = [service for service in services().values() if service["image"] == "vinedresser"]
    assert len(ours) == 4
    for service in ours:
        assert service["init"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.thorough
def test_the_schema_of_compose_accepts_it() -> None:
    check = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    subprocess.run([sys.executable, "-m", *check], check=True)
