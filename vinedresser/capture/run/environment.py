"""The environment of a hook's process: the launched run, rank and world size."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.store.records import (
    KEEP_MODEL_VARIABLE,
    RANK_VARIABLE,
    RUN_VARIABLE,
    WORLD_SIZE_VARIABLE,
)
from vinedresser.version import __version__

__all__ = ["Environment", "process_group", "versions"]


@dataclass(frozen=True)
class Environment:
    """The settings from environment variables and torch's process group.

    Attributes:
        run: location of the launched run (``VINEDRESSER_RUN``); "" without a launcher.
        rank: rank of this process: the first of ``VINEDRESSER_RANK``, torch's process group,
            ``RANK``, mpirun's ``OMPI_COMM_WORLD_RANK``, ``LOCAL_RANK`` on the first node (all that
            Lightning sets for the ranks it starts), and 0.
        world_size: number of processes: the first of ``VINEDRESSER_WORLD_SIZE``, the process group,
            ``WORLD_SIZE``, ``OMPI_COMM_WORLD_SIZE``, and 1.
        keeps_model: whether a checkpoint is saved when the training ends by itself
            (``VINEDRESSER_KEEP_MODEL``).
    """

    run: str = ""
    rank: int = 0
    world_size: int = 1
    keeps_model: bool = False

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the environment.

        Args:
            variables: environment variables; None: those of this process, and its process group.

        Raises:
            ConfigError: a number is invalid, or the rank cannot be determined.
        """
        given = os.environ if variables is None else variables
        run = given.get(RUN_VARIABLE, "")
        keeps = bool(run and given.get(KEEP_MODEL_VARIABLE))
        joined = process_group() if variables is None else None
        if joined is not None and not given.get(RANK_VARIABLE):
            return cls(run, *joined, keeps)
        names = (RANK_VARIABLE, "RANK", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
        name = next((one for one in names if given.get(one)), "RANK")
        if name == "LOCAL_RANK" and _number(given, "NODE_RANK", 0):
            raise ConfigError(f"{name} is ambiguous with several nodes: set {RANK_VARIABLE}")
        rank = _number(given, name, 0)
        sizes = (WORLD_SIZE_VARIABLE, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
        size = next((one for one in sizes if given.get(one)), "WORLD_SIZE")
        return cls(run, rank, max(_number(given, size, 1), rank + 1), keeps)


def versions(**frameworks: str) -> dict[str, str]:
    """Return the versions of Python, numpy, vinedresser and the given frameworks."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "vinedresser": __version__,
        **frameworks,
    }


def process_group() -> tuple[int, int] | None:
    """Return rank and world size of torch's process group, or None if it has not joined one."""
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    return torch.get_rank(), torch.get_world_size()


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable as a non-negative integer."""
    text = variables.get(name, "")
    if text and not text.isdecimal():
        raise ConfigError(f"{name}={text}: must be a non-negative integer")
    return int(text) if text else default
