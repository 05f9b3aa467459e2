"""XLNet against transformers: permutation language modelling, memory, and span search."""

import pytest
import torch
from parity.grid import SIZES
from parity.oracle import Case, batch, distance, exactly, oracle, ours
from parity.test_parity import EXACT

from regard.checkpoint.save import save
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.mask import Explicit, Padding


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    case = Case("xlnet", "XLNetLMHeadModel", SIZES["xlnet"])
    model = oracle(case)
    return model, ours(case, model, tmp_path_factory.mktemp("xlnet"))[0]


def random_order(batch_size, length, seed=3):
    """Return the attention mask of a random order of prediction: a token attends to those earlier in the order."""
    generator = torch.Generator().manual_seed(seed)
    rank = torch.stack([torch.randperm(length, generator=generator) for _ in range(batch_size)])
    return rank[:, None, :] < rank[:, :, None]


@pytest.mark.parametrize("with_segments", [True, False])
def test_predicting_in_a_random_order(pair, with_segments):
    model, network = pair
    inputs = batch(network)
    count, length = inputs.source.shape
    visible = random_order(count, length)
    segments = inputs.segments if with_segments else None
    with torch.no_grad(), exactly("xlnet"):
        theirs = model(
            inputs.source,
            perm_mask=(~visible).double(),
            target_mapping=torch.eye(length, dtype=torch.float64).expand(count, -1, -1),
            token_type_ids=segments,
            use_mems=False,
        ).logits
        content = model(inputs.source, perm_mask=(~visible).double(), token_type_ids=segments, use_mems=False).logits
    with torch.no_grad():
        predicted = network(inputs.source, Explicit(visible), segments=segments, query_stream=True).logits
        content_logits = network(inputs.source, Explicit(visible), segments=segments).logits
    # The first token of the order has no keys: here it attends to nothing, in transformers evenly to all tokens,
    # itself included.
    informed = visible.any(dim=2)
    assert informed.sum() == count * (length - 1)
    assert distance(theirs[informed], predicted[informed]) <= EXACT
    assert distance(content, content_logits) <= EXACT


def test_a_prediction_does_not_depend_on_its_token(pair):
    _, network = pair
    tokens = batch(network).source
    visible = Explicit(random_order(*tokens.shape))
    other = tokens.clone()
    other[0, 2] = (tokens[0, 2] + 1) % 40 + 3
    with torch.no_grad():
        one, two = (network(t, visible, query_stream=True).logits[0, 2] for t in (tokens, other))
    assert torch.equal(one, two)


def test_padded_predictions_are_those_of_the_sequence_alone(pair):
    _, network = pair
    tokens = batch(network).source
    visible = random_order(*tokens.shape)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, :3] = False
    with torch.no_grad():
        batched = network(tokens, Padding(real) & Explicit(visible), query_stream=True).logits[1, 3:]
        alone = network(tokens[1:2, 3:], Explicit(visible[1:2, 3:, 3:]), query_stream=True).logits[0]
    assert distance(batched, alone) <= EXACT


def test_memory_over_three_segments(pair):
    model, network = pair
    tokens = torch.randint(3, 47, (2, 15), generator=torch.Generator().manual_seed(5))
    memory, mems = network.new_memory(), None
    for part in tokens.split(5, dim=1):
        with torch.no_grad(), exactly("xlnet"):
            output = model(part, mems=mems, use_mems=True)
        mems = output.mems
        with torch.no_grad():
            our_output = network(part, memory=memory)
        assert distance(output.logits, our_output.logits) <= EXACT
        for theirs, layer in zip(mems, memory.layers, strict=True):
            assert distance(theirs.transpose(0, 1), torch.stack(layer.hidden)) <= EXACT
    assert memory.lengths == (6, 6)


def test_gradients_of_both_streams_and_of_keys_through_memory(pair):
    model, network = pair
    tokens = torch.randint(3, 47, (2, 10), generator=torch.Generator().manual_seed(6))
    visible = random_order(2, 5)
    with exactly("xlnet"):
        mems = model(tokens[:, :5], use_mems=True).mems
        mapping = torch.eye(5, dtype=torch.float64).expand(2, -1, -1)
        output = model(tokens[:, 5:], mems=mems, perm_mask=(~visible).double(), target_mapping=mapping, use_mems=True)
        output.logits.square().mean().backward()
    memory = network.new_memory()
    network(tokens[:, :5], memory=memory)
    # The memory is always visible: the order applies to the new tokens only.
    order = torch.ones(2, 10, 10, dtype=torch.bool)
    order[:, 5:, 5:] = visible
    network(tokens[:, 5:], Explicit(order), memory, query_stream=True).logits.square().mean().backward()
    layer, block = model.transformer.layer[0].rel_attn, network.encoder.blocks[0].attention
    assert distance(layer.k.grad.flatten(1).t(), block.project.key.weight.grad) <= EXACT
    assert distance(layer.r.grad.flatten(1).t(), block.relative.project.weight.grad) <= EXACT
    assert distance(model.transformer.mask_emb.grad.flatten(), network.guess.grad) <= EXACT
    model.zero_grad(), network.zero_grad()


def test_span_search(tmp_path):
    case = Case("xlnet", "XLNetForQuestionAnswering", SIZES["xlnet"])
    model = oracle(case)
    network, report = ours(case, model, tmp_path)
    inputs = batch(network)
    with torch.no_grad(), exactly("xlnet"):
        theirs = model(inputs.source, token_type_ids=inputs.segments, use_mems=False)
    with torch.no_grad():
        output = network(inputs.source, segments=inputs.segments)
        results = network.head.search(output.hidden.flatten(0, 1), BatchLayout.of((inputs.source.shape[1],) * 3))
    assert distance(theirs.cls_logits[:, None], output.sequence_logits) <= EXACT
    for row, spans in enumerate(results):
        expected = []
        for i, (start_probability, start) in enumerate(
            zip(theirs.start_top_log_probs[row], theirs.start_top_index[row], strict=True)
        ):
            # transformers calls them log-probabilities; they are probabilities, ends × starts.
            ends = zip(
                theirs.end_top_log_probs[row].view(3, 2)[:, i], theirs.end_top_index[row].view(3, 2)[:, i], strict=True
            )
            expected += [((start_probability * p).item(), start.item(), end.item()) for p, end in ends]
        expected.sort(reverse=True)
        assert [span[1:] for span in spans] == [span[1:] for span in expected]
        assert all(abs(a[0] - b[0]) < EXACT for a, b in zip(spans, expected, strict=True))
    assert save(network, tmp_path / "again", origin=report.origin) == "xlnet"
