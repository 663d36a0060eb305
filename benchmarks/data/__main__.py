"""Reading of training data: `python -m benchmarks.data`. Starts its own SeaweedFS on loopback.

- S3: a data set of TFRecord objects, all checksums verified, compared with plain HTTP (ranged
  requests of 4 MiB that nobody looks at) and boto3's downloads; many objects, and a single one.
- the same behind a proxy with the behaviour of S3 (30 ms, 40 MB/s per connection), by connections.
- records of several sizes: the parser in memory, a local file by a data set, by plain reading and
  by tf.data.
- the same records into TensorFlow, and through PyTorch's DataLoader beside the plain iterator.
- with ``--peers PYTHON``: webdataset, mosaicml-streaming, litdata and s3torchconnector, as far as
  that interpreter has them, with the same records in their own formats.

Each comparison is interleaved in one run; ratios count, and the machine's load is in the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.data import arms
from benchmarks.data.peers import Peers
from benchmarks.measure import interleave, medians, table
from vinedresser.objects import open_storage
from vinedresser.testing.s3_server import BUCKET, seaweed

OBJECTS = 24
OBJECT = 8 << 20
SPAN = 4 << 20
CONNECTIONS = (1, 8, 16)
SIZES = (200, 1_000, 10_000, 110_000)


def compared(
    title: str, floor: str, size: int, rounds: int, ways: Mapping[str, Callable[[], float]]
) -> None:
    """Measure ways to read some bytes, and print them beside the floor."""
    took = medians(interleave(ways, rounds))
    rows = [
        [name, f"{size / one / 1e6:.0f}", f"{took[floor] / one:.2f}"] for name, one in took.items()
    ]
    print(table(rows, [title, "MB/s", f"x {floor}"]), flush=True)
    print()


def s3(folder: Path, rounds: int, python: str | None) -> None:
    """Compare on loopback, and behind the proxy."""
    # Of 10 KB each.
    content = arms.tfrecord(10_000, OBJECT // 10_016)
    size = len(content)
    storage = open_storage(f"s3://{BUCKET}/data")
    keys = [f"many/{number:02d}.tfrecord" for number in range(OBJECTS)]
    for key in keys:
        storage.put(key, [content])
    storage.put("single/a.tfrecord", [content] * OBJECTS)
    names = [f"data/{key}" for key in keys]
    many, single = f"s3://{BUCKET}/data/many/", f"s3://{BUCKET}/data/single/"
    # The same ranges as those of the data set: equal parts of about 4 MiB.
    plain = partial(arms.plain_http, BUCKET, names, size, span=-(-size // (OBJECT // SPAN)))
    compared(
        f"S3, {OBJECTS} objects of 8 MiB, 8 connections",
        "plain HTTP",
        OBJECTS * size,
        rounds,
        {
            "plain HTTP": partial(plain, connections=8),
            "Dataset": partial(arms.dataset, many, seed=None, connections=8),
            "Dataset, shuffled": partial(arms.dataset, many, seed=1, connections=8),
            "Dataset, one object": partial(arms.dataset, single, seed=None, connections=8),
            "boto3 download_fileobj": partial(arms.downloads, BUCKET, names),
        },
    )
    peers = None
    if python is not None:
        local = folder / "many.tfrecord"
        local.write_bytes(content * OBJECTS)
        count = OBJECTS * (OBJECT // 10_016)
        peers = Peers(python, bucket=BUCKET, folder=folder, local=local, size=10_000, count=count)
        peers.compare("S3", rounds)
    direct = os.environ["AWS_ENDPOINT_URL"]
    command = [sys.executable, "-m", "benchmarks.data.proxy", direct.rpartition(":")[2]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as proxy:
        assert proxy.stdout is not None
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.stdout.readline().strip()}"
        ways = {
            f"{count} connections": partial(arms.dataset, many, seed=None, connections=count)
            for count in CONNECTIONS
        }
        ways |= {
            f"plain HTTP, {count}": partial(plain, connections=count) for count in CONNECTIONS[1:]
        }
        compared("S3 behind the proxy", "1 connections", OBJECTS * size, rounds, ways)
        if peers is not None:
            peers.compare("S3 behind the proxy", rounds)
        proxy.kill()
    os.environ["AWS_ENDPOINT_URL"] = direct


def local(folder: Path, rounds: int) -> None:
    """Compare record sizes on files."""
    for size in SIZES:
        path = folder / f"{size}.tfrecord"
        content = arms.tfrecord(size, (64 << 20) // (size + 16))
        path.write_bytes(content)
        compared(
            f"a local file, records of {size} bytes",
            "tf.data",
            len(content),
            rounds,
            {
                "tf.data": partial(arms.tensorflow, [path]),
                "parser": partial(arms.parser, content),
                "Dataset": partial(arms.dataset, path, seed=None, connections=2),
                "Dataset, shuffled": partial(arms.dataset, path, seed=1, connections=2),
                "Dataset into tf.data": partial(arms.into_tensorflow, path),
                "plain reading": partial(arms.plain_file, [path]),
            },
        )
    path = folder / "10000.tfrecord"
    # Enough that the batches that workers prefetch before the first one arrives do not matter.
    path.write_bytes(path.read_bytes() * 8)
    for tensors in (False, True):
        read = partial(arms.torch_loader, path, tensors=tensors)
        compared(
            f"PyTorch, records of 10000 bytes{', as tensors' if tensors else ''}",
            "plain iterator",
            path.stat().st_size,
            rounds,
            {
                "plain iterator": partial(read, workers=None),
                "DataLoader, no workers": partial(read, workers=0),
                "DataLoader, 2 workers": partial(read, workers=2),
            },
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("local", "s3"), help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the other libraries")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        if arguments.part != "s3":
            local(Path(folder), rounds)
        if arguments.part != "local":
            with seaweed(Path(folder) / "server") as server:
                os.environ |= server.environment
                s3(Path(folder), rounds, arguments.peers)


if __name__ == "__main__":
    main()
