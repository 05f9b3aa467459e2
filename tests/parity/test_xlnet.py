"""XLNet's own: guessing in any order, memory, and the search for answers, against transformers."""

import pytest
import torch
from parity.grid import SIZES
from parity.oracle import Case, batch, distance, exactly, oracle, ours
from parity.test_parity import EXACT

from regard.checkpoint.save import save
from regard.transformer.batch_layout import Rows
from regard.transformer.mask import Explicit, Padding


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    case = Case("xlnet", "XLNetLMHeadModel", SIZES["xlnet"])
    model = oracle(case)
    return model, ours(case, model, tmp_path_factory.mktemp("xlnet"))[0]


def random_order(rows, length, seed=3):
    """Who sees whom when each row's tokens are guessed in a random order: those that come earlier in it."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.stack([torch.randperm(length, generator=generator) for _ in range(rows)])
    return place[:, None, :] < place[:, :, None]


@pytest.mark.parametrize("with_segments", [True, False])
def test_guessing_in_a_random_order(pair, with_segments):
    model, network = pair
    given = batch(network)
    count, length = given.source.shape
    seen = random_order(count, length)
    segments = given.segments if with_segments else None
    with torch.no_grad(), exactly("xlnet"):
        theirs = model(
            given.source,
            perm_mask=(~seen).double(),
            target_mapping=torch.eye(length, dtype=torch.float64).expand(count, -1, -1),
            token_type_ids=segments,
            use_mems=False,
        ).logits
        content = model(given.source, perm_mask=(~seen).double(), token_type_ids=segments, use_mems=False).logits
    with torch.no_grad():
        guessed = network(given.source, Explicit(seen), segments=segments, guess=True).logits
        read = network(given.source, Explicit(seen), segments=segments).logits
    # The first token of the order sees nothing: here it attends to nothing, in transformers evenly to all, its own
    # token included.
    informed = seen.any(dim=2)
    assert informed.sum() == count * (length - 1)
    assert distance(theirs[informed], guessed[informed]) <= EXACT
    assert distance(content, read) <= EXACT


def test_a_guess_does_not_know_its_token(pair):
    _, network = pair
    tokens = batch(network).source
    seen = Explicit(random_order(*tokens.shape))
    other = tokens.clone()
    other[0, 2] = (tokens[0, 2] + 1) % 40 + 3
    with torch.no_grad():
        one, two = (network(t, seen, guess=True).logits[0, 2] for t in (tokens, other))
    assert torch.equal(one, two)


def test_padded_guesses_are_those_of_the_row_alone(pair):
    _, network = pair
    tokens = batch(network).source
    seen = random_order(*tokens.shape)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, :3] = False
    with torch.no_grad():
        both = network(tokens, Padding(real) & Explicit(seen), guess=True).logits[1, 3:]
        alone = network(tokens[1:2, 3:], Explicit(seen[1:2, 3:, 3:]), guess=True).logits[0]
    assert distance(both, alone) <= EXACT


def test_memory_over_three_segments(pair):
    model, network = pair
    tokens = torch.randint(3, 47, (2, 15), generator=torch.Generator().manual_seed(5))
    memory, mems = network.new_memory(), None
    for part in tokens.split(5, dim=1):
        with torch.no_grad(), exactly("xlnet"):
            output = model(part, mems=mems, use_mems=True)
        mems = output.mems
        with torch.no_grad():
            mine = network(part, memory=memory)
        assert distance(output.logits, mine.logits) <= EXACT
        for theirs, remembered in zip(mems, memory.own, strict=True):
            assert distance(theirs.transpose(0, 1), torch.stack(remembered.rows)) <= EXACT
    assert memory.lengths == (6, 6)


def test_gradients_of_both_streams_and_of_keys_through_memory(pair):
    model, network = pair
    tokens = torch.randint(3, 47, (2, 10), generator=torch.Generator().manual_seed(6))
    seen = random_order(2, 5)
    with exactly("xlnet"):
        mems = model(tokens[:, :5], use_mems=True).mems
        mapping = torch.eye(5, dtype=torch.float64).expand(2, -1, -1)
        output = model(tokens[:, 5:], mems=mems, perm_mask=(~seen).double(), target_mapping=mapping, use_mems=True)
        output.logits.square().mean().backward()
    memory = network.new_memory()
    network(tokens[:, :5], memory=memory)
    # What is remembered is always seen: the order speaks of the new tokens alone.
    order = torch.ones(2, 10, 10, dtype=torch.bool)
    order[:, 5:, 5:] = seen
    network(tokens[:, 5:], Explicit(order), memory, guess=True).logits.square().mean().backward()
    layer, block = model.transformer.layer[0].rel_attn, network.encoder.blocks[0].attention
    assert distance(layer.k.grad.flatten(1).t(), block.project.key.weight.grad) <= EXACT
    assert distance(layer.r.grad.flatten(1).t(), block.relative.project.weight.grad) <= EXACT
    assert distance(model.transformer.mask_emb.grad.flatten(), network.guess.grad) <= EXACT
    model.zero_grad(), network.zero_grad()


def test_search_for_answers(tmp_path):
    case = Case("xlnet", "XLNetForQuestionAnswering", SIZES["xlnet"])
    model = oracle(case)
    network, report = ours(case, model, tmp_path)
    given = batch(network)
    with torch.no_grad(), exactly("xlnet"):
        theirs = model(given.source, token_type_ids=given.segments, use_mems=False)
    with torch.no_grad():
        output = network(given.source, segments=given.segments)
        found = network.head.search(output.hidden.flatten(0, 1), Rows.of((given.source.shape[1],) * 3))
    assert distance(theirs.cls_logits[:, None], output.sentence) <= EXACT
    for row, spans in enumerate(found):
        expected = []
        for i, (start_chance, start) in enumerate(
            zip(theirs.start_top_log_probs[row], theirs.start_top_index[row], strict=True)
        ):
            # transformers calls them log-probabilities; they are probabilities, ends × starts.
            ends = zip(
                theirs.end_top_log_probs[row].view(3, 2)[:, i], theirs.end_top_index[row].view(3, 2)[:, i], strict=True
            )
            expected += [((start_chance * p).item(), start.item(), end.item()) for p, end in ends]
        expected.sort(reverse=True)
        assert [span[1:] for span in spans] == [span[1:] for span in expected]
        assert all(abs(a[0] - b[0]) < EXACT for a, b in zip(spans, expected, strict=True))
    assert save(network, tmp_path / "again", origin=report.origin) == "xlnet"
