"""Files stay small, and folders do not hold two or three of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.paths import ROOT

LINES = 600
MODULES = 4
FOLDERS = ("vinedresser", "tests", "benchmarks", "examples")


def source_files() -> list[Path]:
    return [path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")]


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    too_long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LINES}
    assert too_long == {}


def small_folders(package: Path) -> list[str]:
    """Return the folders of a package with few modules and packages, relative to its parent."""
    files = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    folders = {path.parent for path in files}
    members = {*files, *folders}
    counts = {folder: sum(member.parent == folder for member in members) for folder in folders}
    return sorted(str(one.relative_to(package.parent)) for one, n in counts.items() if n < MODULES)


@pytest.mark.filterwarnings("default:folders with fewer")
def test_small_folders_are_warned_of(tmp_path: Path) -> None:
    package = tmp_path / "package"
    for name in ("a", "b", "c", "inner/d", "inner/__init__"):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert small_folders(package) == ["package/inner"]
    if small := small_folders(ROOT / "vinedresser"):
        warnings.warn(
            f"folders with fewer than {MODULES} modules: {', '.join(small)}", stacklevel=1
        )


def test_the_readme_is_a_front_page() -> None:
    # What is longer belongs into docs/, which the README links.
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
