"""Augmented manifests of SageMaker: files, each with its attributes, such as labels.

A line is a JSON object: ``{"source-ref": "s3://bucket/images/7.jpg", "label": 3}``
(https://docs.aws.amazon.com/sagemaker/latest/dg/augmented-manifest.html).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vinedresser.data.sources.base import DataObject, WrappedObject
from vinedresser.errors import ConfigError, StoreError

__all__ = ["SOURCE", "DescribedObject", "described", "is_augmented"]

SOURCE = "source-ref"
"""Name of the attribute that is the path or URL of the file."""
# Files that are looked up at a time.
_CONCURRENT = 16


@dataclass(frozen=True)
class DescribedObject(WrappedObject):
    """An object with attributes.

    Args:
        attributes: its line of the manifest.
    """

    attributes: str

    @property
    def version(self) -> str:
        """Changes with the attributes, too; see `DataObject`."""
        return f"{self.inner.version} {hashlib.sha256(self.attributes.encode()).hexdigest()}"


def is_augmented(manifest: bytes) -> bool:
    """Return whether a manifest is an augmented one: other manifests are JSON arrays."""
    return manifest.lstrip().startswith(b"{")


def described(
    manifest: bytes, where: str, find: Callable[[str], DataObject]
) -> list[DescribedObject]:
    """Return the objects of an augmented manifest, in its order.

    Args:
        manifest: its content.
        where: its path or URL, for messages.
        find: returns the object at a path or URL.

    Raises:
        ConfigError: a line is invalid.
        StoreError: an object is missing, or the storage refused; of the same kind as of ``find``.
    """

    def found(numbered: tuple[int, str]) -> DescribedObject:
        number, line = numbered
        try:
            attributes = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: line {number}: not valid JSON: {error}") from error
        if not isinstance(attributes, dict) or not isinstance(attributes.get(SOURCE), str):
            raise ConfigError(
                f'{where}: line {number}: must look like {{"{SOURCE}": "s3://bucket/a.jpg", '
                '"label": 3}'
            )
        try:
            return DescribedObject(find(attributes[SOURCE]), line)
        except StoreError as error:
            raise type(error)(f"{where}: line {number}: {error}") from error

    try:
        lines = manifest.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not in UTF-8: {error}") from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    with ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="manifest") as pool:
        return list(pool.map(found, numbered))
