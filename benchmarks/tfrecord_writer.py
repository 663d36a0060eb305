"""A writer like that of smdebug, for comparison: TFRecord files of protobuf events.

Each tensor is one event with one summary value, whose bytes pass through the protobuf message. Each
event is one record in the file of its step, and a JSON index lists their positions.

    uint64 length, uint32 masked CRC32C of the length, the event, uint32 masked CRC32C of the event

(https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"). The file
layout is that of smdebug but, unlike there, the checksums are correct.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray
from tensorflow.core.framework import summary_pb2, types_pb2
from tensorflow.core.util import event_pb2

__all__ = ["read_tensor", "write_step"]


def write_step(folder: Path, step: int, tensors: Mapping[str, NDArray[np.float32]]) -> None:
    """Write the events of a step, then its index, each under a temporary name that is then renamed.

    Args:
        folder: existing folder of the run.
        step: step number.
        tensors: tensors by name, float32, any shape.
    """
    index = []
    temporary = folder / ".tmp"
    with temporary.open("wb") as file:
        for name, values in tensors.items():
            record = _framed(_event(step, name, values).SerializeToString())
            index.append({"tensorname": name, "start_idx": file.tell(), "length": len(record)})
            file.write(record)
    os.replace(temporary, folder / f"{step:012d}.tfevents")
    temporary.write_text(json.dumps({"meta": {"mode": "TRAIN"}, "tensor_payload": index}))
    os.replace(temporary, folder / f"{step:012d}.json")


def read_tensor(folder: Path, step: int, name: str) -> NDArray[np.float32]:
    """Read one tensor of a step, checked."""
    index = json.loads((folder / f"{step:012d}.json").read_bytes())["tensor_payload"]
    place = next(entry for entry in index if entry["tensorname"] == name)
    with (folder / f"{step:012d}.tfevents").open("rb") as file:
        file.seek(place["start_idx"])
        record = file.read(place["length"])
    content = record[12:-4]
    if struct.unpack("<I", record[-4:])[0] != _masked(content):
        raise ValueError(f"{name} of step {step}: the checksum does not match")
    tensor = event_pb2.Event.FromString(content).summary.value[0].tensor
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    return np.frombuffer(tensor.tensor_content, np.float32).reshape(shape)


def _event(step: int, name: str, values: NDArray[np.float32]) -> Any:
    value = summary_pb2.Summary.Value(tag=name)
    value.tensor.dtype = types_pb2.DT_FLOAT
    for size in values.shape:
        value.tensor.tensor_shape.dim.add(size=size)
    value.tensor.tensor_content = values.tobytes()
    return event_pb2.Event(
        wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=[value])
    )


def _framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return b"".join(
        [length, struct.pack("<I", _masked(length)), content, struct.pack("<I", _masked(content))]
    )


def _masked(content: bytes) -> int:
    checksum = crc32.iscsi(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
