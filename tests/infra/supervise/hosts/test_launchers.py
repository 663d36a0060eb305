"""Launchers start, log, explain and end the ranks of a run alike."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from vinedresser.testing.launchers import LauncherConformance

BIN = Path(__file__).with_name("bin")


@pytest.mark.thorough
class TestSlurm(LauncherConformance):
    """A scheduler that runs the generated script for real; its nodes are processes."""

    @pytest.fixture
    def launch(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """See the base class."""
        monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
        return {"launcher": "slurm", "hosts": 2}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
class TestMpi(LauncherConformance):
    """Open MPI, with a process for each rank."""

    @pytest.fixture
    def launch(self) -> dict[str, Any]:
        """See the base class."""
        return {"launcher": "mpi"}


@pytest.mark.slow
class TestTorchrun(LauncherConformance):
    """torchrun on two addresses of this machine."""

    @pytest.fixture
    def launch(self) -> dict[str, Any]:
        """See the base class."""
        return {"launcher": "torchrun", "hosts": ["127.0.0.1", "127.0.0.2"]}
