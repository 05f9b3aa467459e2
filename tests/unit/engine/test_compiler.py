"""A prepared network: what is replaced, what is shared, what it refuses. That it computes the same, parity tests."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from unit.generation.networks import KINDS, design, network, translates
from unit.transformer.small_networks import made

from regard.checkpoint.files import CheckpointError
from regard.checkpoint.load import load
from regard.checkpoint.quantized_tensor import rounded
from regard.checkpoint.save import save
from regard.engine import Precision, prepare, quantization_error
from regard.engine.compiler import matrices
from regard.engine.hooks import Listeners
from regard.engine.quantization_error import Loss, Probe, measure
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.generation import AtOnce, Beam, Given, Greedy, Settings, decoder_state, generate
from regard.native.library import available
from regard.tasks import calibration
from regard.transformer import build
from regard.transformer.batch_layout import Rows
from regard.transformer.capture import watch
from regard.transformer.mask import Window


def single(kind, seed=0):
    """A network of this kind in float32, of its own."""
    return made(design(kind), seed).float()


@pytest.mark.parametrize("precision", list(Precision))
def test_the_network_itself_stays_as_it_is(precision):
    plain = single("learned")
    before = {name: value.clone() for name, value in plain.named_parameters()}
    parts = [type(part) for part in plain.modules()]
    prepare(plain, precision)
    assert all(torch.equal(before[name], value) and value.requires_grad for name, value in plain.named_parameters())
    assert [type(part) for part in plain.modules()] == parts


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_more_tokens_than_are_taken_at_a_time(precision):
    """A feed-forward layer takes some hundreds at a time (AT_A_TIME in block.c): no row feels where they are parted."""
    plain = made(transformer_2017(vocabulary=50, layers=(2, 1), model_dim=16, heads=2, inner_dim=32), 0).float().eval()
    quick, lengths = prepare(plain, precision), (200, 383, 1, 411)
    tokens = torch.randint(50, (sum(lengths),), generator=torch.Generator().manual_seed(0))
    together = quick.encode(tokens, rows=Rows.of(lengths)).hidden
    alone = [quick.encode(row, rows=Rows.of([len(row)])).hidden for row in tokens.split(lengths)]
    assert torch.equal(together, torch.cat(alone))
    if precision is Precision.FP32:
        torch.testing.assert_close(together, plain.encode(tokens, rows=Rows.of(lengths)).hidden, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("token", [-1, 50])
def test_a_token_that_the_network_does_not_know_is_an_error(token, precision):
    quick = prepare(single("learned"), precision)
    with pytest.raises(IndexError, match=rf"token {token} is not in a vocabulary of \d+"):
        quick(torch.tensor([1, 2, token]), rows=Rows.of([3]))


@torch.inference_mode()
def test_who_listens_to_a_table_hears_of_it():
    quick, heard = prepare(single("learned")), []
    tokens, rows = torch.tensor([1, 2, 3]), Rows.of([3])
    before = quick(tokens, rows=rows).logits
    quick.embedding.tokens.register_forward_hook(lambda part, given, found: heard.append(found))
    torch.testing.assert_close(quick(tokens, rows=rows).logits, before)
    assert len(heard) == 1


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_a_cache_that_began_with_another_mask(precision):
    """The first tokens go the way of torch, and the next the compiled one; watched, all go the first way. Whoever keeps
    keys and values, they are rounded as the precision has it."""
    quick, level = prepare(single("learned"), precision), 1e-5 if precision is Precision.FP32 else 0.05
    halved = available() and precision is Precision.INT8

    def answers():
        cache = quick.new_cache()
        yield quick(torch.tensor([3, 4, 5, 6, 7]), Window(2), cache, rows=Rows.of([3, 2])).logits
        assert {kept.key.dtype for kept in cache.own} == {torch.bfloat16 if halved else torch.float32}
        for tokens in [8, 9], [1, 2], [5, 5]:
            yield quick(torch.tensor(tokens), None, cache, rows=Rows.of([1, 1])).logits

    with watch(quick):
        expected = list(answers())
    for found, other in zip(answers(), expected, strict=True):
        torch.testing.assert_close(found, other, rtol=0, atol=level)


@pytest.mark.parametrize("kind", [torch.int32, torch.int16])
@torch.inference_mode()
def test_tokens_of_any_whole_numbers(kind):
    quick, tokens = prepare(single("learned")), torch.tensor([1, 2, 3, 4])
    assert torch.equal(quick(tokens.to(kind), rows=Rows.of([4])).logits, quick(tokens, rows=Rows.of([4])).logits)


def test_listeners_come_and_go():
    part, other = nn.Linear(1, 1), nn.Linear(1, 1)
    listeners = Listeners([part])
    assert not listeners
    first = part.register_forward_hook(print)
    second = part.register_forward_pre_hook(print)
    assert listeners
    first.remove()
    assert listeners
    second.remove()
    assert not listeners
    other.register_forward_hook(print)
    assert not listeners
    part.register_forward_pre_hook(print)
    assert listeners


def test_what_is_not_replaced_is_shared():
    plain = single("learned")
    quick = prepare(plain)
    assert quick.embedding.tokens.weight.data_ptr() == plain.embedding.tokens.weight.data_ptr()
    assert not any(value.requires_grad for value in quick.parameters())
    assert not any(isinstance(part, nn.Linear) for part in quick.decoder.modules())


def test_what_cannot_be_prepared_is_refused():
    with pytest.raises(ValueError, match=r"from float32, found torch\.float64"):
        prepare(network("learned"))
    with torch.device("meta"):
        elsewhere = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="for a CPU, and this one is on meta"):
        prepare(elsewhere)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_in_bytes_holds_levels_and_scales(kind, tmp_path):
    plain = single(kind)
    save(plain, tmp_path, in_bytes=matrices(plain))
    read = dict(load(tmp_path)[0].named_parameters())
    assert matrices(plain) & set(read)
    for name, value in plain.named_parameters():
        expected = value
        if name in matrices(plain):
            levels, scale = rounded(value.detach())
            expected = levels.float() * scale[:, None]
        torch.testing.assert_close(read[name], expected, rtol=1e-6, atol=0, msg=name)


def test_a_damaged_scale_is_an_error(tmp_path):
    plain = single("learned")
    save(plain, tmp_path, in_bytes=matrices(plain))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith(".scale"))
    save_file(tensors | {name: torch.ones(3)}, file)
    with pytest.raises(CheckpointError, match="the scales of"):
        load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
def test_every_kind_writes_prepared(kind, precision):
    """What is written is scored by the plain network nearly as high as what it writes itself."""
    plain = single(kind)
    settings = Settings(end=[2], limit=6, search=Beam(size=3))
    given = Given([3, 4], [5, 6, 7] if translates(kind) else None)
    own = next(generate(plain, [given], settings))
    found = next(generate(prepare(plain, precision), [given], settings))
    close = 1e-4 if precision is Precision.FP32 else 0.3
    assert found.hypotheses[0].score == pytest.approx(own.hypotheses[0].score, abs=close)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_every_step_of_writing_prepared(kind):
    """Token by token, while rows are copied, change places, leave and come: the scores of the plain network."""
    plain = single(kind)
    both = [Writing(network, kind) for network in (plain, prepare(plain))]

    def read(*rows):
        expected, found = (writing.reading.read(rows) for writing in both)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)

    read([3, 4, 5], [6], [7, 8])
    for writing in both:
        writing.reading.spread(2)
    read([3], [4], [5], [6], [7], [8])
    for writing in both:
        writing.reading.keep([1, 1, 5, 4])
    read([9], [10], [11], [12])
    for writing in both:
        writing.enter([[3, 4], [5, 6, 7, 8]])
    for token in range(3, 20):  # until caches have to grow
        read(*([(token + row) % 23] for row in range(8)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("memory", "two streams")])
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_a_cache_changes_nothing(kind, precision):
    """Token by token, and everything read again for every token; watched, which takes another way, and not. There the
    order of additions is another, and in bytes the last digit may move a number by a whole level."""
    quick, level = prepare(single(kind), precision), 1e-5 if precision is Precision.FP32 else 0.05
    sources = [[5, 6, 7], [8, 9]] if translates(kind) else None
    again = decoder_state.Rereading(quick, sources)
    watched, plain, *in_turn = (decoder_state.begin(quick, sources) for _ in range(4))
    for step, tokens in enumerate([([3, 4, 5], [6]), ([7], [8]), ([9], [10]), ([11], [12])]):
        expected = again.read(tokens)
        torch.testing.assert_close(plain.read(tokens), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(in_turn[step % 2].read(tokens), expected, rtol=0, atol=level)
        with watch(quick, "decoder.blocks.0.attention"):
            torch.testing.assert_close(watched.read(tokens), expected, rtol=0, atol=level)
            torch.testing.assert_close(in_turn[1 - step % 2].read(tokens), expected, rtol=0, atol=level)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_threads_with_rows_of_their_own_change_no_bit(kind, precision):
    """So many rows that each thread takes some through all blocks: with and without caches, sources and beams."""
    quick, before, found = prepare(single(kind), precision), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            texts = [[3 + (text + at) % 20 for at in range(1 + text % 5)] for text in range(30)]
            writing = decoder_state.begin(quick, texts if translates(kind) else None)
            said = [writing.read([text[:2] for text in texts])]
            writing.spread(2)
            said.append(writing.read([[3 + row % 20] for row in range(60)]))
            writing.keep([row ^ 1 for row in range(10, 60)])
            said.append(writing.read([[4 + row % 19] for row in range(50)]))
            found.append(torch.cat(said))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def ends_at_its_number(logits, rows):
    """A rule: each text ends at the length that the second token of its prompt stands for, and not before."""
    logits[:, 2] = -torch.inf
    for number, row in enumerate(rows):
        if row.length >= row.tokens[1] - 1:
            logits[number] = -torch.inf
            logits[number, 2] = 0
    return logits


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("beams", [1, 3])
@torch.inference_mode()
def test_long_texts_that_leave_change_nothing_in_those_that_stay(precision, beams):
    """Texts of several pages each leave at different lengths, others take their lines, and new ones enter: each is what
    it is alone, score by score."""
    plain = made(transformer_2017(vocabulary=90, layers=(1, 2), model_dim=128, heads=2, inner_dim=64), 0).float()
    quick = prepare(plain, precision)
    lengths = (20, 75, 40, 70, 36, 74, 22, 68, 50)
    texts = [Given([1, length], list(range(3, 3 + length))) for length in lengths]
    search = Beam(size=beams) if beams > 1 else Greedy()
    settings = Settings(search=search, end=[2], limit=80, rules=[ends_at_its_number])
    together = list(generate(quick, texts, settings, at_once=AtOnce(rows=5 * beams)))
    assert [len(found.tokens) for found in together] == list(lengths)
    for text, found in zip(texts, together, strict=True):
        alone = next(generate(quick, [text], settings))
        assert found.tokens == alone.tokens
        assert found.token_scores == pytest.approx(alone.token_scores, abs=1e-5)


class Writing:
    """What a network reads of three texts, and of two more that come later."""

    def __init__(self, network, kind):
        self.network, self.kind = network, kind
        self.reading = self._begin([[5, 6, 7], [8], [9, 10, 11, 12, 13]])

    def _begin(self, sources):
        return decoder_state.begin(self.network, sources if translates(self.kind) else None)

    def enter(self, prompts):
        new = self._begin([[9], [5, 6], [7, 8, 9]])
        new.read([[4], *prompts])
        self.reading.add(new, [1, 2], copies=2)  # the first one waits


@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_threads_change_no_bit(precision):
    """So large that all of them are woken."""
    design = transformer_2017(vocabulary=3000, layers=(1, 1), model_dim=64, heads=4, inner_dim=128)
    network, before = prepare(made(design, 0).float(), precision), torch.get_num_threads()
    source, target = (torch.arange(count) % 3000 for count in (300, 250))
    rows = {"rows": Rows.of([100, 200]), "target_rows": Rows.of([50, 200])}
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
def test_a_loss_is_measured_whatever_the_head(family, architecture, config):
    """Without a head that writes, on tokens by chance; never on more of them than there are positions."""
    plain = build(FAMILIES[family].read(config | {"vocab_size": 40}, architecture)[0]).eval()
    given = calibration.drawn(plain)
    assert measure(plain, prepare(plain, Precision.INT8), given, "chance").cosine > 0.9
    assert max(len(probe.tokens) for probe in given) <= (16 if family == "gpt2" else 40)


class TestLoss:
    def test_a_network_loses_nothing_to_itself(self):
        plain = single("translating")
        found = measure(plain, plain, calibration.drawn(plain), "chance")
        assert (found.cosine, found.agreement, found.divergence) == (pytest.approx(1), 1, pytest.approx(0, abs=1e-6))

    def test_it_is_what_the_definitions_say(self):
        one, other = single("learned"), single("learned", seed=1)
        given = [Probe([5, 3, 8]), Probe([4, 9])]
        found = measure(one, other, given, "two texts")
        cosines, same, divergences = [], [], []
        for probe in given:
            a, b = (net(torch.tensor([probe.tokens])) for net in (one, other))
            for i in range(len(probe.tokens)):
                x, y = a.hidden[0, i].detach(), b.hidden[0, i].detach()
                cosines.append((x @ y / (x.norm() * y.norm())).item())
                p, q = (out.logits[0, i].detach().softmax(-1) for out in (a, b))
                same.append(p.argmax() == q.argmax())
                divergences.append((p * (p / q).log()).sum().item())
        assert found.cosine == pytest.approx(sum(cosines) / 5, abs=1e-5)
        assert found.agreement == pytest.approx(sum(same).item() / 5)
        assert found.divergence == pytest.approx(sum(divergences) / 5, rel=1e-4)
        assert found.tokens == 5

    def test_it_is_kept_and_read_again(self, tmp_path):
        loss = Loss("file.txt", 12, 0.99, 0.98, 0.001)
        quantization_error.write(tmp_path, Precision.INT8, loss)
        assert quantization_error.read(tmp_path) == (Precision.INT8, loss)
        assert "the same likeliest token 98.0%" in str(loss)
        assert quantization_error.read(tmp_path / "elsewhere") is None

    def test_a_damaged_file_is_an_error(self, tmp_path):
        (tmp_path / "engine.json").write_text('{"precision": "int3"}')
        with pytest.raises(ValueError, match=r"engine\.json"):
            quantization_error.read(tmp_path)
