"""Start the hosts of a run as tasks of Ray, one on each of several nodes.

python -m vinedresser.infra.supervise.hosts.ray_launcher RUN
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.errors import LaunchError, NotARun, VinedresserError
from vinedresser.infra.supervise.hosts.commands import host_command, passed_names
from vinedresser.infra.supervise.hosts.placing import ADDRESS_VARIABLE, BUNDLE_VARIABLE
from vinedresser.infra.supervise.supervisor.prctl import end_with_parent
from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.store.records import (
    RUN_VARIABLE,
    HostReport,
    LaunchRecord,
    host_key,
    read_record,
    write_record,
)

# Seconds to wait for the resources of all hosts; Ray does not say that it will never have them.
_PATIENCE = 600.0


def main(directory: Path) -> int:
    """Reserve a node for each host, start its process there, and wait for the end of all."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    launch = read_record(LocalStorage(directory), LaunchRecord)
    if launch is None:
        raise NotARun(f"{directory}: has no {LaunchRecord.KEY}")
    count, each = launch.host_count, launch.ranks // launch.host_count
    address = launch.system.address or os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = {} if address else {"num_cpus": each, "include_dashboard": False}
    # SIGTERM disconnects, which ends the tasks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        ray.init(address=address, log_to_driver=False, **own)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise LaunchError(f"no Ray at {address or 'this machine'}: {error}") from error
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    nodes = sum(1 for node in known if node["Alive"])
    if nodes < count:
        raise LaunchError(f"Ray has {nodes} of the {count} nodes that the run needs")
    resources = {"CPU": float(each), "GPU": float(each * launch.gpus_per_rank)}
    wanted = {name: number for name, number in resources.items() if number}
    group = placement_group([wanted] * count, strategy="STRICT_SPREAD")
    if not group.wait(_PATIENCE):
        raise LaunchError(
            f"Ray has not had {each} CPUs and {resources['GPU']:.0f} GPUs on each of {count} nodes "
            f"within {_PATIENCE:.0f} s"
        )
    passed = {name: os.environ[name] for name in passed_names(launch)}
    start = ray.remote(_run_host)
    tasks = [
        start.options(
            num_cpus=each,
            num_gpus=each * launch.gpus_per_rank,
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, number),
        ).remote(host_command(directory), launch.cwd, passed, number)
        for number in range(count)
    ]
    try:
        while tasks:
            ready, tasks = ray.wait(tasks)
            for one in ready:
                ray.get(one)
    except ray.exceptions.RayError as error:
        raise LaunchError(f"a task of Ray has failed: {str(error).splitlines()[0]}") from error
    return 0


def _run_host(command: list[str], cwd: str, passed: dict[str, str], number: int) -> int:
    """Run the process of a host within a task; it ends with the task."""
    import ray

    address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    own = {ADDRESS_VARIABLE: address, BUNDLE_VARIABLE: str(number)}
    worker = os.getpid()
    code = subprocess.call(
        command,
        cwd=cwd,
        env={**os.environ, **passed, **own},
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: end_with_parent(worker, signal.SIGTERM),
    )
    if code:
        _note_end(LocalStorage(passed[RUN_VARIABLE]), number)
        raise ChildProcessError(f"the process of host {number} ended with {code}")
    return code


def _note_end(storage: LocalStorage, number: int) -> None:
    """Note that the process of a host has died, since Ray then kills those of the others."""
    report = read_record(storage, HostReport, key=host_key(number))
    if report is not None and not report.over:
        last = replace(report, sign=report.sign + 1, over=True)
        write_record(storage, last, key=host_key(number))


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except VinedresserError as error:
        sys.stderr.write(f"{visible(str(error))}\n")
        sys.exit(1)
