"""Other libraries on the same records, each in a process of its own; see `benchmarks.data.peer`."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data.peer import OBJECT, READ, WRITE
from benchmarks.measure import table
from vinedresser.objects import open_storage

__all__ = ["Peers"]

_SCRIPT = Path(__file__).with_name("peer.py")
_MODULES = {
    "webdataset": "webdataset",
    "mosaicml-streaming": "streaming",
    "litdata": "litdata",
    "s3torchconnector": "s3torchconnector",
}


class Peers:
    """The libraries that are installed for an interpreter, with their own copies of the records.

    Args:
        python: interpreter of the other libraries.
        bucket: name of a bucket, in which the TFRecord objects are.
        folder: empty folder.
        local: the same records as a local TFRecord file.
        size: bytes of a record.
        count: number of records.
    """

    def __init__(
        self, python: str, *, bucket: str, folder: Path, local: Path, size: int, count: int
    ) -> None:
        self._python, self._bucket, self._local = python, bucket, local
        self._folder, self._size, self._count = folder, size, count
        self._names = [name for name in READ if name not in _MODULES]
        for name, module in _MODULES.items():
            probe = [python, "-c", f"import {module}"]
            if subprocess.run(probe, capture_output=True, check=False).returncode:
                print(f"{name}: not installed for {python}, left out", flush=True)
            else:
                self._names.append(name)
                self._prepare(name)

    def compare(self, title: str, rounds: int) -> None:
        """Measure all in turn, and print speed and evenness."""
        measured: dict[str, list[Any]] = {name: [] for name in self._names}
        for _ in range(rounds):
            for name in list(measured):
                try:
                    measured[name].append(self._read(name))
                except RuntimeError as error:
                    print(f"left out: {error}", flush=True)
                    del measured[name]
        rows = []
        for name, results in measured.items():
            speed = self._size * self._count / median(result["seconds"] for result in results) / 1e6
            first = median(result["gaps"][0] for result in results)
            # Before the first one, workers start.
            gaps = np.concatenate([result["gaps"][1:] for result in results]) * 1000
            p50, p95 = np.percentile(gaps, [50, 95])
            figures = f"{speed:.0f} {first:.2f} {p50:.1f} {p95:.1f} {p95 / p50:.1f}"
            rows.append([name, *figures.split()])
        headers = [title, "MB/s", "first batch, s", "gaps: p50, ms", "p95, ms", "p95 / p50"]
        print(table(rows, headers))
        print(flush=True)

    def _prepare(self, name: str) -> None:
        """Write the records to S3 in the format of a library."""
        storage = open_storage(f"s3://{self._bucket}/peers")
        record = self._folder / "record"
        record.write_bytes(np.random.default_rng(self._size).bytes(self._size))
        if name in WRITE:
            out = self._folder / name
            command = [
                *(self._python, str(_SCRIPT), "prepare", name),
                *(str(out), str(record), str(self._count)),
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for path in sorted(out.iterdir()):
                storage.put(f"{name.partition('-')[0]}/{path.name}", [path.read_bytes()])
            shutil.rmtree(out)
        elif name == "webdataset":
            each = OBJECT // (self._size + 512)
            for shard, first in enumerate(range(0, self._count, each)):
                numbers = range(first, min(first + each, self._count))
                storage.put(f"{name}/{shard:03d}.tar", [_tar(record.read_bytes(), numbers)])

    def _read(self, name: str) -> Any:
        """Read all records once with a library.

        Raises:
            RuntimeError: it failed, or did not deliver all of them.
        """
        cache = self._folder / "cache of a library"
        shutil.rmtree(cache, ignore_errors=True)
        python = self._python if name in _MODULES else sys.executable
        place = self._local if name.startswith("tf.data") else cache
        command = [python, str(_SCRIPT), "read", name, self._bucket, str(place)]
        with Path(self._folder / "errors").open("w+") as errors:
            try:
                answer = subprocess.run(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    timeout=60,
                    check=True,
                )
            except subprocess.SubprocessError as error:
                errors.seek(0)
                raise RuntimeError(f"{name}: {error}\n{errors.read()[-2000:]}") from error
        found = json.loads(answer.stdout.splitlines()[-1])
        if found["records"] != self._count:
            raise RuntimeError(f"{name}: {found['records']} of {self._count} records")
        return found


def _tar(record: bytes, numbers: range) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in numbers:
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))
    return file.getvalue()
