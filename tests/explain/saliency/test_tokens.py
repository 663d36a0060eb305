"""Explanations of rows of features and of token ids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.explain.attention.test_albert import Albert, pretrained
from tests.explain.saliency.models import Computed, drawn
from vinedresser.explain.saliency import SaliencyError, saliency


class Reader(nn.Module):
    """A transformer for sentences: embeddings of tokens and of their places."""

    def __init__(self, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(20, width)
        self.places = nn.Embedding(12, width)
        self.norm = nn.LayerNorm(width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 16, activation="gelu", batch_first=True)
        self.classes = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        x = self.norm(self.words(ids) + self.places(places))
        result: Tensor = self.classes(self.encoder(x)[:, 0])
        return result


class Bag(nn.Module):
    """The sum of the scores of words, scaled by a second embedding of each."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(20, 4)
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.scores(input=ids).sum(1) + self.bias
        return result


def ids() -> Tensor:
    return torch.randint(0, 20, (3, 7))


def test_the_contribution_of_a_word_by_hand() -> None:
    model, x = drawn(Bag()), ids()
    result = saliency(model, x, 2)
    scores = model.get_parameter("scores.weight").detach()
    np.testing.assert_allclose(result.attributions, scores[x, 2])  # type: ignore[arg-type]
    bias = model.get_parameter("bias")[2].item()
    np.testing.assert_allclose(result.unattributed, [bias] * 3)
    assert [term.sums.tolist() for term in result.bias_terms.values()] == [
        pytest.approx([bias] * 3)
    ]
    # Each word's largest score is its part of the map; the bias belongs to no word.
    signed = saliency(model, x, 2, postprocess="none").map
    np.testing.assert_allclose(signed, scores[x, 2], rtol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_transformer_is_explained_completely(dtype: torch.dtype, tolerance: float) -> None:
    model, x = drawn(Reader()).to(dtype), ids()
    result = saliency(model, x)
    assert result.complete, str(result)
    assert result.uncovered == ()
    expected = model.eval()(x).detach().amax(1)
    np.testing.assert_allclose(result.outputs, expected, rtol=10 * tolerance)
    assert result.input_term.shape == (3, 7, 8)
    assert result.attributions is not None
    assert result.attributions.shape == (3, 7)
    assert any(term.in_map for term in result.bias_terms.values())


def test_the_map_of_a_sentence_does_not_depend_on_its_batch() -> None:
    model, x = drawn(Reader()), ids()
    together = saliency(model, x, 1).map
    assert together is not None
    assert together.shape == (3, 7)
    for place in range(3):
        alone = saliency(model, x[place : place + 1], 1).map
        assert alone is not None
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pretrained_transformer_whose_layer_is_called_twelve_times(dtype: torch.dtype) -> None:
    weights, vocabulary = pretrained()
    words = ["[CLS]", *"CC(=O)O", "[SEP]"]
    model = Computed(lambda x, albert: albert(x)[:, 3], Albert(weights)).to(dtype).eval()
    result = saliency(model, torch.tensor([[vocabulary.index(word) for word in words]]))
    assert result.complete, str(result)
    assert result.map is not None
    assert result.map.shape == (1, len(words))
    # Each call has its own term.
    calls = [name for name in result.bias_terms if ".ffn/" in name]
    assert len(calls) == 12


def test_nothing_is_left_on_the_model() -> None:
    model, x = drawn(Reader()), ids()
    given = x.clone()
    saliency(model, x.int())
    assert torch.equal(x, given)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(
        parameter.requires_grad and parameter.grad is None for parameter in model.parameters()
    )


def test_a_row_leaves_what_belongs_to_layers() -> None:
    model = drawn(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)))
    x = torch.randn(3, 4, dtype=torch.float64)
    result = saliency(model, x)
    assert result.attributions is not None
    assert np.array_equal(result.attributions, result.input_term)
    biases = np.sum([term.sums for term in result.bias_terms.values()], axis=0)
    np.testing.assert_allclose(result.unattributed, biases, rtol=1e-9)


def test_bad_input_is_named() -> None:
    with pytest.raises(SaliencyError, match=r"no nn\.Embedding of the model is called with them"):
        saliency(nn.Sequential(nn.Flatten(), Doubled()), ids())
    with pytest.raises(SaliencyError, match=r"integers with the shape \[2, 3, 8, 8\]; token ids"):
        saliency(nn.Conv2d(3, 2, 1), torch.zeros(2, 3, 8, 8, dtype=torch.int64))
    with pytest.raises(SaliencyError, match="needs floating-point inputs, not token ids"):
        saliency(Reader(), ids(), method="smoothgrad")


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * x
