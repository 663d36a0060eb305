"""What the process around a hook says: which run was launched, which rank this is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from vinedresser import __version__
from vinedresser.errors import ConfigError
from vinedresser.infra.run_directory import RANK_VARIABLE, RUN_VARIABLE

__all__ = ["Environment", "versions"]


@dataclass(frozen=True)
class Environment:
    """What the environment variables say.

    Attributes:
        run: where the run lies that was launched (``VINEDRESSER_RUN``); "" without a launcher.
        rank: number of this process (``VINEDRESSER_RANK``, else ``RANK``, else 0).
        world_size: number of processes (``WORLD_SIZE``, else 1).
    """

    run: str = ""
    rank: int = 0
    world_size: int = 1

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read it.

        Args:
            variables: the environment; None: this process's.

        Raises:
            ConfigError: a number is none.
        """
        given = os.environ if variables is None else variables
        rank = _number(given, RANK_VARIABLE if given.get(RANK_VARIABLE) else "RANK", 0)
        world_size = max(_number(given, "WORLD_SIZE", 1), rank + 1)
        return cls(given.get(RUN_VARIABLE, ""), rank, world_size)


def versions(**frameworks: str) -> dict[str, str]:
    """Return the versions of Python, numpy, vinedresser and the given frameworks."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "vinedresser": __version__,
        **frameworks,
    }


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable as a number of at least 0."""
    text = variables.get(name, "")
    if text and not text.isdecimal():
        raise ConfigError(f"{name}={text}: must be an integer of at least 0")
    return int(text) if text else default
