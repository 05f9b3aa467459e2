"""`model.translate`: in order, whatever is empty, too long or streamed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import models, vocabularies
from unit.tasks.models import said

from regard.families.transformer import transformer_2017
from regard.tasks.results import EMPTY
from regard.tasks.translate import Translator, Wish
from regard.transformer.network import empty

SENTENCES = vocabularies.sentences(40, seed=11)
LONG = " ".join(SENTENCES[:12])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.opened(models.translating(tmp_path_factory.mktemp("translating")))


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """It has learnt 48 positions."""
    return models.opened(models.with_positions(tmp_path_factory.mktemp("short")))


def alone(model, text, **asked):
    return model.translate(text, **asked)[0]


@pytest.fixture(scope="module")
def known(model):
    """What some lines give alone."""
    return {line: said(alone(model, line, limit=6)) for line in SENTENCES[:3]}


@pytest.mark.parametrize(
    ("width", "asked", "rows"),
    [
        (16, Wish(), 96),
        (300, Wish(), 96),
        (400, Wish(), 81),
        (512, Wish(beam=4), 64),
        (4096, Wish(), 16),
        (4096, Wish(beam=20), 20),
        (128, Wish(rows=8), 8),
        (128, Wish(rows=2, beam=4), 4),
    ],
)
def test_narrow_networks_write_more_rows_at_once(model, width, asked, rows):
    network = empty(transformer_2017(vocabulary=30, layers=(1, 1), model_dim=width, heads=1, inner_dim=8))
    assert Translator(network, model.tokenizer, model.habits, asked).at_once.rows == rows


@settings(max_examples=12, deadline=None)
@given(lines=st.lists(st.sampled_from(["", "", " ", "\t", *SENTENCES[:3]]), max_size=9))
def test_empty_lines_stay_where_they_are(model, known, lines):
    """First, last, many in a row, nothing else: as many results as lines, each what its line alone gives."""
    results = model.translate(lines, limit=6)
    assert [said(result) for result in results] == [known.get(line, said(EMPTY)) for line in lines]


def test_many_lines_come_in_order_and_are_not_all_held(model):
    """What is read ahead stays below two windows, empty lines apart."""
    read, most = 0, 0

    def lines():
        nonlocal read
        for number in range(200):
            read += 1
            yield "" if number % 7 == 3 else f"{SENTENCES[number % 40]} {number}"

    wish = Wish(limit=4)
    results = []
    for result in model.translator(wish).translate(lines(), window=16):
        results.append(result)
        most = max(most, read - len(results))
    assert len(results) == 200
    assert most < 2 * 16 * 7 / 6 + 2
    for number in (0, 3, 100, 199):
        text = "" if number % 7 == 3 else f"{SENTENCES[number % 40]} {number}"
        assert said(results[number]) == said(alone(model, text, limit=4) if text else EMPTY)


def test_a_text_that_is_too_long_is_written_in_pieces(short):
    result = alone(short, LONG, limit=5)
    assert result.pieces > 1
    assert result.truncated == 0
    tokens = len(short.tokenizer.encode(LONG))
    assert result.pieces >= tokens / 48
    parts = [alone(short, part, limit=5) for part in parts_of(short, LONG)]
    assert result.text == " ".join(part.text for part in parts)
    assert result.score == pytest.approx(sum(part.score for part in parts))


def parts_of(model, text):
    """As many whole sentences as fit: the plain definition, sentences ending in `. `."""
    parts = [""]
    for sentence in text.replace(". ", ".\n").split("\n"):
        longer = f"{parts[-1]} {sentence}".strip()
        if len(model.tokenizer.encode(longer)) <= 48:
            parts[-1] = longer
        else:
            parts.append(sentence)
    return parts


def test_a_sentence_that_is_too_long_by_itself_is_cut_and_counted(short):
    sentence = "dog " * 79 + "dog"
    given = short.tokenizer.encode(sentence).ids
    result = alone(short, sentence, limit=5)
    assert (result.truncated, result.pieces) == (len(given) - 48, 1)
    both = alone(short, f"a man. {sentence}. the end.", limit=5)
    assert both.truncated > 0
    assert both.pieces == 3


@pytest.mark.parametrize("asked", [{}, dict(beam=3), dict(begin="the man"), dict(limit=3)], ids=str)
def test_a_stream_is_the_text(model, short, asked):
    for one, texts in ((model, SENTENCES[:3]), (short, [LONG])):
        for text in texts:
            *pieces, whole = one.translator(Wish(**dict(limit=7) | asked)).stream(text)
            assert "".join(pieces) == whole.text
            assert said(whole) == said(alone(one, text, **dict(limit=7) | asked))


@settings(max_examples=10, deadline=None)
@given(text=st.text(alphabet="ab é東🙂.\n", max_size=12), beam=st.sampled_from([1, 2]))
def test_any_text_can_be_streamed(model, text, beam):
    *pieces, whole = model.translator(Wish(limit=6, beam=beam)).stream(text)
    assert "".join(pieces) == whole.text
    assert said(whole) == said(alone(model, text, limit=6, beam=beam))


def test_a_stream_comes_bit_by_bit(model):
    longest = max(SENTENCES[:20], key=lambda text: len(alone(model, text, limit=12).tokens))
    *pieces, whole = model.translator(Wish(limit=12)).stream(longest)
    assert len([piece for piece in pieces if piece]) > len(whole.tokens) / 2 > 1


def test_a_beginning_stays_and_is_continued(model):
    result = alone(model, SENTENCES[1], begin="the small dog", limit=4)
    assert result.text.startswith("the small dog")
    assert len(result.tokens) <= 4


def test_a_beginning_without_room_behind_it_is_refused(short):
    with pytest.raises(ValueError, match="leaves no room to write"):
        short.translate("a man", begin="dog " * 60)


def test_alternatives_are_ranked_and_differ(model):
    result = alone(model, SENTENCES[2], beam=4, n_best=3, limit=6)
    scores = [result.score, *(other.score for other in result.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert len({one.tokens for one in (result, *result.alternatives)}) == 3


def test_why_it_stopped_and_where(model):
    results = model.translate(SENTENCES, limit=5)
    assert {result.stopped for result in results} == {"end", "length"}
    for result in results:
        assert result.limit == 5
        assert (len(result.tokens) == 5) >= (result.stopped == "length")
    source = model.tokenizer.encode(SENTENCES[0])
    assert alone(model, SENTENCES[0]).limit == 4 * len(source) + 64


def test_more_rows_than_tokens(tmp_path):
    """T5's tables are larger than its vocabulary: what has no token is written as no text, and is no error."""
    model = models.opened(models.translating(tmp_path, more=300))
    results = model.translate(SENTENCES[:6], limit=12)
    assert any(token.startswith("<") and token[1:-1].isdigit() for result in results for token in result.tokens)


def test_texts_go_to_a_network_that_can_write(tmp_path):
    model = models.opened(models.continuing(tmp_path))
    with pytest.raises(ValueError, match="`generate` continues texts"):
        model.translate("a man")


def test_a_model_without_a_folder_has_no_tokenizer(model):
    from dataclasses import replace

    with pytest.raises(ValueError, match="no folder"):
        replace(model, folder=None).translate("a man")
