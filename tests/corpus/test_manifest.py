"""The manifest of the corpus: made of what families declare, which is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import corpus
from corpus import manifest
from corpus.loader import PARTS, load

ROW = {
    "name": "digits",
    "part": "families",
    "kind": "images",
    "framework": "torch",
    "task": "Digits",
    "faults": ["lr_too_high", "zero_init"],
    "spent": "2026-11-23",
}


def test_it_lists_every_module_with_what_it_declares() -> None:
    rows = json.loads(manifest.manifest())
    assert json.loads(manifest.MANIFEST.read_text(encoding="utf-8")) == rows
    folder = Path(corpus.__path__[0])
    places = {str(path.relative_to(folder)) for part in PARTS for path in folder.glob(f"{part}/*/*.py")}
    assert {f"{row['part']}/{row['kind']}/{row['name']}.py" for row in rows} == {
        place for place in places if not place.endswith("__init__.py")
    }
    assert manifest.faults_in(rows) == []
    listed = {row["name"]: row for row in rows}
    for name, family in load("recipes").items():
        assert listed[name]["faults"] == sorted(family.faults)
        assert (listed[name]["framework"], listed[name]["spent"]) == (family.framework, family.spent)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"faults": ["lr_too_high", "no_such_fault"]}, "no_such_fault"),
        ({"faults": ["zero_init", "zero_init"]}, "twice"),
        ({"task": ""}, "docstring"),
        ({"spent": ""}, "YYYY-MM-DD"),
        ({"spent": "23 November"}, "YYYY-MM-DD"),
        ({"part": "sealed"}, "not spent"),
    ],
)
def test_a_wrong_declaration_names_the_family(changed: dict[str, Any], said: str) -> None:
    assert manifest.faults_in([ROW]) == []
    (sentence,) = manifest.faults_in([{**ROW, **changed}])
    assert said in sentence
    assert "/images/digits.py" in sentence


def test_names_are_unique_over_all_parts() -> None:
    (sentence,) = manifest.faults_in([ROW, {**ROW, "part": "sealed", "spent": ""}])
    assert "same name" in sentence


def test_an_old_manifest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
    monkeypatch.setattr(manifest, "PARTS", ("recipes",))
    with pytest.raises(SystemExit, match="out of date"):
        manifest.main(["--check"])
    manifest.main([])
    manifest.main(["--check"])
    assert capsys.readouterr().out.count("22 in recipes") == 2
    text = manifest.MANIFEST.read_text(encoding="utf-8")
    manifest.MANIFEST.write_text(text.replace("lr_too_low", "lr_too_high", 1), encoding="utf-8")
    with pytest.raises(SystemExit, match="lr_too_low"):
        manifest.main(["--check"])
