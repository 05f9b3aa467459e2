"""A compiled network: what is replaced, what is shared, what is rejected. Parity tests compare its results."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from unit.generation.networks import KINDS, design, network, translates
from unit.transformer.small_networks import made

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError, ModelFolder
from regard.checkpoint.quantized_tensor import quantize
from regard.checkpoint.save import save
from regard.engine import Precision, compile, quantization_error
from regard.engine.compiler import quantizable_weights
from regard.engine.hooks import HookDetector
from regard.engine.quantization_error import CalibrationSample, QuantizationMetrics, measure_quantization_error
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.generation import BatchSize, BeamSearch, DecodingOptions, GreedySearch, Inputs, generate
from regard.native.library import available
from regard.tasks import calibration
from regard.transformer import build
from regard.transformer.activation_capture import capture
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.decoder_state import UncachedState
from regard.transformer.mask import Window


def single(kind, seed=0):
    """Return a new network of this kind in float32."""
    return made(design(kind), seed).float()


@pytest.mark.parametrize("precision", list(Precision))
def test_the_network_itself_stays_as_it_is(precision):
    original = single("learned")
    before = {name: value.clone() for name, value in original.named_parameters()}
    types = [type(module) for module in original.modules()]
    compile(original, precision)
    assert all(torch.equal(before[name], value) and value.requires_grad for name, value in original.named_parameters())
    assert [type(module) for module in original.modules()] == types


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_more_tokens_than_are_taken_at_a_time(precision):
    """The feed-forward layer runs in chunks of some hundred tokens (FEEDFORWARD_CHUNK in block.c): no effect."""
    original = (
        made(transformer_2017(vocabulary=50, layers=(2, 1), model_dim=16, heads=2, inner_dim=32), 0).float().eval()
    )
    compiled, lengths = compile(original, precision), (200, 383, 1, 411)
    tokens = torch.randint(50, (sum(lengths),), generator=torch.Generator().manual_seed(0))
    together = compiled.encode(tokens, layout=BatchLayout.of(lengths)).hidden
    alone = [compiled.encode(row, layout=BatchLayout.of([len(row)])).hidden for row in tokens.split(lengths)]
    assert torch.equal(together, torch.cat(alone))
    if precision is Precision.FLOAT32:
        torch.testing.assert_close(
            together, original.encode(tokens, layout=BatchLayout.of(lengths)).hidden, rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("token", [-1, 50])
def test_a_token_that_the_network_does_not_know_is_an_error(token, precision):
    compiled = compile(single("learned"), precision)
    with pytest.raises(IndexError, match=rf"token id {token} is out of range for a vocabulary of \d+"):
        compiled(torch.tensor([1, 2, token]), layout=BatchLayout.of([3]))


@torch.inference_mode()
def test_a_hook_on_the_embedding_table_is_called():
    compiled, outputs = compile(single("learned")), []
    tokens, rows = torch.tensor([1, 2, 3]), BatchLayout.of([3])
    before = compiled(tokens, layout=rows).logits
    compiled.embedding.tokens.register_forward_hook(lambda module, args, output: outputs.append(output))
    torch.testing.assert_close(compiled(tokens, layout=rows).logits, before)
    assert len(outputs) == 1


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_a_cache_that_began_with_another_mask(precision):
    """The first tokens are computed by torch modules, the next ones by native blocks; with hooks, all by torch modules.
    In both cases the dtype of the cache follows the precision."""
    compiled, level = compile(single("learned"), precision), 1e-5 if precision is Precision.FLOAT32 else 0.05
    is_bf16 = available() and precision is Precision.INT8

    def all_logits():
        cache = compiled.new_cache()
        yield compiled(torch.tensor([3, 4, 5, 6, 7]), Window(2), cache, layout=BatchLayout.of([3, 2])).logits
        assert {layer.key.dtype for layer in cache.layers} == {torch.bfloat16 if is_bf16 else torch.float32}
        for tokens in [8, 9], [1, 2], [5, 5]:
            yield compiled(torch.tensor(tokens), None, cache, layout=BatchLayout.of([1, 1])).logits

    with capture(compiled):
        expected = list(all_logits())
    for found, other in zip(all_logits(), expected, strict=True):
        torch.testing.assert_close(found, other, rtol=0, atol=level)


@pytest.mark.parametrize("kind", [torch.int32, torch.int16])
@torch.inference_mode()
def test_tokens_of_any_whole_numbers(kind):
    compiled, tokens = compile(single("learned")), torch.tensor([1, 2, 3, 4])
    assert torch.equal(
        compiled(tokens.to(kind), layout=BatchLayout.of([4])).logits,
        compiled(tokens, layout=BatchLayout.of([4])).logits,
    )


def test_hooks_come_and_go():
    module, other = nn.Linear(1, 1), nn.Linear(1, 1)
    detector = HookDetector([module])
    assert not detector
    first = module.register_forward_hook(print)
    second = module.register_forward_pre_hook(print)
    assert detector
    first.remove()
    assert detector
    second.remove()
    assert not detector
    other.register_forward_hook(print)
    assert not detector
    module.register_forward_pre_hook(print)
    assert detector


def test_what_is_not_replaced_is_shared():
    original = single("learned")
    compiled = compile(original)
    assert compiled.embedding.tokens.weight.data_ptr() == original.embedding.tokens.weight.data_ptr()
    assert not any(value.requires_grad for value in compiled.parameters())
    assert not any(isinstance(part, nn.Linear) for part in compiled.decoder.modules())


def test_what_cannot_be_compiled_is_rejected():
    with pytest.raises(ValueError, match=r"compile needs float32 weights, found torch\.float64"):
        compile(network("learned"))
    with torch.device("meta"):
        elsewhere = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="needs a network on the CPU, this one is on meta"):
        compile(elsewhere)


@pytest.mark.parametrize("kind", KINDS)
def test_an_int8_checkpoint_holds_quantized_values_and_scales(kind, tmp_path):
    original = single(kind)
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    read = dict(load(tmp_path)[0].named_parameters())
    assert quantizable_weights(original) & set(read)
    for name, value in original.named_parameters():
        expected = value
        if name in quantizable_weights(original):
            qweight, scale = quantize(value.detach())
            expected = qweight.float() * scale[:, None]
        torch.testing.assert_close(read[name], expected, rtol=1e-6, atol=0, msg=name)


def test_a_damaged_scale_is_an_error(tmp_path):
    original = single("learned")
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith(".scale"))
    save_file(tensors | {name: torch.ones(3)}, file)
    with pytest.raises(CheckpointError, match="the scale of"):
        load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
def test_every_kind_generates_compiled(kind, precision):
    """The score of the best hypothesis is nearly that of the original network."""
    original = single(kind)
    settings = DecodingOptions(eos_token_ids=[2], max_new_tokens=6, search=BeamSearch(beam=3))
    inputs = Inputs([3, 4], [5, 6, 7] if translates(kind) else None)
    expected = next(generate(original, [inputs], settings))
    found = next(generate(compile(original, precision), [inputs], settings))
    close = 1e-4 if precision is Precision.FLOAT32 else 0.3
    assert found.hypotheses[0].score == pytest.approx(expected.hypotheses[0].score, abs=close)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_every_decode_step_compiled(kind):
    """Decode steps while rows are repeated, reordered, removed and added: the logits of the original network."""
    original = single(kind)
    both = [Writing(network, kind) for network in (original, compile(original))]

    def read(*rows):
        expected, found = (writing.reading.step(rows) for writing in both)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)

    read([3, 4, 5], [6], [7, 8])
    for writing in both:
        writing.reading.repeat_interleave(2)
    read([3], [4], [5], [6], [7], [8])
    for writing in both:
        writing.reading.reorder([1, 1, 5, 4])
    read([9], [10], [11], [12])
    for writing in both:
        writing.enter([[3, 4], [5, 6, 7, 8]])
    for token in range(3, 20):  # until caches have to grow
        read(*([(token + row) % 23] for row in range(8)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("memory", "two streams")])
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_a_cache_changes_nothing(kind, precision):
    """Decode steps with a cache, and without (all tokens again at every step); with hooks, which use other kernels, and
    without. With hooks the order of additions differs, and at int8 that may change a quantized value by 1."""
    compiled, level = compile(single(kind), precision), 1e-5 if precision is Precision.FLOAT32 else 0.05
    sources = [[5, 6, 7], [8, 9]] if translates(kind) else None
    uncached = UncachedState(compiled, sources)
    hooked, unhooked, *alternating = (compiled.new_decoder_state(sources) for _ in range(4))
    for step, tokens in enumerate([([3, 4, 5], [6]), ([7], [8]), ([9], [10]), ([11], [12])]):
        expected = uncached.step(tokens)
        torch.testing.assert_close(unhooked.step(tokens), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(alternating[step % 2].step(tokens), expected, rtol=0, atol=level)
        with capture(compiled, "decoder.blocks.0.attention"):
            torch.testing.assert_close(hooked.step(tokens), expected, rtol=0, atol=level)
            torch.testing.assert_close(alternating[1 - step % 2].step(tokens), expected, rtol=0, atol=level)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_threads_with_rows_of_their_own_change_no_bit(kind, precision):
    """So many rows that each thread runs some through all blocks: with and without caches, sources and beams."""
    compiled, before, found = compile(single(kind), precision), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            texts = [[3 + (text + at) % 20 for at in range(1 + text % 5)] for text in range(30)]
            writing = compiled.new_decoder_state(texts if translates(kind) else None)
            logits = [writing.step([text[:2] for text in texts])]
            writing.repeat_interleave(2)
            logits.append(writing.step([[3 + row % 20] for row in range(60)]))
            writing.reorder([row ^ 1 for row in range(10, 60)])
            logits.append(writing.step([[4 + row % 19] for row in range(50)]))
            found.append(torch.cat(logits))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def ends_at_its_number(logits, rows):
    """A logits processor: the second token of the prompt is the length at which the sequence ends, and not before."""
    logits[:, 2] = -torch.inf
    for number, row in enumerate(rows):
        if row.num_new_tokens >= row.tokens[1] - 1:
            logits[number] = -torch.inf
            logits[number, 2] = 0
    return logits


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("beams", [1, 3])
@torch.inference_mode()
def test_long_texts_that_leave_change_nothing_in_those_that_stay(precision, beams):
    """Sequences of several pages each leave at different lengths, others take their cache rows, and new ones enter: the
    scores of each are the same as without a batch."""
    original = made(transformer_2017(vocabulary=90, layers=(1, 2), model_dim=128, heads=2, inner_dim=64), 0).float()
    compiled = compile(original, precision)
    lengths = (20, 75, 40, 70, 36, 74, 22, 68, 50)
    texts = [Inputs([1, length], list(range(3, 3 + length))) for length in lengths]
    search = BeamSearch(beam=beams) if beams > 1 else GreedySearch()
    settings = DecodingOptions(
        search=search, eos_token_ids=[2], max_new_tokens=80, logits_processors=[ends_at_its_number]
    )
    together = list(generate(compiled, texts, settings, batch_size=BatchSize(sequences=5 * beams)))
    assert [len(found.tokens) for found in together] == list(lengths)
    for text, found in zip(texts, together, strict=True):
        alone = next(generate(compiled, [text], settings))
        assert found.tokens == alone.tokens
        assert found.token_scores == pytest.approx(alone.token_scores, abs=1e-5)


class Writing:
    """The decoder state of a network with three sequences, and two more that are added later."""

    def __init__(self, network, kind):
        self.network, self.kind = network, kind
        self.reading = self._begin([[5, 6, 7], [8], [9, 10, 11, 12, 13]])

    def _begin(self, sources):
        return self.network.new_decoder_state(sources if translates(self.kind) else None)

    def enter(self, prompts):
        new = self._begin([[9], [5, 6], [7, 8, 9]])
        new.step([[4], *prompts])
        self.reading.append(new, [1, 2], repeats=2)  # the first one is not added


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_threads_change_no_bit(precision):
    """So large that all threads are used."""
    design = transformer_2017(vocabulary=3000, layers=(1, 1), model_dim=64, heads=4, inner_dim=128)
    network, before = compile(made(design, 0).float(), precision), torch.get_num_threads()
    source, target = (torch.arange(count) % 3000 for count in (300, 250))
    rows = {"layout": BatchLayout.of([100, 200]), "target_layout": BatchLayout.of([50, 200])}
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(network(source, target, **rows).logits)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize(
    ("family", "architecture", "config"),
    [
        ("gpt2", "GPT2Model", dict(n_embd=8, n_layer=1, n_head=2, n_positions=16)),
        ("gpt2", "GPT2LMHeadModel", dict(n_embd=8, n_layer=1, n_head=2, n_positions=16)),
        ("bert", "BertModel", dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9)),
        ("t5", "T5Model", dict(d_model=8, d_kv=4, num_layers=1, num_heads=2, d_ff=9)),
    ],
)
def test_the_quantization_error_is_measured_whatever_the_head(family, architecture, config):
    """Also without a language-modelling head, on random tokens; never on more of them than there are positions."""
    original = build(FAMILIES[family].read_config(config | {"vocab_size": 40}, architecture)[0]).eval()
    samples = calibration.random_samples(original)
    assert (
        measure_quantization_error(
            original, compile(original, Precision.INT8), samples, "random tokens"
        ).cosine_similarity
        > 0.9
    )
    assert max(len(sample.tokens) for sample in samples) <= (16 if family == "gpt2" else 40)


class TestQuantizationError:
    def test_a_network_loses_nothing_to_itself(self):
        original = single("translating")
        found = measure_quantization_error(original, original, calibration.random_samples(original), "random tokens")
        assert (found.cosine_similarity, found.top1_agreement, found.kl_divergence) == (
            pytest.approx(1),
            1,
            pytest.approx(0, abs=1e-6),
        )

    def test_it_is_what_the_definitions_say(self):
        one, other = single("learned"), single("learned", seed=1)
        samples = [CalibrationSample([5, 3, 8]), CalibrationSample([4, 9])]
        found = measure_quantization_error(one, other, samples, "two texts")
        cosines, same, divergences = [], [], []
        for sample in samples:
            a, b = (net(torch.tensor([sample.tokens])) for net in (one, other))
            for i in range(len(sample.tokens)):
                x, y = a.hidden[0, i].detach(), b.hidden[0, i].detach()
                cosines.append((x @ y / (x.norm() * y.norm())).item())
                p, q = (out.logits[0, i].detach().softmax(-1) for out in (a, b))
                same.append(p.argmax() == q.argmax())
                divergences.append((p * (p / q).log()).sum().item())
        assert found.cosine_similarity == pytest.approx(sum(cosines) / 5, abs=1e-5)
        assert found.top1_agreement == pytest.approx(sum(same).item() / 5)
        assert found.kl_divergence == pytest.approx(sum(divergences) / 5, rel=1e-4)
        assert found.tokens == 5

    def test_it_is_written_and_read(self, tmp_path):
        metrics = QuantizationMetrics("file.txt", 12, 0.99, 0.98, 0.001)
        quantization_error.write_quantization_record(ModelFolder(tmp_path), Precision.INT8, metrics)
        assert quantization_error.read_quantization_record(ModelFolder(tmp_path)) == (Precision.INT8, metrics)
        assert "cosine similarity 0.9900, top-1 agreement 98.0%, KL divergence 0.0010 nats" in str(metrics)
        assert quantization_error.read_quantization_record(ModelFolder(tmp_path / "elsewhere")) is None
        file = json.loads((tmp_path / "regard.json").read_text())["quantization"]
        assert file == {
            "precision": "int8",
            "quantization_error": {
                "dataset": "file.txt",
                "tokens": 12,
                "cosine_similarity": 0.99,
                "top1_agreement": 0.98,
                "kl_divergence": 0.001,
            },
        }

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                '{"precision": "int8", "loss": {"on": "file.txt", "tokens": 12, "cosine": 0.99, "agreement": 0.98, '
                '"divergence": 0.001}}',
                (Precision.INT8, QuantizationMetrics("file.txt", 12, 0.99, 0.98, 0.001)),
            ),
            (
                '{"precision": "int8", "loss": {"on": "file.txt", "tokens": 12, "cosine": 0.99, "agreement": null, '
                '"divergence": null}}',
                (Precision.INT8, QuantizationMetrics("file.txt", 12, 0.99)),
            ),
            ('{"precision": "int8", "loss": null}', (Precision.INT8, None)),
            ('{"precision": "fp32", "loss": null}', (Precision.FLOAT32, None)),
        ],
    )
    def test_files_of_older_versions_are_read(self, tmp_path, text, expected):
        (tmp_path / "engine.json").write_text(text)
        assert quantization_error.read_quantization_record(ModelFolder(tmp_path)) == expected

    @pytest.mark.parametrize(
        "text",
        [
            '{"precision": "int3"}',
            '{"precision": "int8", "quantization_error": 3}',
            '{"precision": "int8", "loss": 3}',
            '{"precision": "int8", "loss": {"cosine": 0.9, "unknown": 1}}',
        ],
    )
    def test_a_damaged_record_is_an_error(self, tmp_path, text):
        for name, content in (("regard.json", f'{{"quantization": {text}}}'), ("engine.json", text)):
            (tmp_path / name).write_text(content)
            with pytest.raises(ValueError, match=name.replace(".", r"\.")):
                quantization_error.read_quantization_record(ModelFolder(tmp_path))
            (tmp_path / name).unlink()
