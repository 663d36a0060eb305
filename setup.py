"""The README for PyPI, where its relative links would lead nowhere; see pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# An image or a link, up to a path that is neither a URL nor an anchor.
LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\]\()(?!\w+:|#)")


def absolute(link: re.Match[str]) -> str:
    """Return the beginning of a link, with the address of the repository."""
    files = "raw" if link["image"] else "blob"
    return f"{link['image']}{link['text']}{PROJECT['urls']['Repository']}/{files}/main/"


setup(
    long_description=LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
