"""Which captured outputs are those of which activation function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vinedresser.store.collections.modules import ModuleInfo, activation_of

__all__ = ["outputs_of_activations"]


def outputs_of_activations(
    names: Iterable[str], functions: Collection[str], modules: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return, of the names of outputs, those of some activation functions, with the function.

    Args:
        names: full names, such as ``outputs/block.relu``.
        functions: such as "relu".
        modules: of the run's record: [type, activation, ...] by path.
    """
    known = {path: ModuleInfo(words[0], words[1]) for path, words in modules.items()}
    found = {name: activation_of(name, known) for name in names}
    return {name: function for name, function in found.items() if function in functions}
