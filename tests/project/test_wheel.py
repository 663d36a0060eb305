"""The wheel holds every file of the package, and its description every link of the README."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.paths import ROOT

SOURCES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
TARGET = re.compile(r"\]\((?P<target>[^)\s]+)\)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy: setuptools writes into the folder that it builds, and packs what an older build left.
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "vinedresser", source / "vinedresser", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(folder), str(source)], check=True
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.thorough
def test_it_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in ROOT.glob("vinedresser/**/*") if path.is_file()}
    expected = {
        path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts
    }
    assert packed == expected


@pytest.mark.thorough
def test_links_of_its_description_are_absolute_and_lead_to_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    description = metadata.get_payload()
    assert isinstance(description, str)
    repository = dict(entry.split(", ") for entry in metadata.get_all("Project-URL", []))[
        "Repository"
    ]
    targets = TARGET.findall(description)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(targets) == len(TARGET.findall(readme))
    for target in targets:
        assert target.startswith("https://")
        if target.startswith(repository):
            path = re.sub(rf"^{repository}/(blob|raw)/main/|#.*", "", target)
            assert (ROOT / path).exists(), target
            assert ("/raw/" in target) == target.endswith(".png")
