"""Settings of the snapshots of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from vinedresser.errors import ConfigError
from vinedresser.store.json_values import known_fields

__all__ = ["GUARDS", "SnapshotSettings", "check_guard"]

GUARDS = ("nonfinite", "off")
"""Values of the setting ``guard``."""


@dataclass(frozen=True)
class SnapshotSettings:
    """When snapshots are taken, and how many are kept.

    Attributes:
        every: take a periodic snapshot every N steps; 0: none.
        keep: maximum number of snapshots of each kind and rank: the first ones of non-finite
            gradients and of jumps of the loss, the last ones of the periodic.
        max_bytes: maximum size of all snapshots of a rank, in bytes. Periodic ones make room for
            the others; one of a jump is taken if another one still fits beside it.
        stop: stop the run before the update with non-finite gradients.
    """

    every: int = 0
    keep: int = 3
    max_bytes: int = 4 << 30
    stop: bool = False

    def __post_init__(self) -> None:
        """Check values that types do not."""
        for name, least in (("every", 0), ("keep", 1), ("max_bytes", 1)):
            given = getattr(self, name)
            if type(given) is not int or given < least:
                raise ConfigError(f"snapshots.{name}: must be an integer >= {least}, not {given!r}")
        if type(self.stop) is not bool:
            raise ConfigError(f"snapshots.stop: must be true or false, not {self.stop!r}")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read the settings of a run's record.

        Raises:
            ConfigError: a value is invalid.
        """
        try:
            return cls(**known_fields(cls, dict(document)))
        except TypeError as error:
            raise ConfigError(f"snapshots: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON types."""
        return asdict(self)


def check_guard(guard: object, where: str = "guard") -> str:
    """Return a valid setting of the guard.

    Args:
        where: name of the setting, for the message.

    Raises:
        ConfigError: it is not one of `GUARDS`.
    """
    if guard not in GUARDS:
        raise ConfigError(f"{where}: must be {' or '.join(map(repr, GUARDS))}, not {guard!r}")
    return str(guard)
