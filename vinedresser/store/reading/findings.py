"""Reading the findings of a run."""

from __future__ import annotations

from collections.abc import Iterable

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.finding import Finding
from vinedresser.store.json_values import parse_json
from vinedresser.store.reading.notebook_html import paragraph, table
from vinedresser.store.records import ChecksRecord, known_keys, read_json_lines

__all__ = ["Findings", "files", "group_files", "read_findings"]

_SHOWN = ("step", "severity", "rule", "tensor", "seen", "cause", "remedy")


class Findings(list[Finding]):
    """Findings of a run; a table in a notebook.

    Attributes:
        checks: which rules have judged it, and what it lacks for them; None if that is not known.
    """

    checks: ChecksRecord | None = None

    def decisive(self, rule: str) -> Finding | None:
        """Return the finding that decides the verdict; None without a stop or a warning.

        Args:
            rule: name of the rule that stopped the run, whose finding it is; "" if none did: the
                first finding of severity "stop", or else the first warning.
        """
        if found := next((one for one in self if one.rule == rule), None):
            return found
        for severity in ("stop", "warning"):
            for one in self:
                if one.severity == severity:
                    return one
        return None

    def _repr_html_(self) -> str:
        """Return a table of the findings, for a notebook."""
        if not self:
            return paragraph("no findings")
        return table(_SHOWN, ([getattr(one, name) for name in _SHOWN] for one in self))


def read_findings(storage: Storage, faults: list[str]) -> Findings:
    """Return the readable findings of a run, sorted by step, rule and tensor.

    Args:
        faults: receives one sentence for each damaged file.

    Raises:
        StoreError: the storage refused.
    """
    found = Findings()
    for key, content in group_files(storage, "findings", faults).items():
        found += read_json_lines(
            content,
            lambda line: Finding.from_json(parse_json(line)),
            place=f"{storage.location}/{key}",
            what="a finding",
            faults=faults,
        )
    found.sort(key=lambda finding: (finding.step, finding.rule, finding.tensor))
    return found


def group_files(storage: Storage, folder: str, faults: list[str]) -> dict[str, bytes]:
    """Return the contents of the files that the rule groups have in a folder, by their keys.

    Args:
        folder: such as "findings".
        faults: receives a sentence for each that is not a file.

    Raises:
        StoreError: the storage refused.
    """
    return files(storage, known_keys(storage, folder, faults), faults)


def files(storage: Storage, keys: Iterable[str], faults: list[str]) -> dict[str, bytes]:
    """Return the contents of files of a run, by their keys, without those that are missing.

    Args:
        faults: receives a sentence for each that is not a file.

    Raises:
        StoreError: the storage refused.
    """
    found: dict[str, bytes] = {}
    for key in keys:
        try:
            content = get_or_none(storage, key)
        except CorruptData as error:
            faults.append(str(error))
        else:
            if content is not None:
                found[key] = content
    return found
