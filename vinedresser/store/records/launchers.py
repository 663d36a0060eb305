"""What starts the ranks of a run, on one host or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from vinedresser.errors import did_you_mean

__all__ = ["SCHEDULERS", "LauncherSettings", "check_hosts", "launcher_settings"]

_NAMES = ("local", "torchrun", "mpi", "ray", "slurm", "kubernetes")
SCHEDULERS = ("ray", "slurm", "kubernetes")
"""Launchers that choose the hosts; the others get their names."""

# Processes that somebody may ask for by mistake.
_MOST_RANKS = 1024


@dataclass(frozen=True)
class LauncherSettings:
    """What starts the ranks of a run.

    Attributes:
        name: the launcher.
        options: additional arguments of ``torchrun``, ``mpirun`` or ``sbatch``.
        address: address of the Ray cluster; "": the one that is running, or one on this machine.
        manifest: file with a Kubernetes Job in YAML, for its image, volumes and resources.
    """

    name: str = "local"
    options: list[str] = field(default_factory=list)
    address: str = ""
    manifest: str = ""

    def __post_init__(self) -> None:
        """Refuse unknown launchers, and settings of other ones."""
        if self.name not in _NAMES:
            near = did_you_mean(self.name, _NAMES) or f"; there are {', '.join(_NAMES)}"
            raise ValueError(f"launcher: no launcher {self.name!r}{near}")
        theirs = {"options": ("torchrun", "mpi", "slurm"), "address": ("ray",)}
        theirs["manifest"] = ("kubernetes",)
        for key, names in theirs.items():
            if getattr(self, key) and self.name not in names:
                raise ValueError(f"launcher: {key}: not supported by {self.name}; remove it")
        if self.name == "kubernetes" and not self.manifest:
            raise ValueError(
                "launcher: kubernetes needs a manifest: a file with a Job that has the image of "
                "the training and the volume of the store"
            )


def launcher_settings(given: str | Mapping[str, Any]) -> LauncherSettings:
    """Return the settings that are given as a name or as a table.

    Raises:
        ValueError: a launcher or key is unknown, or a value is of another type.
    """
    table = {"name": given} if isinstance(given, str) else given
    known = {one.name for one in fields(LauncherSettings)}
    for key, value in table.items():
        if key not in known:
            near = did_you_mean(key, known) or f"; the keys are {', '.join(sorted(known))}"
            raise ValueError(f"launcher: no key {key!r}{near}")
        several = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not (several if key == "options" else isinstance(value, str)):
            wanted = "a list of strings" if key == "options" else "a string"
            raise ValueError(f"launcher: {key}: must be {wanted}, not {value!r}")
    return LauncherSettings(**table)


def check_hosts(launcher: LauncherSettings, hosts: int | list[str], ranks: int) -> None:
    """Check how many ranks a launcher is to start, and on which hosts.

    Args:
        hosts: number of hosts, or their names.
        ranks: number of ranks on all hosts together.

    Raises:
        ValueError: it cannot.
    """
    if not 1 <= ranks <= _MOST_RANKS:
        raise ValueError(f"ranks: must be from 1 to {_MOST_RANKS}, not {ranks}")
    count = hosts if isinstance(hosts, int) else len(hosts)
    if count < 1:
        raise ValueError(f"hosts: must be at least 1, not {count}")
    if not isinstance(hosts, int):
        if any(not host or host.startswith("-") or set(host) & set(" ,:;\0\n") for host in hosts):
            raise ValueError(f"hosts: {hosts!r} are not names of hosts")
        if len({*hosts}) < count:
            raise ValueError(f"hosts: {hosts!r} names a host twice")
        if launcher.name in ("ray", "kubernetes"):
            raise ValueError(f"hosts: {launcher.name} chooses the hosts; give their number")
    if launcher.name == "local" and hosts != 1:
        raise ValueError(
            "hosts: the launcher local starts all ranks on this machine; choose another launcher"
        )
    if launcher.name == "torchrun" and isinstance(hosts, int) and hosts > 1:
        raise ValueError("hosts: torchrun needs the names of the hosts, not their number")
    if ranks % count:
        raise ValueError(
            f"ranks: {ranks} ranks, on all hosts together, cannot be shared equally by {count} "
            "hosts"
        )
