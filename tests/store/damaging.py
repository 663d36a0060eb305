"""Damages of a run's files: other bytes, other JSON, stray names, links, FIFOs and folders."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

from fastcrc import crc32

__all__ = ["CAPTURED", "RECORDS", "Damaging", "other_bytes", "other_json", "resealed"]

CAPTURED = ("segments/0/*", "index/0/*", "manifests/0/*", "index/0/*0.json", "index/0/*3.json")
RECORDS = ("run.json", "exit.json", "heartbeat/0.json", "findings/g.jsonl")
_NESTED: Any = []
for _ in range(300):
    _NESTED = [_NESTED]
# What is in place of a value whose checksum is right all the same.
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**62, 2**63, 2**70, 1.5, -0.0, 1e308, float("nan")),
    *(10**400, -(10**400), float("inf"), False, "\ud800", "\x1b[2J\u202e", [0, 2**62, 2**62]),
    *("", "x", "F32", "00000000", [], [0], [-1], [2**40], ["x"], [[]], [[2**40]], [None], {}),
    {"layout": 0},
    *(_NESTED, {"a": _NESTED}, [{}], {"x": 10**400}, "random"),
)
_FOLDERS = ("segments/0", "index/0", "manifests/0", "heartbeat", ".")


def other_bytes(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Return corrupt content, and a description of the change; the content must not be empty."""
    changed = bytearray(content)
    place = chance.randrange(len(content))
    what = chance.choice(["flip", "cut", "extend", "zero", "noise"])
    if what == "flip":
        changed[place] ^= 1 << chance.randrange(8)
    elif what == "cut":
        del changed[place:]
    elif what == "extend":
        changed += chance.randbytes(chance.randrange(1, 100))
    elif what == "zero":
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    else:
        changed[:] = chance.randbytes(len(changed))
    return bytes(changed), f"{what} at {place}"


def other_json(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Return a JSON object with another value or without a key, and with a right checksum."""
    document = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(document)
    node, key = chance.choice(places)
    if isinstance(node, dict) and chance.random() < 0.2:
        del node[key]
        what = "nothing"
    else:
        node[key] = chance.choice(_ODD)
        what = repr(node[key])
    return resealed(json.dumps(document).encode()), f"{what[:60]} for {key!r}"


def resealed(content: bytes) -> bytes:
    """Return a sealed object with a right checksum; other JSON as it is."""
    sealed = re.fullmatch(rb'\{"crc32c": ?"\w*", ?"(\w+)": ?(.*)\}', content, re.DOTALL)
    if sealed is None:
        return content
    return b'{"crc32c":"%08x","%s":%s}' % (crc32.iscsi(sealed[2]), sealed[1], sealed[2])


class Damaging:
    """Damages the files of a run, and heals them again.

    Args:
        folder: the run; its files are replaced, never written to.
        chance: picks the damages.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._known: dict[str, list[Path]] = {}
        self._healthy: dict[Path, bytes] = {}
        self._strays: list[Path] = []
        self._aside: Path | None = None

    def pick(self, kinds: tuple[str, ...]) -> Path:
        """Return a file of one of these kinds; there is one."""
        while True:
            kind = self._chance.choice(kinds)
            if kind not in self._known:
                self._known[kind] = sorted(self._folder.glob(kind))
            if self._known[kind]:
                return self._chance.choice(self._known[kind])

    def write(self, path: Path, content: bytes | None) -> None:
        """Replace a file; None: remove it."""
        self._healthy.setdefault(path, path.read_bytes())
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    def bytes_of(self, kinds: tuple[str, ...]) -> str:
        """Corrupt a file of one of these kinds; return a description of the change."""
        path, chance = self.pick(kinds), self._chance
        name = path.relative_to(self._folder)
        if not path.is_file() or path.is_symlink() or not (content := path.read_bytes()):
            return f"{name} is damaged already"
        # One in eight is removed, and two get the content of another file.
        fate = chance.randrange(8)
        if fate == 0:
            self.write(path, None)
            return f"delete {name}"
        other = chance.choice(sorted(path.parent.iterdir()))
        if fate < 3 and other.is_file() and not other.is_symlink():
            theirs = other.read_bytes()
            if fate == 1:
                self.write(other, content)
            self.write(path, theirs)
            return f"{'swap' if fate == 1 else 'duplicate'} {name}, {other.name}"
        changed, said = other_bytes(content, chance)
        self.write(path, changed)
        return f"{said} of {name}"

    def json_of(self, kinds: tuple[str, ...]) -> str:
        """Replace a value in a JSON file of one of these kinds; return a description."""
        path = self.pick(kinds)
        changed, said = other_json(path.read_bytes(), self._chance)
        self.write(path, changed)
        return f"{said} in {path.relative_to(self._folder)}"

    def clutter(self) -> str:
        """Add a name that the contract does not know, or put something else in place of a file."""
        what = self._chance.choice(["copy", "copy", "link", "dangling", "fifo", "folder", "move"])
        if what == "move":
            return self._move()
        path = self.pick((f"{self._chance.choice(_FOLDERS)}/*.*", "index/0/*.*"))
        content = path.read_bytes()
        if what == "copy":
            return self._add_stray(path, content)
        self.write(path, None)
        if what == "folder":
            path.mkdir()
        elif what == "fifo":
            os.mkfifo(path)
        else:
            target = path.with_name("target")
            if what == "link":
                target.write_bytes(content)
                self._strays.append(target)
            path.symlink_to(target)
        return f"delete {path.relative_to(self._folder)} for a {what}"

    def heal(self) -> None:
        """Undo all damages."""
        for stray in self._strays:
            stray.unlink(missing_ok=True)
        self._strays.clear()
        if self._aside is not None:
            self._aside.rename(self._folder / "index" / "0")
            self._aside = None
        for path, content in self._healthy.items():
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        self._healthy.clear()

    def _add_stray(self, path: Path, content: bytes) -> str:
        """Write a file under a name that resembles another one's."""
        names = [f"{path.name}~", f"{path.name}.6eF3a2C1", f"0{path.name}", "5.json", "٣.json"]
        # Bytes that are not UTF-8, and characters that move a terminal's cursor.
        names += ["\udcff.json", "\x1b[2J\n.json"]
        stray = path.with_name(self._chance.choice(names))
        if self._chance.random() < 0.2:
            stray.symlink_to(path.name)
        else:
            stray.write_bytes(content)
        self._strays.append(stray)
        return f"stray {stray.relative_to(self._folder)!s}".encode("utf-8", "replace").decode()

    def _move(self) -> str:
        """Put something else in place of the folder of index records."""
        folder = self._folder / "index" / "0"
        self._aside = self._folder.with_name("aside")
        folder.rename(self._aside)
        self._strays.append(folder)
        what = self._chance.choice(["link", "fifo", "file"])
        if what == "link":
            folder.symlink_to(self._aside)
        elif what == "fifo":
            os.mkfifo(folder)
        else:
            folder.write_bytes(b"{}")
        return f"delete index/0 for a {what}"
