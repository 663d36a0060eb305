"""One library that reads the records from S3, in a process of its own.

    python peer.py prepare NAME FOLDER RECORD COUNT
    python peer.py read NAME BUCKET LOCAL

The interpreter needs that library only, and torch: versions that exclude each other are no trouble.
Each reads the same records as batches of 256 lists of `bytes`, in order, with two workers where
that is not said otherwise. ``prepare`` writes them in the library's own format; ``read`` prints
JSON: seconds from the first request to the last batch, records, and the gaps between batches.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

BATCH = 256
OBJECT = 8 << 20
WORKERS = 2


def vinedresser(bucket: str, local: Path) -> Any:  # noqa: ARG001
    """Without workers."""
    return _dataset(bucket)


def vinedresser_workers(bucket: str, local: Path) -> Any:  # noqa: ARG001
    """With the same two workers as the others."""
    data = importlib.import_module("vinedresser.data")
    return data.TorchLoader(_dataset(bucket), num_workers=WORKERS)


def tensorflow(bucket: str, local: Path) -> Any:  # noqa: ARG001
    """A local file: TensorFlow reads nothing from S3."""
    tf: Any = importlib.import_module("tensorflow")
    return tf.data.TFRecordDataset(str(local)).batch(BATCH)


def webdataset(bucket: str, local: Path) -> Any:  # noqa: ARG001
    """Tar shards through curl, as its documents do."""
    wds: Any = importlib.import_module("webdataset")
    boto3: Any = importlib.import_module("boto3")
    client = boto3.client("s3", region_name="us-east-1")
    listed = client.list_objects_v2(Bucket=bucket, Prefix="peers/webdataset/")["Contents"]
    urls = [
        client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": one["Key"]})
        for one in listed
    ]
    shards = [f"pipe:curl -s '{url}'" for url in urls]
    return _loader(wds.WebDataset(shards, shardshuffle=False).map(lambda sample: sample["bin"]))


def mosaicml(bucket: str, local: Path) -> Any:
    """Its own shards of 8 MiB, copied to the disk first."""
    streaming: Any = importlib.import_module("streaming")
    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    samples = streaming.StreamingDataset(
        remote=f"s3://{bucket}/peers/mosaicml", local=str(local), batch_size=BATCH, shuffle=False
    )
    return _loader(samples, collate=lambda batch: [sample["bin"] for sample in batch])


def litdata(bucket: str, local: Path) -> Any:
    """Its own chunks of 8 MiB, copied to the disk first; its obstore refuses http://."""
    lit: Any = importlib.import_module("litdata")
    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    samples = lit.StreamingDataset(
        f"s3://{bucket}/peers/litdata", cache_dir=str(local), storage_options=options
    )
    # Its values may be views, which cannot be sent; its own loader ignores ``collate_fn`` for them.
    return _loader(samples, collate=lambda batch: [bytes(value) for value in batch])


def s3torchconnector(bucket: str, local: Path) -> Any:  # noqa: ARG001
    """Whole objects, divided by the simplest code, without a look at the checksums."""
    s3: Any = importlib.import_module("s3torchconnector")
    torch: Any = importlib.import_module("torch.utils.data")
    objects = s3.S3IterableDataset.from_prefix(
        f"s3://{bucket}/data/many/",
        region="us-east-1",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        transform=lambda reader: reader.read(),
        s3client_config=s3.S3ClientConfig(force_path_style=True),
        enable_sharding=True,
    )

    class Records(torch.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            for content in objects:
                position = 0
                while position < len(content):
                    (length,) = struct.unpack_from("<Q", content, position)
                    yield content[position + 12 : position + 12 + length]
                    position += length + 16

    return _loader(Records())


READ: dict[str, Callable[[str, Path], Any]] = {
    "vinedresser": vinedresser,
    "vinedresser, 2 workers": vinedresser_workers,
    "tf.data, local file": tensorflow,
    "webdataset": webdataset,
    "mosaicml-streaming": mosaicml,
    "litdata": litdata,
    "s3torchconnector": s3torchconnector,
}


def write_mosaicml(folder: Path, record: bytes, count: int) -> None:
    """Write shards of mosaicml-streaming."""
    streaming: Any = importlib.import_module("streaming")
    with streaming.MDSWriter(out=str(folder), columns={"bin": "bytes"}, size_limit=OBJECT) as out:
        for _ in range(count):
            out.write({"bin": record})


def write_litdata(folder: Path, record: bytes, count: int) -> None:
    """Write chunks of litdata."""
    lit: Any = importlib.import_module("litdata")
    # Its processes are forked: the function need not be importable.
    lit.optimize(
        lambda _: record,
        [*range(count)],
        str(folder),
        chunk_bytes=OBJECT,
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


WRITE: dict[str, Callable[[Path, bytes, int], None]] = {
    "mosaicml-streaming": write_mosaicml,
    "litdata": write_litdata,
}


def _dataset(bucket: str) -> Any:
    data = importlib.import_module("vinedresser.data")
    return data.Dataset(f"s3://{bucket}/data/many/", batch_size=BATCH)


def _loader(samples: Any, *, collate: Callable[[list[Any]], Any] = list) -> Any:
    torch: Any = importlib.import_module("torch.utils.data")
    return torch.DataLoader(samples, batch_size=BATCH, num_workers=WORKERS, collate_fn=collate)


def _count(batch: Any) -> int:
    return len(getattr(batch, "values", batch))


def main() -> None:
    """Do what the arguments say."""
    action, name = sys.argv[1:3]
    if action == "prepare":
        folder, record, count = sys.argv[3:]
        WRITE[name](Path(folder), Path(record).read_bytes(), int(count))
        return
    batches = READ[name](sys.argv[3], Path(sys.argv[4]))
    times = [time.perf_counter()]
    records = 0
    for batch in batches:
        records += _count(batch)
        times.append(time.perf_counter())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    print(json.dumps({"seconds": times[-1] - times[0], "records": records, "gaps": gaps}))


if __name__ == "__main__":
    main()
