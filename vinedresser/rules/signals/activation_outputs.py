"""Find the captured outputs of activation functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vinedresser.store.collections.modules import ModuleInfo, activation_of


def outputs_of_activations(
    names: Iterable[str], functions: Collection[str], modules: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the outputs of some activation functions, with their function.

    Args:
        names: full names of outputs, such as ``outputs/block.relu``.
        functions: names of activation functions, such as "relu".
        modules: [type, activation, ...] by path, from the run's record.

    Returns:
        The function by name of the output.
    """
    known = {path: ModuleInfo(words[0], words[1]) for path, words in modules.items()}
    found = {name: activation_of(name, known) for name in names}
    return {name: function for name, function in found.items() if function in functions}
