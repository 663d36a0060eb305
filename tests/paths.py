"""Paths in this repository that tests share."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SCRIPTS = TESTS / "scripts"
