"""Scikit-learn's handwritten digits on S3: TFRecords by class, of which one is rare."""

from __future__ import annotations

import os

import boto3
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from vinedresser.data import Mixture, write

CLASSES = [str(digit) for digit in range(10)]
RARE, RECORDS = "8", 12


def write_digits(target: str) -> None:
    """Write the images by class, but for most of those of the rare class.

    Args:
        target: ``s3://bucket/prefix``.
    """
    images, labels = load_digits(return_X_y=True)
    rare = np.flatnonzero(labels == int(RARE))[RECORDS:]
    kept = np.setdiff1d(np.arange(len(labels)), rare)
    pixels = (images / 16).astype(np.float32)
    records = ((str(labels[one]), pixels[one].tobytes()) for one in kept)
    write(records, target)


def mixture(target: str, *, batch_size: int = 32) -> Mixture:
    """Return the images as pairs of an image, float32 (64,), and a label."""
    return Mixture(
        {name: f"{target}/{name}/" for name in CLASSES},
        batch_size=batch_size,
        seed=1,
        decode=decode,
        skip_damaged=1,
    )


def decode(value: bytes, name: str) -> tuple[NDArray[np.float32], np.int64]:
    """Return image and label of a record."""
    return np.frombuffer(value, np.float32).copy(), np.int64(name)


def damage(target: str, name: str) -> None:
    """Flip a bit in the middle of a class's first object."""
    bucket, _, prefix = target.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    key = f"{prefix}/{name}/part-00000.tfrecord"
    content = bytearray(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    content[len(content) // 2] ^= 1
    client.put_object(Bucket=bucket, Key=key, Body=bytes(content))
