"""The pins of constraints.txt match the environment completely and exactly."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.paths import ROOT


def pins() -> dict[str, Version]:
    """Return the pinned version of each package, by its canonical name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(version) for name, version in pairs}


def installed_closure(requirement: Requirement, seen: set[str]) -> Iterator[str]:
    """Yield the canonical names of a requirement and its dependencies in this environment."""
    name = canonicalize_name(requirement.name)
    extras = requirement.extras or {""}
    if all(f"{name}[{extra}]" in seen for extra in extras):
        return
    seen |= {f"{name}[{extra}]" for extra in extras}
    yield name
    for text in distribution(name).requires or []:
        brought = Requirement(text)
        if brought.marker is None or any(brought.marker.evaluate({"extra": e}) for e in extras):
            yield from installed_closure(brought, seen)


@pytest.mark.thorough
def test_every_installed_package_is_pinned() -> None:
    expected = pins()
    names = set(installed_closure(Requirement("vinedresser[dev]"), set())) - {"vinedresser"}
    # The CPU build of torch has the version 2.13.0+cpu.
    versions = {name: Version(Version(distribution(name).version).public) for name in names}
    assert {
        name: version for name, version in versions.items() if expected.get(name) != version
    } == {}


def test_every_extra_accepts_its_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(text) for entries in lists for text in entries]
    expected = pins()
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        if name == "vinedresser":
            continue
        assert name in expected, f"{requirement} is not pinned"
        assert expected[name] in requirement.specifier, f"{requirement} refuses its pin"
