"""Small groups of channels without a model."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.group import Group, Member

__all__ = ["conv_group"]


def conv_group(name: str, size: int, *, reader: str = "", locked: str = "") -> Group:
    """Return the group of a convolution with a normalisation, and maybe a reader of its channels.

    Args:
        name: the convolution; its normalisation is called NAME_bn.
        size: number of channels.
        reader: the convolution that reads the channels; "" for none.
        locked: why it cannot be pruned.
    """
    channels = np.arange(size, dtype=np.int64)[:, None]
    members = [
        Member(f"{name}.weight", 0, channels, "filter"),
        Member(f"{name}_bn.weight", 0, channels, "scale"),
    ]
    if reader:
        members.append(Member(f"{reader}.weight", 1, channels, "input"))
    return Group(name, "filters", size, tuple(members), locked)
