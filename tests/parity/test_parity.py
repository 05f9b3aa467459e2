"""One grid: families × heads against transformers, in float64, gradients and all."""

import copy
import json
from dataclasses import replace

import pytest
import torch
import transformers
from parity.grid import ABSENT, GRID, SIZES, published
from parity.oracle import (
    END,
    FIRST_WORD,
    LAST_BEFORE_NORM,
    LENGTH,
    Batch,
    batch,
    call,
    distance,
    dropout_as_factor,
    exactly,
    loss,
    oracle,
    ours,
    pairs,
    parameters,
    reads_images,
    run_ours,
    run_theirs,
    scores,
)
from safetensors.torch import load_file
from unit.native.no_native import without_compiled_parts

from regard.checkpoint.load import load
from regard.checkpoint.report import Fate
from regard.checkpoint.save import save
from regard.engine import Precision, prepare
from regard.families.registry import FAMILIES
from regard.native.library import available
from regard.transformer.batch_layout import Rows
from regard.transformer.config import EncoderDecoder as EncoderDecoderConfig
from regard.transformer.network import EncoderDecoder
from regard.transformer.stack import Stack

EXACT = 1e-9
FLOAT32 = 1e-4


@pytest.fixture(scope="module", params=GRID, ids=str)
def trio(request, tmp_path_factory):
    """A case, transformers' model and ours."""
    case = request.param
    model = oracle(case)
    folder = tmp_path_factory.mktemp(str(case))
    network, report = ours(case, model, folder)
    return case, model, network, report, folder


def check(pairs_of_tensors, tolerance):
    for name, one, other in pairs_of_tensors:
        assert (one is None) == (other is None), name
        if one is not None:
            assert distance(one, other) <= tolerance, name


def outputs(case, model, network, given):
    their_hidden, *their_scores = run_theirs(case, model, given)
    our_hidden, *our_scores = run_ours(network, given)
    return their_hidden, their_scores, our_hidden, our_scores


def test_every_published_class_is_in_the_grid():
    for family in SIZES:
        known = set(FAMILIES[family].architectures) | set(ABSENT)
        assert set(published(family)) <= known
        assert set(FAMILIES[family].architectures) <= set(published(family))
    elsewhere = {"transfo-xl"}  # test_transformer_xl.py: the current release no longer has it
    assert set(SIZES) | elsewhere == set(FAMILIES)


def test_same_numbers(trio):
    case, model, network, *_ = trio
    given = batch(network)
    with torch.no_grad():
        their_hidden, theirs, our_hidden, mine = outputs(case, model, network, given)
    check([("words", theirs[0], mine[0]), ("sentence", theirs[1], mine[1])], EXACT)
    check(blocks(network, their_hidden, our_hidden, case.family not in LAST_BEFORE_NORM), EXACT)


def blocks(network, theirs, mine, last_normed):
    """The hidden states after each block. transformers gives the embeddings first, and most of its classes the last
    one after the norm."""
    compared = 0
    for side, stack in network.named_modules():
        if not isinstance(stack, Stack):
            continue
        count = len(stack.blocks)
        for layer in range(count):
            state = mine[compared + layer]
            if layer == count - 1 and last_normed:
                state = stack.final_dropout(stack.final_norm(state)) if stack.final_norm else state
            other = theirs[1 + layer]
            yield f"{side}.{layer}", other.flatten(0, 1), state
        theirs, compared = theirs[count + 1 :], compared + count


def test_same_gradients_and_step_in_training_with_every_dropout_site(trio):
    """Dropout is a factor 1 - p at its site, with a rate of its own for every kind of site."""
    case, model, network, *_ = trio
    given = batch(network)
    places = pairs(case, model, network)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    theirs_before = {name: value.detach().clone() for name, value in model.named_parameters()}
    model.train(), network.train()
    try:
        with dropout_as_factor():
            _, theirs, _, mine = outputs(case, model, network, given)
            their_loss, our_loss = loss(*theirs), loss(*mine)
            their_loss.backward(), our_loss.backward()
        assert distance(their_loss, our_loss) <= EXACT
        compare_gradients(model, network, places)
        for side in (model, network):
            torch.optim.AdamW(side.parameters(), lr=1e-2, eps=1e-4).step()
        compare_parameters(model, network, places)
    finally:
        with torch.no_grad():
            for name, value in network.named_parameters():
                value.copy_(before[name])
            for name, value in model.named_parameters():
                value.copy_(theirs_before[name])
        model.zero_grad(), network.zero_grad()
        model.eval(), network.eval()


def compare_gradients(model, network, places):
    theirs = parameters(model)
    mine = dict(network.named_parameters(remove_duplicate=False))
    compared = set()
    for place in places:
        their = theirs[place.theirs].grad
        parts = [None] * len(place.ours) if their is None else place.how.read(their, len(place.ours))
        for name, part in zip(place.ours, parts, strict=True):
            if part is None:
                assert mine[name].grad is None, name
            elif not zero(part):
                check([(name, part, mine[name].grad)], EXACT)
            else:
                assert zero(mine[name].grad), name
            compared.add(id(mine[name]))
    assert compared >= {id(value) for value in network.parameters() if value.requires_grad}


def zero(gradient):
    """Softmax does not see what is added to all scores alike: the gradient of a key's bias is mere rounding."""
    return gradient.abs().max().item() < 1e-13


def compare_parameters(model, network, places):
    theirs = parameters(model)
    mine = dict(network.named_parameters(remove_duplicate=False))
    for place in places:
        for name, part in zip(place.ours, place.how.read(theirs[place.theirs], len(place.ours)), strict=True):
            check([(name, part, mine[name])], EXACT)


def test_same_numbers_in_float32(trio, tmp_path):
    case, *_ = trio
    model = oracle(case, torch.float32)
    network, _ = ours(case, model, tmp_path, torch.float32)
    with torch.no_grad():
        _, theirs, _, mine = outputs(case, model, network, batch(network))
    check([("words", theirs[0], mine[0]), ("sentence", theirs[1], mine[1])], FLOAT32)


def padded(given: Batch, side, filler=FIRST_WORD):
    """The rows of a batch cut to different lengths and filled up again."""
    lengths = [LENGTH, LENGTH - 2, LENGTH - 3]
    source, real = given.source.clone(), torch.ones_like(given.source, dtype=torch.bool)
    for row, length in enumerate(lengths):
        gap = LENGTH - length
        places = slice(LENGTH - gap, LENGTH) if side == "right" else slice(0, gap)
        source[row, places] = filler
        real[row, places] = False
    return replace(given, source=source), real


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(trio, side):
    """A padded row against the same row alone, ours and transformers'."""
    case, model, network, *_ = trio
    if reads_images(network):
        pytest.skip("images have no padding")
    given, real = padded(batch(network), side)
    with torch.no_grad():
        output = call(network, given, real)
        words, sentence = scores(network, output)
        for row in range(len(real)):
            kept = real[row].nonzero()[:, 0]
            alone = given.row(row)
            alone.source = alone.source[:, kept]
            alone.segments = None if alone.segments is None else alone.segments[:, kept]
            if isinstance(network, EncoderDecoder) and words is None:
                continue  # these read the end of the source: their rows cannot be cut
            _, *theirs = run_theirs(case, model, alone)
            mine = words[row : row + 1, kept if given.target is None else slice(None)] if words is not None else None
            check([("words", theirs[0], mine)], EXACT)
            if sentence is not None:
                check([("sentence", theirs[1], sentence[row : row + 1])], EXACT)


def test_packed_is_padded(trio):
    """Rows side by side without padding against the same rows padded."""
    _, _, network, *_ = trio
    if reads_images(network):
        pytest.skip("images have no padding")
    given, real = padded(batch(network), "right")
    lengths = real.sum(dim=1).tolist()
    with torch.no_grad():
        rectangle = call(network, given, real)
        flat = given.source[real]
        if given.images is not None:
            packed = network(flat, given.images, rows=Rows.of(lengths))
            assert distance(packed.by_text, rectangle.by_text) <= EXACT
        elif given.target is not None:
            rows = Rows.of((given.target.shape[1],) * len(given.target))
            packed = network(flat, given.target.flatten(), rows=Rows.of(lengths), target_rows=rows)
            assert distance(packed.hidden, rectangle.hidden.flatten(0, 1)) <= EXACT
        else:
            extra = {} if given.segments is None else {"segments": given.segments[real]}
            packed = network(flat, rows=Rows.of(lengths), **extra)
            assert distance(packed.hidden, rectangle.hidden[real]) <= EXACT


def test_cache_changes_nothing(trio):
    """Token by token with a cache, rows of different lengths, against all at once."""
    _, _, network, *_ = trio
    if not hasattr(network, "new_cache"):
        pytest.skip("an encoder keeps no cache")
    given = batch(network)
    tokens = given.source if given.target is None else given.target
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, 2:] = False
    with torch.no_grad():
        cache = network.new_cache()
        step = (lambda t, m: network(t, m, cache)) if given.target is None else None
        if step is None:
            source = network.encode(given.source)
            step = lambda t, m: network(source, t, target_mask=m, cache=cache)  # noqa: E731
        step(tokens[:, :3], real[:, :3])
        hidden = [step(tokens[:, i : i + 1], None).hidden[:, 0] for i in range(3, tokens.shape[1])]
        assert cache.lengths == (tokens.shape[1], tokens.shape[1] - 1, tokens.shape[1])
        for row, keep in enumerate([slice(None), [0, 1, *range(3, tokens.shape[1])], slice(None)]):
            alone = tokens[row : row + 1][:, keep]
            if given.target is None:
                whole = network(alone).hidden[0]
            else:
                whole = network(given.source[row : row + 1], alone).hidden[0]
            mine = torch.stack([h[row] for h in hidden])
            check([(f"row {row}", whole[-len(mine) :], mine)], EXACT)


def test_saved_again_it_opens_in_transformers(trio, tmp_path):
    """No missing key, no unexpected key, equal tensors, equal config keys, equal numbers."""
    case, model, network, report, folder = trio
    assert save(network, tmp_path, origin=report.origin) == case.family
    again = reopened(case, case.architecture, tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    first = load_file(folder / "model.safetensors")
    unused = {line.theirs for line in report.having(Fate.IGNORED)}
    for name, tensor in written.items():
        if name in unused:
            continue  # sines that are computed again, and a bias that nothing reads
        if name not in first:  # transformers kept another name of the same tensor
            assert any(torch.equal(tensor, other) for other in first.values()), name
            continue
        assert torch.equal(tensor, first[name]), name
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads((folder / "config.json").read_text())
    marian_sines(again, model)
    with torch.no_grad():
        given = batch(network)
        check(zip("hws", *[run_theirs(case, m, given)[1:] for m in (model, again)], strict=False), reading(case))


def reopened(case, architecture, folder):
    """What transformers makes of a folder, with no key missing and none left over."""
    with exactly(case.family):
        model, info = getattr(transformers, architecture).from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float64
        )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.double()  # transformers reads XLNet's cubes in float32, whatever it is asked for


def marian_sines(again, model):
    """transformers keeps Marian's sines in float32: give the copy the oracle's exact ones."""
    for one, other in zip(again.modules(), model.modules(), strict=True):
        if hasattr(one, "create_weight"):
            one.weight.data.copy_(other.weight)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "by torch"])
def test_prepared_for_inference_it_says_the_same(trio, compiled, monkeypatch):
    """In float32 to the last digits; in bytes nearly (weights this random make the most of every rounding)."""
    if not compiled:
        without_compiled_parts(monkeypatch)
    elif not available():
        pytest.skip("this machine has no compiled parts")
    _, _, network, *_ = trio
    plain, given = copy.deepcopy(network).float().eval(), batch(network)
    given = replace(given, images=None if given.images is None else given.images.float())
    with torch.no_grad():
        prepared = prepare(plain)
        expected, found = run_ours(plain, given), run_ours(prepared, given)
        unwatched = scores(prepared, call(prepared, given))  # whole blocks in one go, where nobody looks at their parts
        nearly = run_ours(prepare(plain, Precision.INT8), given)
    check(zip("ws", expected[1:], found[1:], strict=True), 1e-5)
    check(zip("ws", expected[1:], unwatched, strict=True), 1e-5)
    check(((str(n), *pair) for n, pair in enumerate(zip(expected[0], found[0], strict=True))), 1e-5)
    for one, other in zip(expected[0], nearly[0], strict=True):
        assert torch.nn.functional.cosine_similarity(one, other, dim=-1).mean() > 0.97


def test_saved_without_its_config_it_opens_too(trio, tmp_path):
    """A network that was never anybody's file: the config is written from the network itself."""
    case, model, network, *_ = trio
    family = save(network, tmp_path)
    name = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    found = replace(case, family=family, architecture=name)  # the first class with this very network
    again = reopened(found, name, tmp_path)
    again.config.eos_token_id = END
    assert load(tmp_path)[0].config == network.config or isinstance(network.config, EncoderDecoderConfig)
    if family == case.family:
        marian_sines(again, model)
    with torch.no_grad():
        given = batch(network)
        theirs, theirs_again = run_theirs(case, model, given)[1:], run_theirs(found, again, given)[1:]
    check(zip("ws", theirs, theirs_again, strict=True), reading(case))


def reading(case):
    """How exactly transformers reads what was saved in float64."""
    return 1e-6 if case.family == "xlnet" else 1e-12
