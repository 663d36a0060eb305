"""Reading the findings of a run."""

from __future__ import annotations

import json

from vinedresser.errors import CorruptData
from vinedresser.store.finding import Finding
from vinedresser.store.records import known_keys
from vinedresser.store.storage import Storage

__all__ = ["group_files", "read_findings"]


def read_findings(storage: Storage, faults: list[str]) -> list[Finding]:
    """Return the readable findings of a run, sorted by step, rule and tensor.

    Args:
        storage: the run's storage.
        faults: receives one sentence for each damaged file.

    Raises:
        StoreError: the storage refused.
    """
    found: list[Finding] = []
    for key, content in group_files(storage, "findings", faults).items():
        damaged: list[str] = []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                found.append(Finding.from_json(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                damaged.append(f"line {number} is not a finding: {error}")
        if damaged:
            more = f" (and {len(damaged) - 1} more such lines)" if len(damaged) > 1 else ""
            faults.append(f"{storage.location}/{key}: {damaged[0]}{more}; ignored")
    return sorted(found, key=lambda finding: (finding.step, finding.rule, finding.tensor))


def group_files(storage: Storage, folder: str, faults: list[str]) -> dict[str, bytes]:
    """Return the contents of the files that the rule groups have in a folder, by their keys.

    Args:
        storage: the run's storage.
        folder: such as "findings".
        faults: receives a sentence for each that is not a file.

    Raises:
        StoreError: the storage refused.
    """
    found: dict[str, bytes] = {}
    for key in known_keys(storage, folder, faults):
        try:
            found[key] = storage.get(key)
        except CorruptData as error:
            faults.append(str(error))
    return found
