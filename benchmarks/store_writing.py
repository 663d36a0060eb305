"""Writing the same steps with the store, with other formats, and as raw bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchmarks.store_content import Tensors, fresh, timed
from benchmarks.tfrecord_writer import write_step
from vinedresser.objects import open_storage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import start_run, step_record

__all__ = ["write_safetensors", "writing_arms"]


def writing_arms(directory: Path, steps: list[Tensors]) -> dict[str, Callable[[], float]]:
    """Return arms that write the same bytes: with the store, other formats, raw, and to memory."""
    records = [step_record(number, tensors=tensors) for number, tensors in enumerate(steps)]
    size = sum(values.nbytes for tensors in steps for values in tensors.values())
    room = np.empty(size, np.uint8)

    def store() -> float:
        with fresh(directory) as folder:
            start_run(folder)
            writer = RunWriter(open_storage(folder))

            def write() -> None:
                for record in records:
                    writer.add(record)
                writer.flush()

            seconds = timed(write)
            writer.close()
            return seconds

    def raw(*, checksums: bool) -> float:
        with fresh(directory) as folder:
            return timed(lambda: write_raw(folder, steps, checksums=checksums))

    def memcpy() -> float:
        return timed(lambda: copy_all(room, steps))

    def every(write_one: Callable[[Path, int, Tensors], None]) -> float:
        with fresh(directory) as folder:

            def write() -> None:
                for number, tensors in enumerate(steps):
                    write_one(folder, number, tensors)

            return timed(write)

    return {
        "raw file write": lambda: raw(checksums=False),
        "raw file write + CRC32C": lambda: raw(checksums=True),
        "store writer, CRC32C": store,
        "safetensors alone": lambda: every(write_safetensors),
        "TFRecord + protobuf": lambda: every(write_step),
        "memcpy": memcpy,
    }


def write_raw(folder: Path, steps: list[Tensors], *, checksums: bool) -> None:
    """Write one file per step, with one system call, to a temporary name that is then renamed."""
    for number, tensors in enumerate(steps):
        if checksums:
            for values in tensors.values():
                crc32.iscsi(values.data)
        temporary = folder / ".raw"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        wanted = sum(values.nbytes for values in tensors.values())
        written = os.writev(descriptor, [values.data for values in tensors.values()])
        os.close(descriptor)
        assert written == wanted
        os.replace(temporary, folder / f"{number}.raw")


def copy_all(room: NDArray[np.uint8], steps: list[Tensors]) -> None:
    """Copy all tensors into allocated memory."""
    place = 0
    for tensors in steps:
        for values in tensors.values():
            room[place : place + values.nbytes] = values.view(np.uint8).reshape(-1)
            place += values.nbytes


def write_safetensors(folder: Path, number: int, tensors: Tensors) -> None:
    """Write a safetensors file to a temporary name that is then renamed; without checksums."""
    temporary = folder / ".safetensors"
    save_file(tensors, temporary)
    os.replace(temporary, folder / f"{number}.safetensors")
