"""Environment variables that make the Python processes of a run capture trainings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import fastcrc

from vinedresser.capture.run.claims import MOST_RUNS, additional_location
from vinedresser.store.records import ATTACH_VARIABLE, ClaimRecord, LaunchRecord, RunRecord

__all__ = ["attach_environment", "additional_runs"]

_SITE = str(Path(__file__).with_name("site"))
# The directory of the checksum library, for a Python in which vinedresser is not installed.
_LIBRARIES = str(Path(fastcrc.__file__).parent.parent)


def attach_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables that make a Python process capture its trainings.

    Args:
        variables: the environment to extend; None for that of this process.
    """
    given = (os.environ if variables is None else variables).get("PYTHONPATH", "")
    # An empty entry means the working directory, but an empty variable has no entries.
    paths = [path for path in given.split(os.pathsep) if path != _SITE] if given else []
    return {ATTACH_VARIABLE: _LIBRARIES, "PYTHONPATH": os.pathsep.join([_SITE, *paths])}


def additional_runs(directory: Path) -> list[Path]:
    """Return the additional runs that a launched script has created."""
    # Strings are faster than paths: this is called ten times per second.
    places = (additional_location(str(directory), number) for number in range(2, MOST_RUNS + 1))
    claimed = (one for one in places if os.path.exists(f"{one}/{ClaimRecord.KEY}"))
    return [place for place in map(Path, claimed) if _is_additional(place)]


def _is_additional(place: Path) -> bool:
    """Return whether a claimed location has a run that was not launched itself."""
    return (place / RunRecord.KEY).is_file() and not (place / LaunchRecord.KEY).exists()
