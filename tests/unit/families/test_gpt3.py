"""GPT-3: the paper's sizes, its bands against their definition, saved under our own names."""

import pytest
import torch

from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.families.gpt3 import SIZES, gpt3, preset
from regard.transformer.attention_kernel import attention
from regard.transformer.capture import watch
from regard.transformer.module_tree import count
from regard.transformer.network import build


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_within_three_percent_of_their_names(name):
    said = name.removeprefix("gpt3-")
    expected = float(said[:-1]) * {"m": 1e6, "b": 1e9}[said[-1]]
    assert abs(count(preset(name)) / expected - 1) < 0.03


def small(band=3):
    design = gpt3(layers=4, model_dim=20, heads=3, head_dim=8, vocabulary=31, length=16, band=band)
    return build(design, seed=1, dtype=torch.float64).eval()


def test_every_other_block_sees_a_band():
    network = small()
    tokens = torch.randint(0, 31, (2, 9))
    with torch.no_grad(), watch(network) as seen:
        network(tokens)
    for layer in range(4):
        weights = seen[f"decoder.blocks.{layer}.attention"][0]
        for query in range(9):
            first = max(0, query - 2) if layer % 2 else 0
            visible = [first <= key <= query for key in range(9)]
            assert ((weights[:, query] > 0) == torch.tensor(visible)).all(), (layer, query)


def test_a_banded_block_is_attention_over_the_band_alone():
    network = small()
    block = network.decoder.blocks[1]
    hidden = torch.randn(9, 20, dtype=torch.float64)
    from regard.transformer.attention import Looking
    from regard.transformer.batch_layout import Rows
    from regard.transformer.mask import Causal

    with torch.no_grad():
        mine = block.attention(hidden, Looking(Rows.of([9]), Causal() & block.mask))
        query, key, value = (x.transpose(0, 1)[None] for x in block.attention.project(hidden))
        for place in range(9):
            band = slice(max(0, place - 2), place + 1)
            alone = attention(query[:, :, place : place + 1], key[:, :, band], value[:, :, band], 8**-0.5)
            assert torch.allclose(block.attention.output(alone.flatten()), mine[place], atol=1e-12)


def test_a_band_as_wide_as_the_text_is_dense():
    tokens = torch.randint(0, 31, (2, 9))
    with torch.no_grad():
        assert torch.allclose(small(9)(tokens).logits, small(16)(tokens).logits, atol=1e-12)
        assert not torch.allclose(small(2)(tokens).logits, small(16)(tokens).logits)


def test_it_is_saved_under_our_own_names(tmp_path):
    network = small()
    assert save(network, tmp_path) == "regard"
    again, _ = load(tmp_path)
    assert again.config == network.config
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), network.parameters(), strict=True))
