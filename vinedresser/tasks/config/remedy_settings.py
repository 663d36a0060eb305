"""`[remedy]` of an experiment file: attempts that replace a stopped run, and restarts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt, Lt

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.infra.entry import is_reference
from vinedresser.objects import Location

__all__ = ["NO_REMEDY", "RemedySettings", "remedy_settings"]

_ORIGINS = ("checkpoint", "start")


@dataclass(frozen=True)
class RemedySettings:
    """How a run that a rule stopped, or that failed, is replaced.

    Attributes:
        times: maximum number of attempts to replace one run; 0: none.
        resume: the script's parameter for the path of a checkpoint; None: attempts begin from the
            start.
        restarts: how often a run begins again that crashed, was killed or was stopped because it
            hung, from its last checkpoint with ``resume``.
        factory: ``module:function`` that builds the model and the step of a replay: changes are
            tried on a snapshot of the stopped run before one is chosen; None: in the script of the
            run, if it is one.
        seconds: time for the trials of one run.
    """

    times: Annotated[int, Ge(0)] = 2
    resume: str | None = None
    restarts: Annotated[int, Ge(0)] = 0
    factory: str | None = None
    seconds: Annotated[float, Gt(0), Lt(math.inf)] = 60.0

    def __post_init__(self) -> None:
        """Check values that types do not."""
        if self.factory is not None and not is_reference(self.factory):
            raise ValueError(f'factory: must be "module:function", not {self.factory!r}')


NO_REMEDY = RemedySettings(times=0)


def remedy_settings(table: object, *, store: Location, where: str) -> RemedySettings:
    """Check the table of an experiment file.

    Args:
        table: times, from, resume, factory, seconds; None if the file has none.
        where: file and key, for messages.

    Raises:
        ConfigError: the table is invalid; the message names the key and what is expected.
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
            f'{where}.resume: not supported on an object store; remove it, or set from = "start"'
        )
    return settings


def _begun(settings: RemedySettings, origin: object, where: str) -> RemedySettings:
    """Return the settings with the key ``from``, which is not a valid name of a field."""
    if origin not in (None, *_ORIGINS):
        raise ConfigError(f'{where}.from: must be "checkpoint" or "start", not {origin!r}')
    if origin == "checkpoint" and settings.resume is None:
        raise ConfigError(
            f"{where}.resume: missing; it names the script's parameter for the path of a checkpoint"
        )
    return replace(settings, resume=None) if origin == "start" else settings
