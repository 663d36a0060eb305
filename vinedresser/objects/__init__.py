"""Object storage: named objects in a directory or an object store, whatever they mean.

Keys are relative, slash-separated names such as ``index/0/000000000012.json``.
"""

from __future__ import annotations

from vinedresser.objects.base import Span, Storage
from vinedresser.objects.local import LocalStorage
from vinedresser.objects.location import (
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
