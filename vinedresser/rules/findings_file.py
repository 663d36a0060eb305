"""The findings file of a rule group, in the run directory."""

from __future__ import annotations

import json

import numpy as np

from vinedresser.errors import CorruptData, KeyMissing
from vinedresser.objects import Storage
from vinedresser.store.finding import Finding
from vinedresser.store.records import findings_key

__all__ = ["FindingsFile", "finding_line"]


class FindingsFile:
    """A file with one finding per line, replaced as a whole with each new finding.

    A restarted judge starts again from the first step. The file stays as it is until the judge has
    findings beyond those stored.

    Args:
        group: name of the rule group.
    """

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage = storage
        self._key = findings_key(group)
        self._text = ""
        try:
            self._stored: str | None = storage.get(self._key).decode()
        except (KeyMissing, CorruptData, UnicodeDecodeError):
            # A damaged file is replaced.
            self._stored = None

    def add(self, finding: Finding) -> None:
        """Append a finding.

        Raises:
            StoreError: the storage refused.
        """
        self._text += finding_line(finding) + "\n"
        if self._stored is None or not self._stored.startswith(self._text):
            self._put()

    def close(self) -> None:
        """Write exactly the findings of this judge; without findings the file is empty.

        Raises:
            StoreError: the storage refused.
        """
        if self._stored != self._text:
            self._put()

    def _put(self) -> None:
        self._storage.put(self._key, [self._text.encode()])
        self._stored = self._text


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of JSON; NaN and infinities are kept as numbers."""
    return json.dumps(finding.to_json(), default=_plain)


def _plain(value: object) -> object:
    """Return a JSON value for one that JSON does not support."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)
