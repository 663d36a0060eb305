"""Files and folders stay small."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.paths import ROOT

LINES = 400
FILES = 20
FOLDERS = ("vinedresser", "tests", "benchmarks", "examples")


def source_files() -> list[Path]:
    return [path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")]


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    too_long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LINES}
    assert too_long == {}


def test_no_folder_has_too_many_files() -> None:
    counts = Counter(path.parent for path in source_files() if path.name != "__init__.py")
    too_many = {str(path.relative_to(ROOT)): n for path, n in counts.items() if n > FILES}
    assert too_many == {}


def test_the_readme_is_a_front_page() -> None:
    # What is longer belongs into docs/, which the README links.
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
