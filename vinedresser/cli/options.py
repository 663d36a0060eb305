"""Arguments and options that several commands share, and how their words are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from vinedresser.errors import ConfigError

__all__ = [
    "CollectionOption",
    "DEFAULT_STORE",
    "PresetOption",
    "RuleOption",
    "RunArgument",
    "StoreArgument",
    "rules_asked_for",
    "tables",
]

DEFAULT_STORE = Path("runs")

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, or s3://bucket/prefix.")
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Where the runs are; also s3://bucket/prefix.")
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="NAME[:KEY=VALUE,...]",
        help="Judge by this rule; may be repeated.",
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Judge by the rules of this preset: default, strict, quiet, classification, "
        "regression, autoencoder, language_model, boosted_trees, adversarial, none.",
    ),
]
CollectionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--collection",
        metavar="NAME[:KEY=VALUE,...]",
        help="Capture this too; may be repeated.",
    ),
]


# A rule of one's own has a colon in its name: path/to/file.py:Name.
_WORDS = re.compile(r"(?P<name>.*?\.py(?::\w+(?=:|$))?|[^:]*)(?::(?P<settings>.*))?", re.DOTALL)


def tables(option: str, given: list[str] | None) -> dict[str, dict[str, Any]]:
    """Read ``NAME:KEY=VALUE,...`` as it was given to an option; values are written as in TOML.

    Raises:
        ConfigError: it is not written so.
    """
    import tomllib

    read: dict[str, dict[str, Any]] = {}
    for text in given or []:
        found = _WORDS.fullmatch(text)
        name, settings = (found["name"], found["settings"] or "") if found else (text, "")
        try:
            read[name] = tomllib.loads(f"it = {{ {settings} }}")["it"]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{option} {text}: write it as NAME:KEY=VALUE,KEY=VALUE with TOML values ({error})"
            ) from error
    return read


def rules_asked_for(preset: str | None, rule: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the rules of a preset, with what was given to ``--rule`` on top.

    Args:
        preset: its name; None: no rules but those given.
        rule: as it was given to ``--rule``.

    Raises:
        ConfigError: there is no such preset, or a rule is not written as it should be.
    """
    from vinedresser.rules.presets import preset_table

    chosen = preset_table(preset or "none", where=f"--preset {preset}")
    for name, settings in tables("--rule", rule).items():
        chosen[name] = {**chosen.get(name, {}), **settings}
    return chosen
