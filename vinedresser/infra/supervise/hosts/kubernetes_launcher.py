"""Create an indexed Job of Kubernetes with a pod for each host of a run, and wait for its end.

python -m vinedresser.infra.supervise.hosts.kubernetes_launcher RUN
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError, NotARun, VinedresserError
from vinedresser.infra.supervise.hosts.commands import host_command
from vinedresser.infra.supervise.hosts.placing import ADDRESS_VARIABLE
from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    LaunchRecord,
    RunRecord,
    read_record,
)

__all__ = ["job_manifest", "main"]

# Seconds between two looks at the job.
_LOOK = 2.0
# Of a name, which becomes part of the names of pods.
_LONGEST = 40


def main(directory: Path) -> int:
    """Create the job, wait for its end, and delete it; also on SIGTERM. Return 0 if it completed.

    Raises:
        ConfigError: the manifest is not that of a Job.
        LaunchError: kubectl refused.
    """
    import yaml

    storage = LocalStorage(directory)
    launch, run = read_record(storage, LaunchRecord), read_record(storage, RunRecord)
    if launch is None or run is None:
        raise NotARun(f"{directory}: not a prepared run")
    path = launch.system.manifest
    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    job = job_manifest(given, launch, directory, run.id, path)
    name = job["metadata"]["name"]
    space = job["metadata"].get("namespace")
    where = ["--namespace", space] if space else []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _kubectl([*where, "create", "-f", "-"], json.dumps(job))
        while True:
            status = json.loads(_kubectl([*where, "get", "job", name, "-o", "json"]))["status"]
            for one in status.get("conditions", ()):
                if one["type"] in ("Complete", "Failed") and one["status"] == "True":
                    if one["type"] == "Complete":
                        return 0
                    raise LaunchError(f"the job {name} has failed: {one.get('message', '')}")
            time.sleep(_LOOK)
    finally:
        _kubectl([*where, "delete", "job", name, "--ignore-not-found", "--wait=false"])


def job_manifest(
    given: Any, launch: LaunchRecord, directory: Path, run_id: str, path: str
) -> dict[str, Any]:
    """Return the manifest of the job of a run.

    The command and the number of pods are ours, as are the variables by which a pod finds its run
    and its address; all others, such as image, volumes and resources, are those of the given one.
    The index of a pod is ``JOB_COMPLETION_INDEX``
    (https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode).

    Args:
        given: manifest of a Job with one container.
        launch: the ranks and their hosts.
        directory: the run directory, mounted in the pods under this path.
        path: file of the manifest, for messages.

    Raises:
        ConfigError: it is not a Job, or has not one container.
    """
    if not isinstance(given, Mapping) or given.get("kind") != "Job":
        raise ConfigError(f"{path}: kind: must be Job")
    spec = dict(_table(given, "spec", path))
    template = dict(_table(spec, "template", path))
    pod = dict(_table(template, "spec", path))
    containers = pod.get("containers")
    if not isinstance(containers, list) or len(containers) != 1:
        raise ConfigError(f"{path}: spec.template.spec.containers: must be one container")
    container = dict(containers[0])
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    own: list[dict[str, Any]] = [
        {"name": RUN_VARIABLE, "value": str(directory)},
        {"name": RUN_ID_VARIABLE, "value": run_id},
        {"name": ADDRESS_VARIABLE, "valueFrom": address},
    ]
    container |= {
        "command": host_command(directory),
        "args": [],
        "workingDir": launch.cwd,
        "env": [*container.get("env", ()), *own],
    }
    # Pods of a run are never replaced: another run begins from the last checkpoint.
    pod |= {"containers": [container], "restartPolicy": "Never"}
    spec |= {
        "template": template | {"spec": pod},
        "completionMode": "Indexed",
        "completions": launch.host_count,
        "parallelism": launch.host_count,
        "backoffLimit": 0,
    }
    stem = re.sub(r"[^a-z0-9]+", "-", directory.name.lower()).strip("-")[:_LONGEST]
    metadata = dict(given.get("metadata") or {}) | {"name": f"{stem or 'run'}-{run_id[:8].lower()}"}
    return {**given, "metadata": metadata, "spec": spec}


def _table(table: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    found = table.get(key)
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: {key}: is missing in the Job")
    return found


def _kubectl(arguments: list[str], text: str = "") -> str:
    """Run kubectl and return its output."""
    done = subprocess.run(
        ["kubectl", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LaunchError(f"kubectl {arguments[-1]}: {said[-1]}")
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except VinedresserError as error:
        sys.stderr.write(f"{visible(str(error))}\n")
        sys.exit(1)
