"""`vinedresser capture`: change what a running training captures."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import RunArgument, check_number
from vinedresser.errors import ConfigError


def capture(
    run: RunArgument,
    *,
    collection: Annotated[str, typer.Option(help="Name of the collection to change.")],
    every: Annotated[int | None, typer.Option(min=1, help="Save every N steps.")] = None,
    start: Annotated[int, typer.Option(min=0, help="First step to save.")] = 0,
    stop: Annotated[int | None, typer.Option(help="First step not to save.")] = None,
    steps: Annotated[str, typer.Option(help="Additional steps to save, such as 10,20,30.")] = "",
    reductions: Annotated[
        str, typer.Option(help="Statistics to save instead of tensors, such as l2,abs_mean.")
    ] = "",
    tensor: Annotated[
        bool, typer.Option("--tensor", help="Save the tensors as well as the statistics.")
    ] = False,
    regex: Annotated[
        str | None, typer.Option(help="Define a custom collection by this regex.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Stop saving the collection.")] = False,
    timeout: Annotated[
        float,
        typer.Option(callback=check_number, help="Seconds to wait for the training to respond."),
    ] = 30.0,
) -> None:
    """Change what a running training captures.

    The change takes effect at the next step. Tensors that the rules need are always captured.
    """
    from vinedresser.capture.requests.requesting import await_change, request_capture
    from vinedresser.cli.views.console import console
    from vinedresser.objects import open_storage
    from vinedresser.store.collections.collection import Collection
    from vinedresser.store.collections.schedule import SaveConfig

    if off == bool(every or steps):
        raise ConfigError("capture: choose when to save with --every or --steps, or use --off")
    numbers = steps.replace(",", " ").split()
    for word in numbers:
        if not word.isdecimal():
            raise ConfigError(f"--steps: {word!r} is not a step number")
    save = SaveConfig(
        every=every or 0,
        start=start,
        stop=stop,
        steps=tuple(map(int, numbers)),
        reductions=tuple(reductions.replace(",", " ").split()),
        tensor=True if tensor else None,
    )
    storage = open_storage(run)
    number = request_capture(storage, [Collection(collection, regex, save)])
    change = await_change(storage, number, timeout)
    if change is None:
        console.print(
            f"{run}: request sent; the training has not finished a step since", soft_wrap=True
        )
    elif change.refused:
        raise ConfigError(f"{run}: refused: {change.refused}")
    else:
        console.print(f"{run}: {collection} changed from step {change.step}", soft_wrap=True)
