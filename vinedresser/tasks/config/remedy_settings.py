"""`[remedy]` of an experiment file: how often a stopped run is begun again, and from where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.store.storage import Location

__all__ = ["NO_REMEDY", "RemedySettings", "remedy_settings"]

_ORIGINS = ("checkpoint", "start")


@dataclass(frozen=True)
class RemedySettings:
    """How a run that a rule stopped is begun again.

    Attributes:
        times: attempts in the place of one run, at the most; 0: none.
        resume: the script's parameter that takes the path of a checkpoint; None: an attempt begins
            from the start.
    """

    times: int = 2
    resume: str | None = None

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if self.times < 0:
            raise ValueError(f"times: must be at least 0, not {self.times}")


NO_REMEDY = RemedySettings(times=0)


def remedy_settings(
    table: object, *, times: int | None, store: Location, where: str
) -> RemedySettings:
    """Check the table of an experiment file.

    Args:
        table: times, from, resume; None where the file has none.
        times: takes the place of the table's.
        store: of the runs.
        where: file and key, for messages.

    Raises:
        ConfigError: names the key, what was wrong, and what would be right.
    """
    if table is None:
        settings = NO_REMEDY
    elif isinstance(table, Mapping):
        others = {key: value for key, value in table.items() if key != "from"}
        settings = build(RemedySettings, others, where)
        settings = _begun(settings, table.get("from"), where)
    else:
        settings = build(RemedySettings, table, where)
    if settings.resume is not None and isinstance(store, str):
        raise ConfigError(
            f"{where}.resume: checkpoints are not fetched from an object store; leave it out, or "
            'say from = "start"'
        )
    if times is not None and times < 0:
        raise ConfigError(f"remedy: must be at least 0 attempts, not {times}")
    return settings if times is None else replace(settings, times=times)


def _begun(settings: RemedySettings, origin: object, where: str) -> RemedySettings:
    """Return the settings with what the key ``from`` says, which no field can be called."""
    if origin not in (None, *_ORIGINS):
        raise ConfigError(f'{where}.from: must be "checkpoint" or "start", not {origin!r}')
    if origin == "checkpoint" and settings.resume is None:
        raise ConfigError(
            f"{where}.resume: is missing; it names the parameter in which the script takes the "
            "path of a checkpoint"
        )
    return replace(settings, resume=None) if origin == "start" else settings
