"""tag: words, entities and offsets, against transformers, definitions and the same text in other company."""

import itertools

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from unit.tasks import encoders
from unit.tokenization import vocabularies

from regard.tasks.tag import Tagging
from regard.tasks.word_split import split_at_spaces, split_words

LABELS = ("O", "B-per", "I-per", "B-loc", "I-loc")
PLAIN = ("NN", "VB", "DT")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoders.encoder(
        tmp_path_factory.mktemp("bert"), "BertForTokenClassification", labels=LABELS, max_position_embeddings=64
    )


@pytest.fixture(scope="module")
def model(folder):
    return encoders.opened(folder)


def comparable(result):
    return [result.words, result.tags, np.round(result.scores, 6).tolist()]


@pytest.mark.parametrize(
    ("architecture", "vocabulary"),
    [
        ("BertForTokenClassification", vocabularies.bert),
        ("DistilBertForTokenClassification", vocabularies.bert),
        ("ElectraForTokenClassification", vocabularies.bert),
        ("RobertaForTokenClassification", vocabularies.roberta),
        ("AlbertForTokenClassification", vocabularies.albert),
    ],
)
def test_tags_of_words_as_transformers_computes_them(tmp_path, architecture, vocabulary):
    """Tags without a scheme: each word has the most likely tag of its first token, and its probability."""
    lengths = dict(max_position_embeddings=64)
    folder = encoders.encoder(tmp_path, architecture, vocabulary, labels=PLAIN, **lengths)
    theirs = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float64).eval()
    tokenizer = encoders.opened(folder).tokenizer
    results = encoders.opened(folder).tag(encoders.TEXTS)
    for result in results:
        text = " ".join(result.words)
        encoding = tokenizer.encode(text)
        with torch.no_grad():
            probabilities = theirs(torch.tensor([encoding.ids])).logits[0].softmax(-1)
        firsts = {}
        starts = [start for start, _ in split_at_spaces(text)]
        for position, (_, end) in enumerate(encoding.offsets):
            if not encoding.special_tokens_mask[position] and text[end - 1] != " ":
                firsts.setdefault(max(start for start in starts if start < end), position)
        assert [firsts[start] for start in starts]
        for start, tag, score in zip(starts, result.tags, result.scores, strict=True):
            row = probabilities[firsts[start]]
            assert PLAIN[int(row.argmax())] == tag
            assert score == pytest.approx(float(row.max()), rel=1e-6)


def test_entities_of_the_pipeline_of_transformers(folder, model):
    """The pipeline joins tokens of the same type after argmax. Where that is a valid sequence, results are equal."""
    pipeline = transformers.pipeline(
        "token-classification",
        model=transformers.BertForTokenClassification.from_pretrained(folder),
        tokenizer=transformers.BertTokenizerFast(str(folder / "vocab.txt")),
        aggregation_strategy="first",
    )
    compared = 0
    texts = [" ".join(words) for words in itertools.permutations("the dog sees Anna".split())]
    for text, result in zip(texts, model.tag(texts), strict=True):
        scores = word_probabilities(model, text)
        if result.tags != tuple(LABELS[index] for index in scores.argmax(axis=1)):
            continue  # constrained decoding chose other tags than argmax
        expected = [(each["entity_group"], each["start"], each["end"]) for each in pipeline(text)]
        assert [(entity.type, entity.start, entity.end) for entity in result.entities] == expected
        assert [entity.score for entity in result.entities] == pytest.approx(
            [float(each["score"]) for each in pipeline(text)], abs=1e-4
        )
        compared += 1
    assert compared >= 5


def word_probabilities(model, text):
    from regard.tasks.tagger import WordScores

    collected = []
    original = WordScores.fill_missing
    try:
        WordScores.fill_missing = lambda self, label: collected.append(np.exp(self.values)) or original(self, label)
        model.tag(text)
    finally:
        WordScores.fill_missing = original
    return collected[0]


def test_only_valid_sequences(model):
    for result in model.tag(
        encoders.TEXTS * 2 + [f"word{number} {text}" for number, text in enumerate(encoders.TEXTS)]
    ):
        previous = "O"
        for tag in result.tags:
            assert tag[0] != "I" or previous[2:] == tag[2:]
            previous = tag


def test_offsets_are_those_of_the_text(model):
    text = "  Anna's cat -  in New York (USA), 東京!  "
    result = model.tag(text)
    assert "".join(result.words) == text.replace(" ", "")
    assert result.entities
    for entity in result.entities:
        assert text[entity.start : entity.end] == entity.text


def test_words_that_are_already_split(model):
    words = ("Mr.", "Smith's", "U.S.A.")
    assert model.tag(words).words == words
    assert comparable(model.tag(words)) == comparable(model.tag(" ".join(words), words=True))
    assert [result.words for result in model.tag([words, "a b"])] == [words, ("a", "b")]


@pytest.mark.parametrize("text", ["", "   ", "\x01"])
def test_a_text_without_words(model, text):
    result = model.tag(text)
    assert isinstance(result, Tagging)
    assert set(result.tags) <= {"O"}
    assert result.entities == ()


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_a_batch_gives_what_each_text_gives(model, batch_tokens):
    texts = [*encoders.TEXTS, "", "under the tree " * 60]
    expected = [comparable(model.tag(text)) for text in texts]
    assert [comparable(result) for result in model.tag(texts, batch_tokens=batch_tokens)] == expected


def test_a_long_text_is_read_in_windows_and_decoded_as_one(model):
    text = "the small dog runs along the beach and Anna sees it. " * 12
    result = model.tag(text)
    assert result.windows > 2
    assert result.truncated == 0
    assert len(result.words) == len(split_words(text))
    assert len({entity.start for entity in result.entities}) == len(result.entities)
    # each word as in the window in which it has the most context
    from regard.tasks.encoder_runner import TokenRow, split_to_windows

    encoding = model.tokenizer.encode(" ".join(result.words))
    windows = split_to_windows(encoding, 0, 64)
    rows = model.prepare("tag").runner.token_logits([TokenRow.of(encoding, positions) for positions in windows])
    best = {}
    for positions, logits in zip(windows, rows, strict=True):
        for place, position in enumerate(positions):
            margin = min(place, len(positions) - 1 - place)
            best.setdefault(position, []).append((margin, logits[place].softmax(-1).tolist()))
    probabilities = {position: max(found, key=lambda pair: pair[0])[1] for position, found in best.items()}
    for word, (tag, score) in enumerate(zip(result.tags, result.scores, strict=True)):
        start = split_at_spaces(" ".join(result.words))[word][0]
        position = next(index for index, (begin, end) in enumerate(encoding.offsets) if begin == start and end > begin)
        assert probabilities[position][LABELS.index(tag)] == pytest.approx(score)


def test_int8_is_close(folder, model):
    int8 = encoders.opened(folder, precision="int8").tag(encoders.TEXTS)
    expected = model.tag(encoders.TEXTS)
    same = [
        (one == other, abs(score - exact))
        for left, right in zip(int8, expected, strict=True)
        for one, other, score, exact in zip(left.tags, right.tags, left.scores, right.scores, strict=True)
    ]
    assert np.mean([equal for equal, _ in same]) > 0.8
    assert np.mean([difference for equal, difference in same if equal]) < 0.05


def test_wrong_number_of_labels(tmp_path):
    encoders.encoder(tmp_path, "BertForTokenClassification", labels=LABELS)
    model = encoders.opened(tmp_path)
    object.__setattr__(model, "__dict__", {**model.__dict__, "labels": LABELS[:3]})
    with pytest.raises(ValueError, match="3 label names for 5 logits"):
        model.tag("a")
    with pytest.raises(ValueError, match=r"scheme is 'IOX'; expected one of 'BIO', 'IOB1'"):
        encoders.opened(tmp_path).tag("a", scheme="IOX")


@given(st.text(alphabet="ab.'’-_ 3東s\n(é", max_size=12))
def test_words_cover_everything_but_space(text):
    spans = split_words(text)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Anna's cat weighs 3.14 kg.", ["Anna", "'s", "cat", "weighs", "3.14", "kg", "."]),
        ('well-known U.S. "e-mail"', ["well-known", "U.S", ".", '"', "e-mail", '"']),
        ("東京に行く。don't", ["東", "京", "に", "行", "く", "。", "don't"]),
    ],
)
def test_words(text, words):
    assert [text[start:end] for start, end in split_words(text)] == words
