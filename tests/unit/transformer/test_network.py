"""Networks: padding is removed on input and restored on output, and each sequence is computed as if alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import ReferenceNetwork, dense
from unit.transformer.small_networks import (
    DESIGNS,
    POSITIONS,
    RELATIVE,
    ROOM,
    SEGMENTS,
    WORDS,
    apart,
    chances,
    close,
    decoder_only,
    encoder_decoder,
    encoder_only,
    examples,
    gradients,
    made,
    packed,
    shared,
    text,
)

from regard.transformer import network as networks
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.mask import Causal, Documents, Explicit, Padding, Prefix, Window

BATCH, LENGTH = 4, 7
SIDES = {
    "left": [[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1, 1]],
    "right": [[1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]],
    "both": [[0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]],
    "holes": [[1, 0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0, 1]],
}
SIDE = pytest.mark.parametrize("side", SIDES)


def real_on(side):
    return torch.tensor(SIDES[side], dtype=torch.bool)


def random_real(seed, batch=BATCH, length=LENGTH):
    """Real tokens anywhere, at least one in each sequence."""
    real = chances(batch, length, seed=seed, p=0.6)
    real[~real.any(dim=1), seed % length] = True
    return real


def check_rows(padded, real, alone):
    """Each sequence equals a run of that sequence alone; padding gives zeros."""
    for row in range(len(real)):
        close(padded[row, real[row]], alone(row))
    assert bool((padded[~real] == 0).all())


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@given(seed=st.integers(0, 999), as_mask=st.booleans())
@examples(3)
@torch.no_grad()
def test_padding_anywhere_in_a_row_changes_nothing(kind, position, seed, as_mask):
    network = shared(DESIGNS[kind](position, head=WORDS))
    tokens, real = text(BATCH, LENGTH, seed=seed), random_real(seed)
    output = network(tokens, Padding(real) if as_mask else real)
    alone = [network(tokens[row, real[row]][None]) for row in range(BATCH)]
    check_rows(output.hidden, real, lambda row: alone[row].hidden[0])
    check_rows(output.logits, real, lambda row: alone[row].logits[0])


@SIDE
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_padded_row_is_the_plain_row(kind, position, side):
    network = shared(DESIGNS[kind](position))
    tokens, real = text(BATCH, LENGTH), real_on(side)
    check_rows(network(tokens, real).hidden, real, lambda row: ReferenceNetwork(network).hidden(tokens[row, real[row]]))


@SIDE
def test_segments_go_through_the_door_with_their_tokens(side):
    network = shared(encoder_only("learned"))
    tokens, segments, real = text(BATCH, LENGTH), text(BATCH, LENGTH, seed=1, kinds=SEGMENTS), real_on(side)
    found = network(tokens, real, segments=segments).hidden
    check_rows(
        found,
        real,
        lambda row: ReferenceNetwork(network).hidden(tokens[row, real[row]], None, segments[row, real[row]]),
    )


@pytest.mark.parametrize("position", POSITIONS)
@given(seed=st.integers(0, 999))
@examples(3)
@torch.no_grad()
def test_source_and_target_may_both_be_padded_anywhere(position, seed):
    network = shared(encoder_decoder(position))
    source, target = text(BATCH, LENGTH, seed=seed), text(BATCH, 5, seed=seed + 1)
    real, target_real = random_real(seed), random_real(seed + 1, length=5)
    found = network(source, target, real, target_real).hidden
    plain = ReferenceNetwork(network)
    check_rows(
        found,
        target_real,
        lambda row: plain.translated(source[row, real[row]], target[row, target_real[row]]),
    )


@SIDE
@pytest.mark.parametrize("position", ["learned", "buckets"])
def test_the_gradients_of_a_padded_batch_are_those_of_its_rows(position, side):
    network = made(encoder_only(position))
    tokens, real = text(BATCH, LENGTH), real_on(side)
    found = network(tokens, real).hidden[real]
    expected = torch.cat([ReferenceNetwork(network).hidden(tokens[row, real[row]]) for row in range(BATCH)])
    inputs = list(network.parameters())
    for mine, theirs in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(mine, theirs)


DOCUMENTS = text(BATCH, LENGTH, seed=5, kinds=3)
SEEN = chances(BATCH, LENGTH, LENGTH, seed=5)
PREFIX = torch.tensor([1, 3, 0, 2])

# Each mask, and its dense definition for the real tokens of a row, which are in these columns.
MASKS = {
    "documents": (Documents(DOCUMENTS), lambda row, at: DOCUMENTS[row, at, None] == DOCUMENTS[row, None, at]),
    "explicit": (Explicit(SEEN), lambda row, at: SEEN[row, at][:, at]),
    "prefix": (Prefix(PREFIX), lambda row, at: (torch.arange(len(at)) < PREFIX[row]).expand(len(at), -1)),
    "prefix model": (
        Causal() | Prefix(PREFIX),
        lambda row, at: dense(Causal(), len(at)) | (torch.arange(len(at)) < PREFIX[row]),
    ),
    "all": (
        (Causal() | Explicit(SEEN)) & Documents(DOCUMENTS) & Window(2),
        lambda row, at: (
            (dense(Causal(), len(at)) | SEEN[row, at][:, at])
            & (DOCUMENTS[row, at, None] == DOCUMENTS[row, None, at])
            & dense(Window(2), len(at))
        ),
    ),
}


@SIDE
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_given_with_padding_mean_the_tokens_they_were_given_for(mask, kind, side):
    """Mask tensors have the shape of the padded tokens; a prefix counts real tokens."""
    network = shared(DESIGNS[kind]("learned"))
    tokens, real, (given_mask, shown) = text(BATCH, LENGTH), real_on(side), MASKS[mask]

    def alone(row):
        return ReferenceNetwork(network).hidden(tokens[row, real[row]], shown(row, real[row].nonzero()[:, 0]))

    for combined in (given_mask & Padding(real), Padding(real) & given_mask):
        check_rows(network(tokens, combined).hidden, real, alone)


@SIDE
def test_masks_with_padding_on_both_sides_of_an_encoder_decoder(side):
    network = shared(encoder_decoder("learned"))
    source, target = text(BATCH, LENGTH), text(BATCH, LENGTH, seed=1)
    real, target_real = real_on(side), real_on("both")
    mask, shown = MASKS["explicit"]
    target_mask, target_shown = MASKS["documents"]
    found = network(source, target, Padding(real) & mask, target_mask & Padding(target_real)).hidden

    def alone(row):
        at, target_at = real[row].nonzero()[:, 0], target_real[row].nonzero()[:, 0]
        return ReferenceNetwork(network).translated(
            source[row, at], target[row, target_at], shown(row, at), target_shown(row, target_at)
        )

    check_rows(found, target_real, alone)


@pytest.mark.parametrize("position", RELATIVE)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@given(lengths=st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=2), min_size=1, max_size=3))
@examples(5)
@torch.no_grad()
def test_documents_in_one_row_are_rows_side_by_side_where_only_distances_matter(kind, position, lengths):
    """Each row holds two documents, padded to the length of the longest pair."""
    network = shared(DESIGNS[kind](position))
    longest = max(sum(pair) for pair in lengths)
    lengths = [(first, longest - first) for first, _ in lengths]
    tokens = text(len(lengths), longest)
    ids = torch.tensor([[0] * first + [1] * second for first, second in lengths])
    one = network(tokens, Documents(ids)).hidden
    other = network(tokens.flatten(), layout=BatchLayout.of([n for pair in lengths for n in pair])).hidden
    close(one.flatten(0, 1), other)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", DESIGNS)
def test_packed_rows_are_the_rows_alone(kind, position):
    network = shared(DESIGNS[kind](position))
    texts, targets = [text(n, seed=n) for n in (3, 1, 4, 4)], [text(n, seed=10 + n) for n in (2, 5, 1, 3)]
    tokens, layout = packed(texts)
    plain = ReferenceNetwork(network)
    if kind == "both":
        target, target_layout = packed(targets)
        found = network(tokens, target, layout=layout, target_layout=target_layout).hidden
        expected = [plain.translated(*pair) for pair in zip(texts, targets, strict=True)]
    else:
        found, expected = network(tokens, layout=layout).hidden, [plain.hidden(row) for row in texts]
    close(found, torch.cat(expected))


@pytest.mark.parametrize("position", RELATIVE)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_where_only_distances_matter_a_row_may_start_anywhere(kind, position):
    network = shared(DESIGNS[kind](position))
    tokens, lengths = text(7), [3, 4]
    close(
        network(tokens, layout=BatchLayout.of(lengths, starts=[2, 5])).hidden,
        network(tokens, layout=BatchLayout.of(lengths)).hidden,
    )


def test_a_row_that_starts_later_takes_later_positions():
    network = shared(decoder_only("learned"))
    found = network(text(3), layout=BatchLayout.of([3], starts=[4])).hidden
    moved = made(decoder_only("learned"))
    with torch.no_grad():
        moved.embedding.position.weight[:-4] = network.embedding.position.weight[4:].clone()
    close(found, moved(text(3), layout=BatchLayout.of([3])).hidden)
    assert apart(found, network(text(3), layout=BatchLayout.of([3])).hidden).min() > 1e-6


def test_output_has_the_shape_of_the_input_and_only_what_there_is():
    network = shared(decoder_only(head=WORDS))
    tokens, layout = packed([text(3), text(2)])
    padded, flat = network(text(2, 5)), network(tokens, layout=layout)
    assert padded.hidden.shape[:2] == padded.logits.shape[:2] == (2, 5)
    assert len(flat.hidden) == len(flat.logits) == 5
    assert (padded.sequence_logits, padded.cache, padded.source) == (None, None, None)
    assert shared(decoder_only()).forward(text(2, 5)).logits is None


@pytest.mark.parametrize(
    "mask", [Padding(torch.ones(2, 4, dtype=torch.bool)), Padding(torch.ones(3, 5, dtype=torch.bool))]
)
def test_a_mask_of_another_shape_is_an_error(mask):
    shape = tuple(mask.real.shape)
    with pytest.raises(
        ValueError, match=rf"the mask has shape \({shape[0]}, {shape[1]}\), the tokens have shape \(2, 5\)"
    ):
        shared(decoder_only())(text(2, 5), mask & Window(2))


@pytest.mark.parametrize(
    "mask", [Documents(DOCUMENTS[:2, :3]), Explicit(SEEN[:2, :3, :3])], ids=["documents", "explicit"]
)
def test_a_table_of_another_shape_is_an_error(mask):
    with pytest.raises(ValueError, match="mask"):
        shared(decoder_only())(text(2, 5), mask)


def test_padding_with_packed_tokens_is_an_error():
    tokens, layout = packed([text(3), text(2)])
    with pytest.raises(ValueError, match="packed"):
        shared(decoder_only())(tokens, Padding(torch.tensor([[True, False, True], [True, True, False]])), layout=layout)


def test_a_row_of_nothing_but_padding_is_an_error_that_names_it():
    real = torch.ones(3, 5, dtype=torch.bool)
    real[1] = False
    for network, call in (
        (shared(decoder_only()), lambda n: n(text(3, 5), real)),
        (shared(encoder_decoder()), lambda n: n(text(3, 5), text(3, 5), real)),
        (shared(encoder_decoder()), lambda n: n(text(3, 5), text(3, 5), None, real)),
    ):
        with pytest.raises(ValueError, match="sequence 1 is all padding: remove it from the batch"):
            call(network)


@pytest.mark.parametrize(
    "rows", [None, BatchLayout.of([3, 3]), BatchLayout.of([4])], ids=["none", "too many", "too few"]
)
def test_packed_tokens_need_rows_that_add_up(rows):
    with pytest.raises(ValueError, match=r"5 packed tokens need `layout=BatchLayout.of\(lengths\)`"):
        shared(decoder_only())(text(5), layout=rows)


@pytest.mark.parametrize("kind", DESIGNS)
def test_a_row_longer_than_the_learned_positions_is_an_error(kind):
    network = shared(DESIGNS[kind]("learned"))
    wrong = rf"a sequence of {ROOM + 1} tokens exceeds the {ROOM} learned positions"
    if kind == "both":
        with pytest.raises(ValueError, match=wrong):
            network(text(1, ROOM + 1), text(1, 2))
        with pytest.raises(ValueError, match=wrong):
            network(text(1, 2), text(1, ROOM + 1))
    else:
        with pytest.raises(ValueError, match=wrong):
            network(text(1, ROOM + 1))
        network(text(1, ROOM))


def test_the_length_counts_what_a_cache_holds_and_not_padding():
    network = shared(decoder_only("learned"))
    cache = network.new_cache()
    network(text(1, ROOM), cache=cache)
    with pytest.raises(ValueError, match=f"a sequence of {ROOM + 1} tokens"):
        network(text(1, 1), cache=cache)
    real = torch.ones(1, ROOM + 5, dtype=torch.bool)
    real[0, :5] = False
    network(text(1, ROOM + 5), real)


@pytest.mark.parametrize("position", ["interleaved", "halves", "rotary", "buckets", "alibi", "none"])
def test_formulas_know_no_end(position):
    network, tokens = shared(decoder_only(position)), text(ROOM + 9)
    close(network(tokens[None]).hidden[0], ReferenceNetwork(network).hidden(tokens))


def test_segments_are_an_error_where_the_network_knows_none():
    with pytest.raises(ValueError, match="has no segment embeddings"):
        shared(decoder_only())(text(2, 5), segments=text(2, 5, kinds=2))


def test_as_many_targets_as_sources():
    network = shared(encoder_decoder())
    with pytest.raises(ValueError, match="3 source sequences but 2 target sequences"):
        network(network.encode(text(3, 5)), text(2, 4))


def test_built_twice_from_one_seed_it_is_the_same_and_from_another_it_is_not():
    design = decoder_only("learned")
    one, same, other = (networks.build(design, seed=seed, dtype=torch.float64) for seed in (3, 3, 4))
    for name, value in one.named_parameters():
        assert torch.equal(value, same.get_parameter(name))
        assert value.dtype == torch.float64
    assert not torch.equal(one.embedding.tokens.weight, other.embedding.tokens.weight)
    assert one.config is design


@pytest.mark.parametrize("kind", DESIGNS)
def test_in_float32_it_is_the_same_network(kind):
    wide = made(DESIGNS[kind]("rotary"))
    narrow = networks.build(wide.config).eval()
    narrow.load_state_dict(wide.state_dict())
    given_tokens = (text(2, 6), text(2, 4, seed=1)) if kind == "both" else (text(2, 6),)
    found = narrow(*given_tokens).hidden
    assert found.dtype == torch.float32
    close(found.double(), wide(*given_tokens).hidden, 1e-4)


def test_a_query_that_may_see_nothing_is_no_nan():
    network = made(encoder_only("learned"))
    allowed = chances(2, 5, 5)
    allowed[0, 3] = False
    output = network(text(2, 5), Explicit(allowed)).hidden
    close(output[0], ReferenceNetwork(network).hidden(text(2, 5)[0], allowed[0]))
    for gradient in gradients(output, list(network.parameters())):
        assert bool(gradient.isfinite().all())
