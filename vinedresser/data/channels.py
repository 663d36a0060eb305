"""Channels: the data of a training by name, as the file that starts it gives it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from vinedresser.data.sources.cached import CACHE_VARIABLE
from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["channel", "channel_environment"]

_CHANNELS = "VINEDRESSER_CHANNELS"
# SageMaker's variable of a channel whose files are in a folder.
_FOLDER = "SM_CHANNEL_"


def channel(name: str) -> list[str]:
    """Return the sources of a channel, for a `Dataset`.

    A channel is a key of the table ``[data]`` in the file of the experiment, sweep or pruning that
    started this process. On SageMaker, it is a channel of the training job.

    Args:
        name: its name, such as "train".

    Raises:
        ConfigError: there is no such channel.
    """
    channels = _channels()
    if name in channels:
        return channels[name]
    folder = os.environ.get(f"{_FOLDER}{name.upper()}")
    if folder is not None:
        return [folder]
    if not channels:
        raise ConfigError(
            f"no channel {name!r}: the process was not started from a file with a table [data], "
            f"and {_FOLDER}{name.upper()} is not set"
        )
    near = did_you_mean(name, channels) or f"; the channels are {', '.join(channels)}"
    raise ConfigError(f"no channel {name!r} in [data]{near}")


def channel_environment(channels: Mapping[str, Sequence[str]], cache: str) -> dict[str, str]:
    """Return the variables by which a training finds its channels.

    Args:
        channels: the sources of each channel. If it is a single folder, its variable is also set as
            on SageMaker.
        cache: maximum size of the local cache; "": there is none.
    """
    variables = {CACHE_VARIABLE: cache} if cache else {}
    if channels:
        variables[_CHANNELS] = json.dumps({name: [*one] for name, one in channels.items()})
    folders = {
        f"{_FOLDER}{name.upper()}": sources[0]
        for name, sources in channels.items()
        if len(sources) == 1 and os.path.isdir(sources[0])
    }
    return folders | variables


def _channels() -> dict[str, list[str]]:
    text = os.environ.get(_CHANNELS, "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    match found:
        case dict() if all(
            isinstance(one, list) and all(isinstance(source, str) for source in one)
            for one in found.values()
        ):
            return found
    raise ConfigError(f"{_CHANNELS}: must be a JSON object of lists of sources, not {text!r}")
