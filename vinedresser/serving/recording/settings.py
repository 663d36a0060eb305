"""What a recorder records, and where."""

from __future__ import annotations

from dataclasses import dataclass

from vinedresser.columns.outputs import Classify
from vinedresser.serving.recording.limits import Limits
from vinedresser.serving.storing.layout import ServiceFolder


@dataclass(frozen=True)
class Settings:
    """What to record and where.

    Attributes:
        features: names of features; see `describe`.
        classify: how to read predictions; see `describe`.
        sample: share of the requests to record.
    """

    folder: ServiceFolder
    features: tuple[str, ...] | None
    classify: Classify | None
    sample: float
    limits: Limits
