"""Write the tables of settings in the documents, from the classes that declare them.

    python docs/settings_tables.py          write them
    python docs/settings_tables.py --check  exit with 1, naming the documents that are out of date

A table stands below a line such as ``<!-- settings: vinedresser.sweeps.settings.SweepTable -->``;
names after "without" are left out. The defaults are those of the class, the texts those of the
attributes in its docstring.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
TABLE = re.compile(
    r"(?P<marker><!-- settings: (?P<module>[\w.]+)\.(?P<name>\w+)(?: without (?P<without>[\w ,]+))?"
    r" -->\n)(?:\n(?=\|))?(?:\|.*\n)*"
)
# A value in quotes, unless it is part of code.
VALUE = re.compile(r"`[^`]*`|\"[\w :/.-]+\"")
ATTRIBUTE = re.compile(r"^    (?P<name>\w+): (?P<text>.+(?:\n        .+)*)", re.MULTILINE)


def texts(kind: type[Any]) -> dict[str, str]:
    """Return the texts of the attributes of a class, and of those from which it inherits."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        attributes = (inspect.getdoc(one) or "").partition("\nAttributes:\n")[2]
        found |= {each["name"]: each["text"] for each in ATTRIBUTE.finditer(attributes)}
    return {name: as_markdown(" ".join(text.split())) for name, text in found.items()}


def as_markdown(text: str) -> str:
    """Return the text of a docstring with its code and its values as Markdown's code."""
    text = text.rstrip(".").replace("``", "`")
    return VALUE.sub(lambda value: value[0] if value[0][0] == "`" else f"`{value[0]}`", text)


def default(field: dataclasses.Field[Any]) -> str:
    """Return a default as in a TOML file; "" if there is none."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING or value in (None, "", [], {}):
        return ""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if isinstance(value, bool | int | float) else f"`{shown}`"


def table(kind: type[Any], without: set[str]) -> str:
    """Return the table of the settings that a class declares, its own ones first."""
    told, own = texts(kind), inspect.get_annotations(kind)
    ordered = sorted(dataclasses.fields(kind), key=lambda one: one.name not in own)
    rows = [
        f"| `{one.name}` | {default(one)} | {told[one.name]} |\n".replace("|  |", "| |")
        for one in ordered
        if one.name not in without
    ]
    return "".join(["| key | default | |\n", "|---|---|---|\n", *rows])


def written(match: re.Match[str]) -> str:
    """Return a marker with its table."""
    kind = getattr(importlib.import_module(match["module"]), match["name"])
    without = set(re.findall(r"\w+", match["without"] or ""))
    return f"{match['marker']}\n{table(kind, without)}"


def main(check: bool) -> int:
    """Write or check all documents; return the exit code."""
    outdated = []
    for document in sorted(DOCS.rglob("*.md")):
        text = document.read_text(encoding="utf-8")
        if (new := TABLE.sub(written, text)) != text:
            outdated.append(str(document.relative_to(DOCS)))
            if not check:
                document.write_text(new, encoding="utf-8")
    if outdated:
        sys.stdout.write(f"{'outdated' if check else 'written'}: {', '.join(outdated)}\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
