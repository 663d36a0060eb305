"""What a launcher does so that all Pythons of a run look for trainings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vinedresser.capture.run.claims import MOST_RUNS, additional_location
from vinedresser.store.records import (
    ATTACH_VARIABLE,
    ClaimRecord,
    LaunchRecord,
    RunRecord,
)

__all__ = ["attach_environment", "additional_runs"]

_SITE = str(Path(__file__).with_name("site"))


def attach_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables by which a launched Python attaches to what it trains.

    Args:
        variables: the environment that they are added to; None: this process's.
    """
    given = (os.environ if variables is None else variables).get("PYTHONPATH", "")
    # An empty entry is the working directory; an empty list has none.
    paths = [path for path in given.split(os.pathsep) if path != _SITE] if given else []
    return {ATTACH_VARIABLE: "1", "PYTHONPATH": os.pathsep.join([_SITE, *paths])}


def additional_runs(directory: Path) -> list[Path]:
    """Return the runs of the further trainings that a launched script has made."""
    # Texts, not paths: this is asked ten times a second for as long as a script runs.
    places = (additional_location(str(directory), number) for number in range(2, MOST_RUNS + 1))
    claimed = (one for one in places if os.path.exists(f"{one}/{ClaimRecord.KEY}"))
    return [place for place in map(Path, claimed) if _is_additional(place)]


def _is_additional(place: Path) -> bool:
    """Say whether a run was made where a training has a claim; a launched one may have it, too."""
    return (place / RunRecord.KEY).is_file() and not (place / LaunchRecord.KEY).exists()
