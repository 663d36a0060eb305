"""`run.runner` of an experiment or sweep file: the engine on which trainings run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from vinedresser.errors import MissingDependency
from vinedresser.infra.configuration import build

__all__ = ["LOCAL", "RunnerSettings", "runner_settings"]

_PACKAGES = {"dask": ("distributed", "prefect_dask"), "ray": ("ray", "prefect_ray")}


@dataclass(frozen=True)
class RunnerSettings:
    """The engine on which trainings run.

    Attributes:
        name: local processes, or a cluster that distributes trainings.
        address: address of the cluster, such as ``tcp://scheduler:8786`` for Dask or
            ``ray://head:10001`` for Ray; None: start one on this machine for the flow.
    """

    name: Literal["local", "dask", "ray"] = "local"
    address: str | None = None

    def __post_init__(self) -> None:
        """Check values that types do not."""
        if self.name == "local" and self.address is not None:
            raise ValueError("address: not supported for local processes; remove it")


LOCAL = RunnerSettings()


def runner_settings(given: object, where: str) -> RunnerSettings:
    """Return the settings that a file gives as a name or as a table of name and address.

    Args:
        given: value in the file; None: local processes.
        where: file and key, for messages.

    Raises:
        ConfigError: the value is invalid; the message names the key and what is expected.
        MissingDependency: the cluster needs a package that is not installed.
    """
    table = given if isinstance(given, Mapping) else {"name": given or LOCAL.name}
    settings = build(RunnerSettings, table, where)
    for package in _PACKAGES.get(settings.name, ()):
        if find_spec(package) is None:
            raise MissingDependency(
                f"{where}: {settings.name!r} needs the package {package}: "
                f'pip install "vinedresser[{settings.name}]"'
            )
    return settings
