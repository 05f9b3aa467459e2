"""GPT-3: the paper's sizes, banded attention against its definition, saving in regard's own layout."""

import pytest
import torch

from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.families.gpt3 import PRESETS, gpt3, preset
from regard.transformer.activation_capture import capture
from regard.transformer.attention_kernel import attention
from regard.transformer.network import build
from regard.transformer.summary import count_parameters


@pytest.mark.parametrize("name", PRESETS)
def test_sizes_are_within_three_percent_of_their_names(name):
    size = name.removeprefix("gpt3-")
    expected = float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]]
    assert abs(count_parameters(preset(name)) / expected - 1) < 0.03


def small(band=3):
    design = gpt3(layers=4, model_dim=20, heads=3, head_dim=8, vocabulary=31, length=16, band=band)
    return build(design, seed=1, dtype=torch.float64).eval()


def test_every_other_block_sees_a_band():
    network = small()
    tokens = torch.randint(0, 31, (2, 9))
    with torch.no_grad(), capture(network) as captured:
        network(tokens)
    for layer in range(4):
        weights = captured[f"decoder.blocks.{layer}.attention"][0]
        for query in range(9):
            first = max(0, query - 2) if layer % 2 else 0
            visible = [first <= key <= query for key in range(9)]
            assert ((weights[:, query] > 0) == torch.tensor(visible)).all(), (layer, query)


def test_a_banded_block_is_attention_over_the_band_alone():
    network = small()
    block = network.decoder.blocks[1]
    hidden = torch.randn(9, 20, dtype=torch.float64)
    from regard.transformer.attention import AttentionContext
    from regard.transformer.batch_layout import BatchLayout
    from regard.transformer.mask import Causal

    with torch.no_grad():
        output = block.attention(hidden, AttentionContext(BatchLayout.of([9]), Causal() & block.mask))
        query, key, value = (x.transpose(0, 1)[None] for x in block.attention.project(hidden))
        for index in range(9):
            band = slice(max(0, index - 2), index + 1)
            expected = attention(query[:, :, index : index + 1], key[:, :, band], value[:, :, band], 8**-0.5)
            assert torch.allclose(block.attention.output(expected.flatten()), output[index], atol=1e-12)


def test_a_band_as_wide_as_the_text_is_dense():
    tokens = torch.randint(0, 31, (2, 9))
    with torch.no_grad():
        assert torch.allclose(small(9)(tokens).logits, small(16)(tokens).logits, atol=1e-12)
        assert not torch.allclose(small(2)(tokens).logits, small(16)(tokens).logits)


def test_it_is_saved_in_regards_own_layout(tmp_path):
    network = small()
    assert save(network, tmp_path) == "regard"
    again, _ = load(tmp_path)
    assert again.config == network.config
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), network.parameters(), strict=True))
