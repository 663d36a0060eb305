"""Checks of the installed packages: versions that fit together, and what they send."""

from __future__ import annotations

import os
import platform
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from vinedresser.tasks.health.check import Check

_AREA = "installation"
_PACKAGE = "vinedresser"
# The values with which each variable keeps its library from sending data about its use.
_SILENT = {
    "DO_NOT_TRACK": ("1", "true", "yes", "on"),
    "HF_HUB_DISABLE_TELEMETRY": ("1", "true", "yes", "on"),
    "MLFLOW_DISABLE_TELEMETRY": ("1", "true"),
    "PREFECT_SERVER_ANALYTICS_ENABLED": ("0", "false", "no", "off", "f", "n"),
    "RAY_USAGE_STATS_ENABLED": ("0", "false"),
}


def installation_checks() -> Iterator[Check]:
    """Yield the checks of the packages."""
    yield from _packages()
    yield from _telemetry(os.environ)


def _packages() -> Iterator[Check]:
    python = f"Python {platform.python_version()}"
    installed = _Installed()
    own = installed.versions.get(_PACKAGE)
    if own is None:
        seen = f"{python}; {_PACKAGE} is not installed here, so its requirements are not known"
        yield Check(_AREA, "packages", "unknown", seen, "pip install it, also with -e")
        return
    try:
        unmet = installed.unmet()
    except InvalidRequirement as error:
        seen = f"requirements cannot be read: {error}"
        yield Check(_AREA, "packages", "unknown", seen, "pip check")
        return
    for need, sentence in unmet.items():
        yield Check(_AREA, "packages", "problem", sentence, f'pip install "{need}"')
    if not unmet:
        complete = [extra for extra in installed.extras if installed.has_extra(extra)]
        seen = f"{python}, {_PACKAGE} {own}; versions fit; complete extras: "
        yield Check(_AREA, "packages", "ok", seen + (", ".join(complete) or "none"))


class _Installed:
    """The installed packages.

    Attributes:
        versions: version of each, by its canonical name.
    """

    def __init__(self) -> None:
        self._found: dict[str, metadata.Distribution] = {}
        for one in metadata.distributions():
            # What an interrupted removal leaves has no metadata, or none with a name; the backport
            # importlib_metadata, which replaces the finder where it is loaded, raises then.
            with suppress(FileNotFoundError):
                if name := one.metadata["Name"]:
                    # The first one on the path is imported.
                    self._found.setdefault(canonicalize_name(name), one)
        self.versions = {name: one.version for name, one in self._found.items()}
        self._requirements: dict[str, list[Requirement]] = {}

    @property
    def extras(self) -> list[str]:
        """The extras of vinedresser."""
        return self._found[_PACKAGE].metadata.get_all("Provides-Extra") or []

    def needs(self, name: str, extra: str) -> list[Requirement]:
        """Return what a package requires here, with what an extra does unless it is ""."""
        if name not in self._requirements:
            self._requirements[name] = [*map(Requirement, self._found[name].requires or ())]
        return [
            one
            for one in self._requirements[name]
            if one.marker is None or one.marker.evaluate({"extra": extra})
        ]

    def has_extra(self, extra: str) -> bool:
        """Return whether all packages of an extra of vinedresser are installed."""
        needs = self.needs(_PACKAGE, extra)
        others = [each for need in needs if need.name == _PACKAGE for each in need.extras]
        return all(canonicalize_name(need.name) in self.versions for need in needs) and all(
            self.has_extra(other) for other in others
        )

    def unmet(self) -> dict[str, str]:
        """Return a sentence for each unmet requirement, of vinedresser and of what it needs.

        A package of an extra of vinedresser may be missing, but one that is there must fit.
        """
        found: dict[str, str] = {}
        queue = deque((_PACKAGE, extra) for extra in ("", *self.extras))
        done = set()
        while queue:
            name, extra = queue.popleft()
            if (name, extra) in done:
                continue
            done.add((name, extra))
            for need in self.needs(name, extra):
                wanted, needed = f"{need.name}{need.specifier}", canonicalize_name(need.name)
                version = self.versions.get(needed)
                if version is None:
                    if name != _PACKAGE or not extra:
                        found[wanted] = f"{name} needs {wanted}, which is not installed"
                    continue
                if not need.specifier.contains(version, prereleases=True):
                    found[wanted] = f"{name} needs {wanted}, and {version} is installed"
                queue += [(needed, one) for one in ("", *need.extras)]
        return found


def _telemetry(environment: Mapping[str, str]) -> Iterator[Check]:
    """Yield what the environment says about data on the use of libraries.

    Importing `vinedresser` sets the variables that are not set, so another value is the user's.
    """
    loud = {
        name: environment.get(name, "")
        for name, silent in _SILENT.items()
        if environment.get(name, "").lower() not in silent
    }
    for name, value in loud.items():
        seen = f"{name}={value} lets a library send data about its use"
        yield Check(_AREA, "telemetry", "warning", seen, f"unset {name}")
    if not loud:
        yield Check(_AREA, "telemetry", "ok", "off for Prefect, MLflow, Ray and Hugging Face")
