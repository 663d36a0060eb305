"""Ways to read the same records, each returning the seconds it took."""

from __future__ import annotations

import http.client
import io
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import fastcrc
import numpy as np
import torch
from boto3.s3.transfer import TransferConfig

from vinedresser.data import Batch, Dataset, TorchLoader, tf_dataset
from vinedresser.data.formats.tfrecord import TFRecordFraming
from vinedresser.objects.s3_client import s3_client

__all__ = [
    "dataset",
    "downloads",
    "into_tensorflow",
    "parser",
    "plain_file",
    "plain_http",
    "seconds",
    "tensorflow",
    "tfrecord",
    "torch_loader",
]

BATCH = 256


def tfrecord(size: int, count: int) -> bytes:
    """Return a TFRecord file of records of a size."""
    content = np.random.default_rng(size).bytes(size)
    length = struct.pack("<Q", size)
    record = b"".join([length, _masked(length), content, _masked(content)])
    return record * count


def _masked(content: bytes) -> bytes:
    checksum = fastcrc.crc32.iscsi(content)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of a function call in seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def dataset(sources: str | Path, *, seed: int | None, connections: int) -> float:
    """Read all batches of a data set whose index is known."""
    opened = Dataset(sources, batch_size=BATCH, seed=seed, connections=connections)
    return seconds(lambda: sum(len(batch.values) for batch in opened))


def torch_loader(sources: Path, *, workers: int | None, tensors: bool) -> float:
    """Read all batches but the first; the start of workers is not counted.

    Args:
        sources: the file.
        workers: number of workers; None: the plain iterator.
        tensors: decode each record to a tensor and collate them, as a training does.
    """
    # With the usual windows, the first batch would need the whole file.
    opened = Dataset(
        sources,
        batch_size=BATCH,
        seed=1,
        window_bytes=4 << 20,
        lanes=2,
        decode=_tensor if tensors else None,
    )
    batches: Iterator[Batch]
    if workers is not None:
        batches = iter(TorchLoader(opened, num_workers=workers))
    elif tensors:
        batches = (one._replace(values=torch.stack(one.values)) for one in opened)
    else:
        batches = iter(opened)
    next(batches)
    return seconds(lambda: sum(len(batch.values) for batch in batches))


def _tensor(value: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)


def into_tensorflow(sources: Path) -> float:
    """Read all batches of a data set from a local file into TensorFlow."""
    batches = tf_dataset(Dataset(sources, batch_size=BATCH, connections=2))
    return seconds(lambda: sum(1 for _ in batches))


def tensorflow(paths: Iterable[Path]) -> float:
    """Read all batches of local files with tf.data."""
    import tensorflow as tf

    files = [str(path) for path in paths]
    batches = tf.data.TFRecordDataset(files).batch(BATCH)
    return seconds(lambda: sum(1 for _ in batches))


def parser(content: bytes) -> float:
    """Divide a file in memory into records, with all checksums."""
    framing = TFRecordFraming()

    def parse() -> None:
        boundaries, wrong = framing.boundaries(content, final=True)
        assert not wrong
        framing.values([(content, begin, end) for begin, end in pairwise(boundaries)])

    return seconds(parse)


def plain_file(paths: Iterable[Path]) -> float:
    """Read files without looking at them, 4 MiB at a time."""

    def read() -> None:
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while file.read(4 << 20):
                    pass

    return seconds(read)


def plain_http(bucket: str, keys: list[str], size: int, *, connections: int, span: int) -> float:
    """Read objects by ranged requests of the cheapest client, each thread with one connection."""
    client = s3_client()
    urls = [
        client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
        for key in keys
    ]
    spans = [(url, start) for url in urls for start in range(0, size, span)]

    def fetch(share: list[tuple[str, int]]) -> None:
        host = urlsplit(share[0][0]).netloc
        connection = http.client.HTTPConnection(host)
        for url, start in share:
            parts = urlsplit(url)
            headers = {"Range": f"bytes={start}-{min(start + span, size) - 1}"}
            connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
            connection.getresponse().read()
        connection.close()

    def read() -> None:
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(fetch, [spans[turn::connections] for turn in range(connections)]))

    return seconds(read)


def downloads(bucket: str, keys: list[str]) -> float:
    """Download objects with boto3's own transfers of four threads, four objects at a time."""
    config = TransferConfig(multipart_chunksize=4 << 20, max_concurrency=4)

    def fetch(key: str) -> None:
        s3_client().download_fileobj(bucket, key, io.BytesIO(), Config=config)

    def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fetch, keys))

    return seconds(read)
