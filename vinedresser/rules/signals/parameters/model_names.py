"""The models of a run, by the names of their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vinedresser.store.records import RunRecord

__all__ = ["ModelNames", "is_recurrent_first", "normalises", "normalises_first"]

_RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "SimpleRNN")
# Layers that preserve the size of the signal for any weights.
_NORMALISING = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "Normalization")


def normalises(modules: Mapping[str, Sequence[str]]) -> bool:
    """Return whether any module normalises a signal.

    Args:
        modules: see `RunRecord.modules`.
    """
    return any(part in words[0] for words in modules.values() for part in _NORMALISING)


def normalises_first(modules: Mapping[str, Sequence[str]]) -> bool:
    """Return whether there is one model, and its first layer normalises the inputs.

    Args:
        modules: see `RunRecord.modules`.
    """
    models = [path for path, words in modules.items() if "model" in words[2:]]
    if len(models) != 1:
        return False
    layers = {path: words for path, words in modules.items() if path not in models}
    first = next(
        (layer for layer in layers if not any(p.startswith(f"{layer}.") for p in layers)), None
    )
    return first is not None and normalises({first: layers[first]})


def is_recurrent_first(modules: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the first layer is a recurrent one, whose gates or units saturate.

    Args:
        modules: see `RunRecord.modules`.
    """
    holders = {path.rpartition(".")[0] for path in modules}
    layers = [
        words[0]
        for path, words in modules.items()
        if "model" not in words[2:] and path not in holders
    ]
    return bool(layers) and layers[0] in _RECURRENT


class ModelNames:
    """The models of a run: their names are the prefixes of the paths of their tensors.

    Args:
        info: record of the run; None: no model has a name.
    """

    def __init__(self, info: RunRecord | None = None) -> None:
        modules = info.modules if info else {}
        named = (f"{path}." for path, words in modules.items() if words[2:])
        # The paths of a model without a name have no prefix.
        self._prefixes = tuple(
            one for one in named if any(path.startswith(one) for path in modules)
        )

    def of(self, name: str) -> str:
        """Return the prefix of a tensor's model; "" for a model without a name.

        Args:
            name: full name of a tensor, such as ``weights/critic.0.weight``.
        """
        path = name.partition("/")[2]
        return next((prefix for prefix in self._prefixes if path.startswith(prefix)), "")

    def grouped(self, names: Iterable[str]) -> list[list[str]]:
        """Return full names of tensors by model, in order."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self.of(name), []).append(name)
        return list(groups.values())
