"""Settings of a training that can be asked and steered while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.objects import parse_location


@dataclass(frozen=True)
class LiveSettings:
    """Whether a running training may be asked and steered.

    Attributes:
        control: true: it may be paused and resumed; false: nothing of it may be changed; None: if
            the script declares a tunable parameter.
        replay: location of a run whose changes of parameters are made again at the same steps; "":
            none.
        enabled: whether other programs of this user may ask the training.
    """

    control: bool | None = None
    replay: str = ""
    enabled: bool = False

    def __post_init__(self) -> None:
        """Check the types."""
        if self.control is not None and type(self.control) is not bool:
            raise ConfigError(f"live.control: must be true or false, not {self.control!r}")
        if type(self.enabled) is not bool:
            raise ConfigError(f"live.enabled: must be true or false, not {self.enabled!r}")
        if not isinstance(self.replay, str):
            raise ConfigError(f"live.replay: must be the location of a run, not {self.replay!r}")

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "live") -> Self:
        """Read the settings of a run's record or of a file's table.

        Args:
            document: the settings by name; a missing one is None.
            where: name of the table, for messages.

        Raises:
            ConfigError: a setting is unknown or invalid.
        """
        known = list(asdict(cls()))
        if not isinstance(document, Mapping):
            raise ConfigError(f"{where}: must be a table, not {document!r}")
        for name in document:
            if name not in known:
                raise ConfigError(f"{where}.{name}: no such setting{did_you_mean(name, known)}")
        return cls(**document)

    def located(self, base: Path) -> LiveSettings:
        """Return the settings with an absolute location of the replayed run.

        Args:
            base: folder to which a path is relative.

        Raises:
            ConfigError: the URL is invalid.
        """
        if not self.replay:
            return self
        place = parse_location(self.replay)
        if isinstance(place, Path):
            place = (base / place.expanduser()).resolve()
        return replace(self, replay=str(place))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON types."""
        return asdict(self)
