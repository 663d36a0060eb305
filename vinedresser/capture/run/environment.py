"""What the process around a hook says: which run was launched, which rank this is."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from vinedresser import __version__
from vinedresser.errors import ConfigError
from vinedresser.store.records import RANK_VARIABLE, RUN_VARIABLE

__all__ = ["Environment", "versions"]


@dataclass(frozen=True)
class Environment:
    """What the environment variables say.

    Attributes:
        run: where the run lies that was launched (``VINEDRESSER_RUN``); "" without a launcher.
        rank: number of this process (``VINEDRESSER_RANK``, else what torch's process group says
            that it has joined, else ``RANK``, else mpirun's ``OMPI_COMM_WORLD_RANK``, else on the
            first node ``LOCAL_RANK``, which is all that Lightning gives the ranks that it starts,
            else 0).
        world_size: number of processes (the process group's, else ``WORLD_SIZE``, else
            ``OMPI_COMM_WORLD_SIZE``, else 1).
    """

    run: str = ""
    rank: int = 0
    world_size: int = 1

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read it.

        Args:
            variables: the environment; None: this process's, and its process group.

        Raises:
            ConfigError: a number is none, or the rank is not to be known.
        """
        given = os.environ if variables is None else variables
        run = given.get(RUN_VARIABLE, "")
        joined = _process_group() if variables is None else None
        if joined is not None and not given.get(RANK_VARIABLE):
            return cls(run, *joined)
        names = (RANK_VARIABLE, "RANK", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
        name = next((one for one in names if given.get(one)), "RANK")
        if name == "LOCAL_RANK" and _number(given, "NODE_RANK", 0):
            raise ConfigError(f"{name} alone says no rank on a further node: set {RANK_VARIABLE}")
        rank = _number(given, name, 0)
        size = "WORLD_SIZE" if given.get("WORLD_SIZE") else "OMPI_COMM_WORLD_SIZE"
        return cls(run, rank, max(_number(given, size, 1), rank + 1))


def versions(**frameworks: str) -> dict[str, str]:
    """Return the versions of Python, numpy, vinedresser and the given frameworks."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "vinedresser": __version__,
        **frameworks,
    }


def _process_group() -> tuple[int, int] | None:
    """Return rank and number of the processes of the group that torch has joined, if any."""
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    return torch.get_rank(), torch.get_world_size()


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable as a number of at least 0."""
    text = variables.get(name, "")
    if text and not text.isdecimal():
        raise ConfigError(f"{name}={text}: must be an integer of at least 0")
    return int(text) if text else default
