"""`model.translate`: results in order, with empty, overlong and streamed texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import models, vocabularies
from unit.tasks.models import comparable

from regard.families.transformer import transformer_2017
from regard.tasks.translate import TranslateOptions
from regard.tasks.translator import EMPTY_TRANSLATION, Translator
from regard.transformer.network import build_on_meta

SENTENCES = vocabularies.sentences(40, seed=11)
LONG = " ".join(SENTENCES[:12])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.opened(models.translating(tmp_path_factory.mktemp("translating")))


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A small BART with 48 learned position embeddings."""
    return models.opened(models.with_positions(tmp_path_factory.mktemp("short")))


def translate_one(model, text, **options):
    return model.translate(text, **options)


@pytest.fixture(scope="module")
def single_results(model):
    """The results of some lines, each translated alone."""
    return {line: comparable(translate_one(model, line, max_new_tokens=6)) for line in SENTENCES[:3]}


@pytest.mark.parametrize(
    ("model_dim", "options", "sequences"),
    [
        (16, TranslateOptions(), 96),
        (300, TranslateOptions(), 96),
        (400, TranslateOptions(), 81),
        (512, TranslateOptions(beam=4), 64),
        (4096, TranslateOptions(), 16),
        (4096, TranslateOptions(beam=20), 20),
        (128, TranslateOptions(batch_size=8), 8),
        (128, TranslateOptions(batch_size=2, beam=4), 4),
    ],
)
def test_narrow_networks_get_larger_batches(model, model_dim, options, sequences):
    network = build_on_meta(transformer_2017(vocabulary=30, layers=(1, 1), model_dim=model_dim, heads=1, inner_dim=8))
    assert Translator(network, model.tokenizer, model.generation_config, options).batch_size.sequences == sequences


@settings(max_examples=12, deadline=None)
@given(lines=st.lists(st.sampled_from(["", "", " ", "\t", *SENTENCES[:3]]), max_size=9))
def test_empty_lines_give_empty_translations_in_place(model, single_results, lines):
    """As many results as lines, each the same as for its line alone."""
    results = model.translate(lines, max_new_tokens=6)
    empty = comparable(EMPTY_TRANSLATION)
    assert [comparable(result) for result in results] == [single_results.get(line, empty) for line in lines]


def test_many_lines_come_in_order_and_are_not_all_held(model):
    """Fewer lines than two buffers are read ahead, not counting empty lines."""
    read, max_ahead = 0, 0

    def lines():
        nonlocal read
        for number in range(200):
            read += 1
            yield "" if number % 7 == 3 else f"{SENTENCES[number % 40]} {number}"

    options = TranslateOptions(max_new_tokens=4)
    results = []
    for result in model.prepare("translate", options).run(lines(), buffer_size=16):
        results.append(result)
        max_ahead = max(max_ahead, read - len(results))
    assert len(results) == 200
    assert max_ahead < 2 * 16 * 7 / 6 + 2
    for number in (0, 3, 100, 199):
        text = "" if number % 7 == 3 else f"{SENTENCES[number % 40]} {number}"
        expected = translate_one(model, text, max_new_tokens=4) if text else EMPTY_TRANSLATION
        assert comparable(results[number]) == comparable(expected)


def test_a_text_that_is_too_long_is_translated_in_chunks(short):
    result = translate_one(short, LONG, max_new_tokens=5)
    assert result.chunks > 1
    assert result.truncated == 0
    tokens = len(short.tokenizer.encode(LONG))
    assert result.chunks >= tokens / 48
    parts = [translate_one(short, part, max_new_tokens=5) for part in split_into_chunks(short, LONG)]
    assert result.text == " ".join(part.text for part in parts)
    assert result.score == pytest.approx(sum(part.score for part in parts))


def split_into_chunks(model, text):
    """The definition: as many whole sentences as fit in each chunk; sentences end with `. `."""
    parts = [""]
    for sentence in text.replace(". ", ".\n").split("\n"):
        longer = f"{parts[-1]} {sentence}".strip()
        if len(model.tokenizer.encode(longer)) <= 48:
            parts[-1] = longer
        else:
            parts.append(sentence)
    return parts


def test_a_single_sentence_that_is_too_long_is_split_between_words(short):
    sentence = "dog " * 79 + "dog"
    ids = short.tokenizer.encode(sentence).ids
    result = translate_one(short, sentence, max_new_tokens=5)
    assert (result.truncated, result.chunks) == (0, -(-len(ids) // 47))
    parts = ["dog " * 46 + "dog", "dog " * 32 + "dog"]
    assert result.text == " ".join(translate_one(short, part, max_new_tokens=5).text for part in parts)
    both = translate_one(short, f"a man. {sentence}. the end.", max_new_tokens=5)
    assert (both.truncated, both.chunks) == (0, 4)


def test_a_very_long_line_is_never_encoded_as_a_whole(short, monkeypatch):
    lengths = []
    real = short.tokenizer.encode_batch_ids
    monkeypatch.setattr(
        short.tokenizer,
        "encode_batch_ids",
        lambda texts, **more: lengths.extend(map(len, texts)) or real(texts, **more),
    )
    text = "dog " * 4000
    result = translate_one(short, text, max_new_tokens=1)
    assert result.chunks >= 4000 // 48
    assert max(lengths) <= 64 * 48
    assert sum(lengths) < 60 * len(text)


@pytest.mark.parametrize("options", [{}, dict(beam=3), dict(target_prefix="the man"), dict(max_new_tokens=3)], ids=str)
def test_a_stream_is_the_text(model, short, options):
    options = dict(max_new_tokens=7) | options
    for tested, texts in ((model, SENTENCES[:3]), (short, [LONG])):
        for text in texts:
            *parts, result = tested.prepare("translate", **options).stream(text)
            assert "".join(parts) == result.text
            assert comparable(result) == comparable(translate_one(tested, text, **options))


@settings(max_examples=10, deadline=None)
@given(text=st.text(alphabet="ab é東🙂.\n", max_size=12), beam=st.sampled_from([1, 2]))
def test_any_text_can_be_streamed(model, text, beam):
    *parts, result = model.prepare("translate", max_new_tokens=6, beam=beam).stream(text)
    assert "".join(parts) == result.text
    assert comparable(result) == comparable(translate_one(model, text, max_new_tokens=6, beam=beam))


def test_a_stream_has_many_parts(model):
    longest = max(SENTENCES[:20], key=lambda text: len(translate_one(model, text, max_new_tokens=12).tokens))
    *parts, result = model.prepare("translate", max_new_tokens=12).stream(longest)
    assert len([part for part in parts if part]) > len(result.tokens) / 2 > 1


def test_a_target_prefix_is_continued(model):
    result = translate_one(model, SENTENCES[1], target_prefix="the small dog", max_new_tokens=4)
    assert result.text.startswith("the small dog")
    assert len(result.tokens) <= 4


def test_a_target_prefix_that_is_too_long_is_refused(short):
    with pytest.raises(ValueError, match="so nothing can be generated"):
        short.translate("a man", target_prefix="dog " * 60)


def test_alternatives_are_ranked_and_differ(model):
    result = translate_one(model, SENTENCES[2], beam=4, n_best=3, max_new_tokens=6)
    scores = [result.score, *(other.score for other in result.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert len({each.tokens for each in (result, *result.alternatives)}) == 3


def test_why_it_stopped_and_where(model):
    results = model.translate(SENTENCES, max_new_tokens=5)
    assert {result.stopped for result in results} == {"end", "length"}
    for result in results:
        assert result.max_new_tokens == 5
        assert (len(result.tokens) == 5) >= (result.stopped == "length")
    source = model.tokenizer.encode(SENTENCES[0])
    assert translate_one(model, SENTENCES[0]).max_new_tokens == 4 * len(source) + 64


def test_ids_beyond_the_vocabulary_have_no_text(tmp_path):
    """T5's embedding tables are larger than its vocabulary; such ids are not an error."""
    model = models.opened(models.translating(tmp_path, more=300))
    results = model.translate(SENTENCES[:6], max_new_tokens=12)
    assert any(token.startswith("<") and token[1:-1].isdigit() for result in results for token in result.tokens)


def test_a_decoder_only_network_is_refused(tmp_path):
    model = models.opened(models.continuing(tmp_path))
    with pytest.raises(ValueError, match="this one reads tokens and predicts the next token: use `generate`"):
        model.translate("a man")


def test_a_model_without_a_folder_has_no_tokenizer(model):
    from dataclasses import replace

    with pytest.raises(ValueError, match="no folder"):
        replace(model, folder=None).translate("a man")
