"""The tables of settings in the documents are those of the classes that declare the settings."""

from __future__ import annotations

import runpy

import pytest

from tests.paths import ROOT


def test_the_tables_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "settings_tables.py"))
    assert script["main"](check=True) == 0, capsys.readouterr().out
