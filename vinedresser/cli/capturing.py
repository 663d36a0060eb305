"""`vinedresser capture`: changing what a running training captures."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import RunArgument
from vinedresser.errors import ConfigError

__all__ = ["capture"]


def capture(
    run: RunArgument,
    *,
    collection: Annotated[str, typer.Option(help="Name of the collection that changes.")],
    every: Annotated[int | None, typer.Option(min=1, help="Save every so many steps.")] = None,
    start: Annotated[int, typer.Option(min=0, help="First step.")] = 0,
    stop: Annotated[int | None, typer.Option(help="First step no longer saved.")] = None,
    steps: Annotated[str, typer.Option(help="Steps saved in any case, as 10,20,30.")] = "",
    reductions: Annotated[
        str, typer.Option(help="Statistics to keep instead of the tensors, as l2,abs_mean.")
    ] = "",
    tensor: Annotated[
        bool, typer.Option("--tensor", help="Keep the tensors beside the statistics.")
    ] = False,
    regex: Annotated[str | None, typer.Option(help="Makes a collection of one's own.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Save it no longer.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the training.")] = 30.0,
) -> None:
    """Change what a running training captures, from its next step on.

    What its rules need is captured all the same.
    """
    from vinedresser.capture.requests.requesting import await_change, request_capture
    from vinedresser.cli.views.terminal import console
    from vinedresser.store.collections.collection import Collection
    from vinedresser.store.collections.schedule import SaveConfig
    from vinedresser.store.storage import open_storage

    if off == bool(every or steps):
        raise ConfigError("capture: say when to save, with --every or --steps, or else --off")
    words = tuple(reductions.replace(",", " ").split())
    save = SaveConfig(
        every=every or 0,
        start=start,
        stop=stop,
        steps=tuple(_whole(word, "--steps") for word in steps.replace(",", " ").split()),
        reductions=words,
        tensor=True if tensor else None,
    )
    storage = open_storage(run)
    number = request_capture(storage, [Collection(collection, regex, save)])
    change = await_change(storage, number, timeout)
    if change is None:
        console.print(f"{run}: asked; the training has ended no step since", soft_wrap=True)
    elif change.refused:
        raise ConfigError(f"{run}: refused: {change.refused}")
    else:
        console.print(f"{run}: {collection} changed from step {change.step} on", soft_wrap=True)


def _whole(word: str, option: str) -> int:
    """Return a word as a whole number."""
    if not word.isdecimal():
        raise ConfigError(f"{option}: {word!r} is not a step number")
    return int(word)
