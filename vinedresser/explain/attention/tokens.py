"""Tokens of the examples of an attention view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from vinedresser.errors import ConfigError
from vinedresser.explain.attention.weights import Attention

__all__ = ["SEPARATORS", "Tokenizer", "key_tokens", "separator_places"]

# Separators of common tokenizers: BERT, RoBERTa and T5, GPT.
SEPARATORS = ("[SEP]", "</s>", "<|endoftext|>")

# Returns the tokens of the ids of one example.
Tokenizer = Callable[[Sequence[int]], Sequence[str]]


def key_tokens(
    attention: Attention,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
    tokenizer: Tokenizer | None,
    example: int,
) -> dict[int, list[str]]:
    """Return the tokens of the keys by example; {} if neither they nor ids are known.

    They belong to the layers with as many keys: cross-attention has others.

    Args:
        attention: the attention; its ids are used if there are no tokens.
        tokens: tokens of all examples, or of the drawn one; None: from the ids.
        tokenizer: returns the tokens of ids, such as ``convert_ids_to_tokens`` of a tokenizer;
            None: the ids themselves.
        example: number of the drawn example.

    Raises:
        ConfigError: no layer has as many keys as there are tokens, or there is a tokenizer and no
            ids were captured.
    """
    if tokens is not None:
        single = all(isinstance(token, str) for token in tokens)
        named = {example: tokens} if single else dict(enumerate(tokens))
        found = {place: [str(one) for one in each] for place, each in named.items()}
    elif attention.ids is not None:
        rows: list[list[int]] = attention.ids.tolist()
        found = {
            place: [str(one) for one in (tokenizer(row) if tokenizer else row)]
            for place, row in enumerate(rows)
        }
    elif tokenizer is not None:
        raise ConfigError(
            "a tokenizer needs the token ids: capture the inputs of the model at the same steps "
            "([capture.model_inputs])"
        )
    else:
        return {}
    keys = sorted({layer.weights.shape[-1] for layer in attention.layers})
    for each in found.values():
        if len(each) not in keys:
            known = " or ".join(map(str, keys))
            raise ConfigError(f"{len(each)} tokens are given for {known} keys; give one for each")
    return found


def separator_places(
    tokens: Mapping[int, Sequence[str]], separators: Collection[str], examples: int
) -> list[tuple[int, int]]:
    """Return the example and key of each separator.

    Args:
        separators: tokens that separate.
        examples: number of examples with attention; tokens of others are ignored.
    """
    return [
        (example, place)
        for example, words in tokens.items()
        if example < examples
        for place, word in enumerate(words)
        if word in separators
    ]
