"""The list of all families, made of what they declare: `python -m corpus.manifest`.

Writes `corpus/manifest.json`, one line per family. With `--check`, it writes nothing: it prints
what the families declare wrongly, or the lines that differ, and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.faults.classes import CLASSES
from corpus.loader import PARTS, load, modules
from vinedresser.rules.faults import FAULTS

__all__ = ["MANIFEST", "faults_in", "main", "manifest"]

MANIFEST = Path(__file__).with_name("manifest.json")


def manifest() -> str:
    """Return the manifest, a JSON list with a line per family."""
    lines = [json.dumps(row, ensure_ascii=False) for part in PARTS for row in _rows(part)]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _rows(part: str) -> Iterator[dict[str, Any]]:
    for name, family in load(part).items():
        module = import_module(modules(part)[name])
        # "corpus.families.images.video" is about images.
        _, _, kind, *_ = module.__name__.split(".")
        yield {
            "name": name,
            "part": part,
            "kind": kind,
            "framework": family.framework,
            "task": (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ").rstrip(" ."),
            "faults": sorted(family.faults),
            "spent": family.spent,
        }


def faults_in(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what families declare wrongly, a sentence each.

    Args:
        rows: rows of the manifest.
    """
    found = []
    names: set[str] = set()
    for row in rows:
        place = f"corpus/{row['part']}/{row['kind']}/{row['name']}.py"
        if row["name"] in names:
            found.append(f"{place}: another family has the same name")
        names.add(row["name"])
        if not row["task"]:
            found.append(f"{place}: the docstring must begin with the task")
        if len(set(row["faults"])) < len(row["faults"]):
            found.append(f"{place}: a fault is declared twice")
        unknown = sorted(set(row["faults"]) - {*CLASSES, *FAULTS})
        if unknown:
            found.append(f"{place}: faults without a class: {', '.join(unknown)}")
        if row["part"] == "sealed" and row["spent"]:
            found.append(f"{place}: a sealed family is not spent")
        if row["part"] != "sealed" and not _is_date(row["spent"]):
            found.append(f"{place}: spent must be a date, YYYY-MM-DD")
    return found


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Write or check the manifest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if needed")
    options = parser.parse_args(arguments)
    text = manifest()
    rows = json.loads(text)
    if wrong := faults_in(rows):
        sys.exit("\n".join(wrong))
    if not options.check:
        MANIFEST.write_text(text, encoding="utf-8")
    elif (there := MANIFEST.read_text(encoding="utf-8") if MANIFEST.exists() else "") != text:
        changes = unified_diff(there.splitlines(), text.splitlines(), n=0, lineterm="")
        sys.exit(
            "\n".join([*changes, f"{MANIFEST.name} is out of date: python -m corpus.manifest"])
        )
    parts = ", ".join(f"{sum(row['part'] == part for row in rows)} in {part}" for part in PARTS)
    print(f"{len(rows)} families: {parts}")


if __name__ == "__main__":
    main()
