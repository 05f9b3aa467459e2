"""All families and heads against transformers, in float64: outputs, gradients, checkpoints."""

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
    logits_of,
    loss,
    oracle,
    ours,
    pairs,
    parameters,
    reads_images,
    run_ours,
    run_theirs,
)
from safetensors.torch import load_file
from unit.native.no_native import without_native_library

from regard.checkpoint.load import load
from regard.checkpoint.report import LoadStatus
from regard.checkpoint.save import save
from regard.engine import Precision, compile
from regard.families.registry import FAMILIES
from regard.native.library import available
from regard.transformer.batch_layout import BatchLayout
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
    for name, left, right in pairs_of_tensors:
        assert (left is None) == (right is None), name
        if left is not None:
            assert distance(left, right) <= tolerance, name


def check_logits(theirs, ours, tolerance):
    check(zip(["token logits", "sequence logits"], theirs, ours, strict=True), tolerance)


def outputs(case, model, network, inputs):
    their_hidden, *their_logits = run_theirs(case, model, inputs)
    our_hidden, *our_logits = run_ours(network, inputs)
    return their_hidden, their_logits, our_hidden, our_logits


def test_every_published_class_is_in_the_grid():
    for family in SIZES:
        covered = set(FAMILIES[family].architectures) | set(ABSENT)
        assert set(published(family)) <= covered
        assert set(FAMILIES[family].architectures) <= set(published(family))
    elsewhere = {"transfo-xl"}  # test_transformer_xl.py: the current release no longer includes it
    assert set(SIZES) | elsewhere == set(FAMILIES)


def test_same_numbers(trio):
    case, model, network, *_ = trio
    inputs = batch(network)
    with torch.no_grad():
        their_hidden, their_logits, our_hidden, our_logits = outputs(case, model, network, inputs)
    check_logits(their_logits, our_logits, EXACT)
    check(blocks(network, their_hidden, our_hidden, case.family not in LAST_BEFORE_NORM), EXACT)


def blocks(network, their_hidden, our_hidden, last_normed):
    """Yield the hidden states after each block. transformers returns the embeddings first, and most of its classes
    return the last state after the final norm."""
    compared = 0
    for side, stack in network.named_modules():
        if not isinstance(stack, Stack):
            continue
        count = len(stack.blocks)
        for layer in range(count):
            state = our_hidden[compared + layer]
            if layer == count - 1 and last_normed:
                state = stack.final_dropout(stack.final_norm(state)) if stack.final_norm else state
            yield f"{side}.{layer}", their_hidden[1 + layer].flatten(0, 1), state
        their_hidden, compared = their_hidden[count + 1 :], compared + count


def test_same_gradients_and_step_in_training_with_every_dropout_site(trio):
    """Dropout is a factor 1 - p at its site, with a different rate for every kind of site."""
    case, model, network, *_ = trio
    inputs = batch(network)
    mappings = pairs(case, model, network)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    theirs_before = {name: value.detach().clone() for name, value in model.named_parameters()}
    model.train(), network.train()
    try:
        with dropout_as_factor():
            _, their_logits, _, our_logits = outputs(case, model, network, inputs)
            their_loss, our_loss = loss(*their_logits), loss(*our_logits)
            their_loss.backward(), our_loss.backward()
        assert distance(their_loss, our_loss) <= EXACT
        compare_gradients(model, network, mappings)
        for side in (model, network):
            torch.optim.AdamW(side.parameters(), lr=1e-2, eps=1e-4).step()
        compare_parameters(model, network, mappings)
    finally:
        with torch.no_grad():
            for name, value in network.named_parameters():
                value.copy_(before[name])
            for name, value in model.named_parameters():
                value.copy_(theirs_before[name])
        model.zero_grad(), network.zero_grad()
        model.eval(), network.eval()


def compare_gradients(model, network, mappings):
    theirs = parameters(model)
    our_parameters = dict(network.named_parameters(remove_duplicate=False))
    compared = set()
    for mapping in mappings:
        gradient = theirs[mapping.theirs].grad
        parts = [None] * len(mapping.ours) if gradient is None else mapping.how.read(gradient, len(mapping.ours))
        for name, part in zip(mapping.ours, parts, strict=True):
            if part is None:
                assert our_parameters[name].grad is None, name
            elif not zero(part):
                check([(name, part, our_parameters[name].grad)], EXACT)
            else:
                assert zero(our_parameters[name].grad), name
            compared.add(id(our_parameters[name]))
    assert compared >= {id(value) for value in network.parameters() if value.requires_grad}


def zero(gradient):
    """Whether a gradient is zero up to rounding: the key bias has none, as softmax is invariant to a shift."""
    return gradient.abs().max().item() < 1e-13


def compare_parameters(model, network, mappings):
    theirs = parameters(model)
    our_parameters = dict(network.named_parameters(remove_duplicate=False))
    for mapping in mappings:
        for name, part in zip(mapping.ours, mapping.how.read(theirs[mapping.theirs], len(mapping.ours)), strict=True):
            check([(name, part, our_parameters[name])], EXACT)


def test_same_numbers_in_float32(trio, tmp_path):
    case, *_ = trio
    model = oracle(case, torch.float32)
    network, _ = ours(case, model, tmp_path, torch.float32)
    with torch.no_grad():
        _, their_logits, _, our_logits = outputs(case, model, network, batch(network))
    check_logits(their_logits, our_logits, FLOAT32)


def padded(inputs: Batch, side, filler=FIRST_WORD):
    """Cut the sequences of a batch to different lengths and pad them; return the batch and the padding mask."""
    lengths = [LENGTH, LENGTH - 2, LENGTH - 3]
    source, real = inputs.source.clone(), torch.ones_like(inputs.source, dtype=torch.bool)
    for row, length in enumerate(lengths):
        gap = LENGTH - length
        padding = slice(LENGTH - gap, LENGTH) if side == "right" else slice(0, gap)
        source[row, padding] = filler
        real[row, padding] = False
    return replace(inputs, source=source), real


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(trio, side):
    """A padded sequence against the same sequence alone, ours and transformers'."""
    case, model, network, *_ = trio
    if reads_images(network):
        pytest.skip("images have no padding")
    inputs, real = padded(batch(network), side)
    with torch.no_grad():
        output = call(network, inputs, real)
        token_logits, sequence_logits = logits_of(network, output)
        for row in range(len(real)):
            positions = real[row].nonzero()[:, 0]
            single = inputs.row(row)
            single.source = single.source[:, positions]
            single.segments = None if single.segments is None else single.segments[:, positions]
            if isinstance(network, EncoderDecoder) and token_logits is None:
                continue  # these pool at the end of the source: their sequences cannot be cut
            _, *theirs = run_theirs(case, model, single)
            logits = None
            if token_logits is not None:
                logits = token_logits[row : row + 1, positions if inputs.target is None else slice(None)]
            check([("token logits", theirs[0], logits)], EXACT)
            if sequence_logits is not None:
                check([("sequence logits", theirs[1], sequence_logits[row : row + 1])], EXACT)


def test_packed_is_padded(trio):
    """A packed batch (without padding) against the same batch padded."""
    _, _, network, *_ = trio
    if reads_images(network):
        pytest.skip("images have no padding")
    inputs, real = padded(batch(network), "right")
    lengths = real.sum(dim=1).tolist()
    with torch.no_grad():
        padded_output = call(network, inputs, real)
        flat = inputs.source[real]
        if inputs.images is not None:
            packed = network(flat, inputs.images, layout=BatchLayout.of(lengths))
            assert distance(packed.logits_per_text, padded_output.logits_per_text) <= EXACT
        elif inputs.target is not None:
            target_layout = BatchLayout.of((inputs.target.shape[1],) * len(inputs.target))
            packed = network(flat, inputs.target.flatten(), layout=BatchLayout.of(lengths), target_layout=target_layout)
            assert distance(packed.hidden, padded_output.hidden.flatten(0, 1)) <= EXACT
        else:
            extra = {} if inputs.segments is None else {"segments": inputs.segments[real]}
            packed = network(flat, layout=BatchLayout.of(lengths), **extra)
            assert distance(packed.hidden, padded_output.hidden[real]) <= EXACT


def test_cache_changes_nothing(trio):
    """Token by token with a cache, with sequences of different lengths, against one call on all tokens."""
    _, _, network, *_ = trio
    if not hasattr(network, "new_cache"):
        pytest.skip("an encoder has no cache")
    inputs = batch(network)
    tokens = inputs.source if inputs.target is None else inputs.target
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, 2:] = False
    with torch.no_grad():
        cache = network.new_cache()
        step = (lambda t, m: network(t, m, cache)) if inputs.target is None else None
        if step is None:
            source = network.encode(inputs.source)
            step = lambda t, m: network(source, t, target_mask=m, cache=cache)  # noqa: E731
        step(tokens[:, :3], real[:, :3])
        hidden = [step(tokens[:, i : i + 1], None).hidden[:, 0] for i in range(3, tokens.shape[1])]
        assert cache.lengths == (tokens.shape[1], tokens.shape[1] - 1, tokens.shape[1])
        for row, keep in enumerate([slice(None), [0, 1, *range(3, tokens.shape[1])], slice(None)]):
            sequence = tokens[row : row + 1][:, keep]
            if inputs.target is None:
                expected = network(sequence).hidden[0]
            else:
                expected = network(inputs.source[row : row + 1], sequence).hidden[0]
            cached = torch.stack([h[row] for h in hidden])
            check([(f"row {row}", expected[-len(cached) :], cached)], EXACT)


def test_saved_again_it_opens_in_transformers(trio, tmp_path):
    """No missing key, no unexpected key, equal tensors, equal config keys, equal numbers."""
    case, model, network, report, folder = trio
    assert save(network, tmp_path, origin=report.origin) == case.family
    again = reopened(case, case.architecture, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    original = load_file(folder / "model.safetensors")
    unused = {line.theirs for line in report.with_status(LoadStatus.IGNORED)}
    for name, tensor in saved.items():
        if name in unused:
            continue  # sinusoids that are computed again, and a bias that is not used
        if name not in original:  # transformers saved another name of the same tensor
            assert any(torch.equal(tensor, other) for other in original.values()), name
            continue
        assert torch.equal(tensor, original[name]), name
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads((folder / "config.json").read_text())
    copy_sinusoids(again, model)
    with torch.no_grad():
        inputs = batch(network)
        check(
            zip("hws", *[run_theirs(case, m, inputs)[1:] for m in (model, again)], strict=False), read_tolerance(case)
        )


def reopened(case, architecture, folder):
    """Open a folder with transformers; no key may be missing or unexpected."""
    with exactly(case.family):
        model, info = getattr(transformers, architecture).from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float64
        )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.double()  # transformers reads XLNet's 3-D tensors in float32 regardless of dtype


def copy_sinusoids(again, model):
    """Copy the oracle's exact sinusoids: transformers stores Marian's in float32."""
    for target, source in zip(again.modules(), model.modules(), strict=True):
        if hasattr(target, "create_weight"):
            target.weight.data.copy_(source.weight)


@pytest.mark.parametrize("native", [True, False], ids=["native", "torch"])
def test_compiled_for_inference_the_outputs_are_the_same(trio, native, monkeypatch):
    """In float32 to the last digits; in int8 approximately (random weights amplify the quantization error)."""
    if not native:
        without_native_library(monkeypatch)
    elif not available():
        pytest.skip("the native library is not available")
    _, _, network, *_ = trio
    original, inputs = copy.deepcopy(network).float().eval(), batch(network)
    inputs = replace(inputs, images=None if inputs.images is None else inputs.images.float())
    with torch.no_grad():
        compiled = compile(original)
        expected, hooked = run_ours(original, inputs), run_ours(compiled, inputs)
        unhooked = logits_of(compiled, call(compiled, inputs))  # without hooks, whole blocks run in one native call
        quantized = run_ours(compile(original, Precision.INT8), inputs)
    check(zip("ws", expected[1:], hooked[1:], strict=True), 1e-5)
    check(zip("ws", expected[1:], unhooked, strict=True), 1e-5)
    check(((str(n), *pair) for n, pair in enumerate(zip(expected[0], hooked[0], strict=True))), 1e-5)
    for exact, approximate in zip(expected[0], quantized[0], strict=True):
        assert torch.nn.functional.cosine_similarity(exact, approximate, dim=-1).mean() > 0.97


def test_saved_without_its_config_it_opens_too(trio, tmp_path):
    """Without an origin the config is written from the network itself."""
    case, model, network, *_ = trio
    family = save(network, tmp_path)
    name = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    saved_case = replace(case, family=family, architecture=name)  # the first class with the same network
    again = reopened(saved_case, name, tmp_path)
    again.config.eos_token_id = END
    assert load(tmp_path)[0].config == network.config or isinstance(network.config, EncoderDecoderConfig)
    if family == case.family:
        copy_sinusoids(again, model)
    with torch.no_grad():
        inputs = batch(network)
        theirs, theirs_again = run_theirs(case, model, inputs)[1:], run_theirs(saved_case, again, inputs)[1:]
    check(zip("ws", theirs, theirs_again, strict=True), read_tolerance(case))


def read_tolerance(case):
    """Return the tolerance for what transformers reads from float64 checkpoints."""
    return 1e-6 if case.family == "xlnet" else 1e-12
