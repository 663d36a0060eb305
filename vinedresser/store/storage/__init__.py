"""Object storage: the interface through which all processes read and write a run.

Keys are relative, slash-separated names such as ``index/0/000000000012.json``.
"""

from __future__ import annotations

from vinedresser.store.storage.base import Span, Storage
from vinedresser.store.storage.local import LocalStorage
from vinedresser.store.storage.location import (
    Location,
    StoreUrl,
    is_remote,
    open_storage,
    parse_location,
)

__all__ = [
    "LocalStorage",
    "Location",
    "Span",
    "Storage",
    "StoreUrl",
    "is_remote",
    "open_storage",
    "parse_location",
]
