"""The training job of SageMaker in whose container this process runs."""

from __future__ import annotations

import gzip
import io
import os
import platform
import tarfile
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.sagemaker import FAILURE, MODEL, OUTPUT_DATA, Container
from vinedresser.objects import is_remote, open_storage
from vinedresser.store.records import RANK_VARIABLE, WORLD_SIZE_VARIABLE

__all__ = ["default_store", "enter", "job_name", "own_run", "program", "tell"]

# What SageMaker returns of the file as the reason of a failure.
_MOST_CHARACTERS = 1024
# Where the first host listens in SageMaker's own containers for PyTorch.
_PORT = "7777"


def program(container: Container) -> list[str]:
    """Return how the script is started, as SageMaker's containers do."""
    (program,) = container.command
    if program.endswith(".py"):
        return [program]
    return ["/bin/sh", program] if program.endswith(".sh") else [f"./{program}"]


def own_run(container: Container) -> dict[str, str]:
    """Return the variables by which the training of one host of several is a run of its own.

    Otherwise its process group would tell the hook that it is one rank of several.
    """
    several = len(container.hosts) > 1
    return {RANK_VARIABLE: "0", WORLD_SIZE_VARIABLE: "1"} if several else {}


def enter(container: Container) -> None:
    """Enter the folder of the code, which is fetched if it is on S3, and set the variables.

    Raises:
        ConfigError: there is no such folder.
        StoreError: S3 refused.
    """
    folder = container.cwd
    if is_remote(folder):
        folder = str(container.base / "code")
        _unpack(container.cwd, folder)
    for result in (MODEL, OUTPUT_DATA):
        os.makedirs(container.base / result, exist_ok=True)
    os.environ |= replace(container, cwd=folder).environment()
    if len(container.hosts) > 1:
        os.environ.setdefault("MASTER_ADDR", container.hosts[0])
        os.environ.setdefault("MASTER_PORT", _PORT)
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder}: {error.strerror}; SAGEMAKER_SUBMIT_DIRECTORY names the folder of the code"
        ) from error


def _unpack(url: str, folder: str) -> None:
    """Unpack the archive of the code that SageMaker's SDK has uploaded."""
    if not hasattr(tarfile, "data_filter"):
        raise ConfigError(
            f"{url}: Python {platform.python_version()} cannot unpack archives safely; use 3.11.4 "
            "or newer"
        )
    place, _, name = url.rpartition("/")
    content = open_storage(place).get(name)
    try:
        # As a whole, since tarfile does not read the checksum at its end.
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content)), mode="r:") as archive:
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{url}: not an archive of code (tar.gz): {error}") from error


def default_store(base: Path) -> str:
    """Return the folder of the runs: that of checkpoints is on S3 while the job runs."""
    kept = base / "checkpoints"
    return str((kept if kept.is_dir() else base / OUTPUT_DATA) / "vinedresser")


def job_name(container: Container) -> str:
    """Return the beginning of the run's name: the job's, and of several hosts this one's."""
    named = os.environ.get("TRAINING_JOB_NAME") or Path(container.command[0]).stem
    return f"{named}-{container.host}" if len(container.hosts) > 1 else named


def tell(base: Path, reason: str) -> None:
    """Write the reason of a failure where SageMaker reads it, unless the script has."""
    with suppress(OSError):
        os.makedirs(base / "output", exist_ok=True)
        with open(base / FAILURE, "x", encoding="utf-8") as file:
            file.write(reason[:_MOST_CHARACTERS])
