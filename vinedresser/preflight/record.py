"""The record of a pre-flight check in the directory of the run that it preceded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from vinedresser.preflight.verdict import SUSPICIOUS, Verdict
from vinedresser.store.records import Record

if TYPE_CHECKING:
    from vinedresser.preflight.launching import Preflight


@dataclass(frozen=True)
class PreflightRecord(Record):
    """The result of the checks that preceded a training.

    Attributes:
        steps: number of steps that were watched; 0 if there was no training.
        seconds: CPU seconds of the script and the checks.
        code: exit code of the script; None if it was ended.
        verdicts: check, state and evidence of each check.
    """

    KEY: ClassVar[str] = "preflight.json"

    steps: int
    seconds: float
    code: int | None
    verdicts: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """Refuse verdicts that readers cannot show.

        Raises:
            ValueError: an entry is not a verdict.
        """
        for verdict in self.verdicts:
            Verdict.from_json(verdict)

    @classmethod
    def of(cls, found: Preflight) -> Self:
        """Return the record of a result."""
        verdicts = [asdict(verdict) for verdict in found.verdicts]
        return cls(found.steps, found.seconds, found.code, verdicts)

    @property
    def all(self) -> list[Verdict]:
        """The verdict of each check."""
        return [Verdict.from_json(verdict) for verdict in self.verdicts]

    @property
    def suspicious(self) -> list[Verdict]:
        """The verdicts of the suspicious checks."""
        return [one for one in self.all if one.state == SUSPICIOUS]

    @property
    def summary(self) -> str:
        """The result in one line."""
        if self.suspicious:
            names = ", ".join(one.check for one in self.suspicious)
            return f"{len(self.suspicious)} suspicious of {len(self.verdicts)} checks: {names}"
        if self.verdicts:
            return f"nothing suspicious in {len(self.verdicts)} checks"
        if self.code:
            return f"not checked: the script ended with exit code {self.code}"
        return "not checked: no training of PyTorch or Keras was seen"
