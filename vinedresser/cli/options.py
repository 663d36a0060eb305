"""Arguments and options that several commands share, and their parsing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vinedresser.errors import ConfigError
from vinedresser.objects import Location

__all__ = [
    "CollectionOption",
    "DEFAULT_STORE",
    "PresetOption",
    "RuleOption",
    "RunArgument",
    "StoreArgument",
    "check_directory",
    "check_number",
    "check_script_argument",
    "selected_rules",
    "tables",
]

DEFAULT_STORE = Path("runs")
# More seconds than anybody waits, and fewer than threads can.
_LARGEST = 1e9

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run directory or s3://bucket/prefix.")
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Directory of the runs or s3://bucket/prefix.")
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="NAME[:KEY=VALUE,...]", help="Judge by this rule; repeatable."),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Judge by this preset: default, strict, advisory, quiet, classification, "
        "regression, autoencoder, language_model, boosted_trees, adversarial, none.",
    ),
]
CollectionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--collection",
        metavar="NAME[:KEY=VALUE,...]",
        help="Also capture this collection; repeatable.",
    ),
]


# The name of a custom rule has a colon: path/to/file.py:Name.
_WORDS = re.compile(r"(?P<name>.*?\.py(?::\w+(?=:|$))?|[^:]*)(?::(?P<settings>.*))?", re.DOTALL)


def check_number(parameter: typer.CallbackParam, value: float) -> float:
    """Return the value of an option, unless it is no number that a clock understands.

    Args:
        parameter: the option, for the error message.
        value: seconds, or a rate.

    Raises:
        ConfigError: it is negative, too large, infinite or NaN.
    """
    if not 0 <= value <= _LARGEST:
        option = (parameter.opts or [""])[0]
        raise ConfigError(f"{option} {value:g}: must be a number from 0 to {_LARGEST:,.0f}")
    return value


def check_script_argument(command: Sequence[str], name: str) -> None:
    """Check that the program of a command line does not look like an option of vinedresser.

    Args:
        command: the program and its arguments.
        name: name of the command that runs it.

    Raises:
        ConfigError: it does; such an option does not exist.
    """
    first = command[0]
    if first.startswith("-") and first != "-m":
        raise ConfigError(
            f"{first}: `vinedresser {name}` has no such option; its options stand before the "
            f"script, as in `vinedresser {name} --OPTION VALUE train.py`"
        )


def tables(option: str, given: list[str] | None) -> dict[str, dict[str, Any]]:
    """Parse values of the form ``NAME:KEY=VALUE,...``, where each VALUE is TOML.

    Args:
        option: the option, for the error message.

    Returns:
        Settings by name.

    Raises:
        ConfigError: a value does not have this form.
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
                f"{option} {text}: expected NAME:KEY=VALUE,KEY=VALUE with TOML values ({error})"
            ) from error
    return read


def selected_rules(preset: str | None, rule: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the rules of a preset, updated with those of ``--rule``.

    Args:
        preset: name of the preset; None: only the rules given.
        rule: values of ``--rule``.

    Raises:
        ConfigError: no such preset, or a malformed rule.
    """
    from vinedresser.rules.presets import preset_table

    chosen = preset_table(preset or "none", where=f"--preset {preset}")
    for name, settings in tables("--rule", rule).items():
        chosen[name] = {**chosen.get(name, {}), **settings}
    return chosen


def check_directory(store: Location) -> None:
    """Check that a local store exists.

    Raises:
        ConfigError: no such directory.
    """
    from vinedresser.store.reading.store_runs import runs_nearby

    if isinstance(store, Path) and not store.is_dir():
        hint = runs_nearby(store) or "; give a store or a run directory"
        raise ConfigError(f"{store}: no such directory{hint}")
