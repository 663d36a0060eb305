"""deploy/kubernetes.yaml is valid, and Prefect's worker makes a job of its template."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import kubernetes_validate
import pytest
import yaml

from tests.paths import ROOT

VERSION = "1.30"


def manifests() -> list[dict[str, Any]]:
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def test_the_schema_of_kubernetes_accepts_it() -> None:
    for manifest in manifests():
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_what_is_named_is_there() -> None:
    """Services choose pods, pods use claims, and no password is in the file."""
    found = manifests()
    services = [one for one in found if one["kind"] == "Service"]
    pods = [one["spec"]["template"] for one in found if one["kind"] == "Deployment"]
    labels = [pod["metadata"]["labels"] for pod in pods]
    assert all(service["spec"]["selector"] in labels for service in services)
    claims = {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}
    volumes = [volume for pod in pods for volume in pod["spec"].get("volumes", [])]
    job = next(one for one in found if one["kind"] == "ConfigMap")["data"]["job.json"]
    spec = json.loads(job)["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in [*volumes, *spec["volumes"]]
        if "persistentVolumeClaim" in volume
    }
    assert used == claims
    assert not [one for one in found if one["kind"] == "Secret"]
    for one in (*(pod["spec"] for pod in pods), spec):
        assert_restricted(one)


def assert_restricted(pod: dict[str, Any]) -> None:
    """Check what the Pod Security Standard "restricted" of Kubernetes 1.30 asks of a pod."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    allowed = {"name", "configMap", "emptyDir", "persistentVolumeClaim"}
    assert all(volume.keys() <= allowed for volume in pod.get("volumes", []))
    for container in pod["containers"]:
        own = container["securityContext"]
        assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.thorough
def test_the_worker_makes_a_job_of_the_template() -> None:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    config = next(one for one in manifests() if one["kind"] == "ConfigMap")
    template = json.loads(config["data"]["job.json"])
    values = {"gpus": 2, "image": "registry.example/digits:3", "memory": "32Gi"}
    # It is asked for blocks only, of which the template has none.
    client = PrefectClient("http://127.0.0.1:1/api")
    made = asyncio.run(
        KubernetesWorkerJobConfiguration.from_template_and_values(template, values, client=client)
    )
    made.prepare_for_flow_run(FlowRun(name="sweep", flow_id=uuid4()))
    kubernetes_validate.validate(made.job_manifest, VERSION)
    pod = made.job_manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/digits:3"
    assert container["args"] == ["prefect", "flow-run", "execute"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2, "memory": "32Gi"}
    assert made.namespace == "vinedresser"
    assert "PREFECT__FLOW_RUN_ID" in {variable["name"] for variable in container["env"]}
