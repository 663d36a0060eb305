"""`run.runner` of an experiment or sweep file: what the trainings run on."""

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
    """What the trainings run on.

    Attributes:
        name: processes of this machine, or an engine that distributes them.
        address: where the engine is, such as ``tcp://scheduler:8786`` of Dask or ``ray://head:10001``
            of Ray; None: one is started on this machine, for as long as the flow lasts.
    """

    name: Literal["local", "dask", "ray"] = "local"
    address: str | None = None

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if self.name == "local" and self.address is not None:
            raise ValueError("address: local processes have none; leave it out")


LOCAL = RunnerSettings()


def runner_settings(given: object, where: str) -> RunnerSettings:
    """Check what a file says, a name or a table of name and address.

    Args:
        given: what it says; None: local processes.
        where: file and key, for messages.

    Raises:
        ConfigError: names the key, what was wrong, and what would be right.
        MissingDependency: the engine needs a package that is not there.
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
