"""The options of `vinedresser replay` that run the step of a snapshot again, as a suggestion."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["replay_options", "script_of"]

_FIND = ("--locate", "--bisect")


def replay_options(
    framework: str,
    command: Sequence[str],
    further: Sequence[str] = (),
    *,
    factory: str = "",
    world_size: int = 1,
    own_loop: bool = False,
) -> list[str]:
    """Return options that run a step again, as text for a person: nothing is run because of them.

    Args:
        framework: framework of the snapshot: "torch", "keras" or "xgboost".
        command: the command of the run, as recorded.
        further: options to put behind those that find the cause.
        factory: what builds the step again, `module:function`; "" if it is not known.
        world_size: number of processes of the training; a script is run in one.
        own_loop: whether it is a step of one Keras model in Keras's own loop.

    Returns:
        Options that name the script if the run is that of a script whose step it can run again,
        else a place for the name of a factory.
    """
    if framework == "xgboost":
        return ["--factory", factory or "MODULE:OBJECTIVE", "--bisect", *further]
    runs = world_size == 1 and (framework == "torch" or own_loop)
    script = script_of(command) if runs else []
    if not script:
        return ["--factory", factory or "MODULE:FUNCTION", *_FIND, *further]
    arguments = ["--", *script[1:]] if script[1:] else []
    return ["--script", script[0], *_FIND, *further, *arguments]


def script_of(command: Sequence[str]) -> list[str]:
    """Return the Python script of a command and its arguments; [] if it runs something else.

    Args:
        command: a script and its arguments, behind an interpreter and its options or not.
    """
    for place, one in enumerate(command):
        # A package that is run with -m has this name, and is no script.
        if one in ("-m", "-c") or one.endswith("__main__.py"):
            break
        if one.endswith(".py"):
            return list(command[place:])
        # The interpreter comes first; after it, anything but an option is no script.
        if place and not one.startswith("-"):
            break
    return []
