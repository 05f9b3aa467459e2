"""Plain text, CoNLL columns and SQuAD: valid files, and the error messages of invalid ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import COMPRESSORS, property_settings, write

from regard.data.example import Answer, Document, Question, TaggedSentence
from regard.data.formats import Conll, Scheme, Text, Unit
from regard.data.reader import read
from regard.data.readers import plain
from regard.data.tag_schemes import detect_scheme, to_bio
from regard.tokenization.text_files import DataError


def fails(match, task_or_type, files, file_format=None):
    with pytest.raises(DataError, match=match):
        list(read(task_or_type, files, file_format))


# Plain text


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_units(tmp_path, suffix):
    path = write(tmp_path, "a.txt", "\n one\ntwo\n \t\nthree\r\n\n\nfour", suffix)
    expected = {
        Unit.LINE: [(" one", 2), ("two", 3), ("three", 5), ("four", 8)],
        Unit.PARAGRAPH: [(" one\ntwo", 2), ("three", 5), ("four", 8)],
        Unit.FILE: [("\n one\ntwo\n \t\nthree\n\n\nfour", 1)],
    }
    for unit, found in expected.items():
        assert [(one.text, one.line) for one in read(Document, [path], Text(unit=unit))] == found


def test_folders_are_read_in_the_order_of_names(tmp_path):
    for name in ("b/2.txt", "b/10.txt", "a.txt", "c.txt", "b/sub/1.txt", ".hidden", "b/.git/x"):
        write(tmp_path, f"folder/{name}", name)
    last = write(tmp_path, "0.txt", "0")
    found = [one.text for one in read("generate", [tmp_path / "folder", last])]
    assert found == ["a.txt", "b/10.txt", "b/2.txt", "b/sub/1.txt", "c.txt", "0"]
    (tmp_path / "empty").mkdir()
    fails("the folder contains no files", Document, [tmp_path / "empty"])


@given(lines=st.lists(st.text("ab \t", max_size=5), max_size=30))
@property_settings
def test_a_long_file_comes_in_pieces_that_join_to_the_whole(tmp_path_factory, lines):
    text = "\n".join(lines)
    path = write(tmp_path_factory.mktemp("text"), "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "MAX_EXAMPLE_CHARACTERS", 7)
        found = list(read(Document, [path], Text(unit=Unit.FILE)))
    joined = "".join(one.text for one in found)
    assert joined == (text.removesuffix("\n") if text.strip() else "")
    assert [one.starts_document for one in found] == [i == 0 for i in range(len(found))]
    assert [one.ends_document for one in found] == [i == len(found) - 1 for i in range(len(found))]
    for one in found[1:]:
        assert not one.text.split("\n")[0].isspace()
        assert lines[one.line - 1].startswith(one.text.split("\n")[0])


# CoNLL columns

SIMPLE = [(("EU", "rejects", "call"), ("B-ORG", "O", "O")), (("Peter", "Blackburn"), ("B-PER", "I-PER"))]


def tagged(found):
    return [(one.words, one.tags) for one in found]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("end", ["\n", ""])
def test_columns(tmp_path, suffix, end):
    four = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects  VBZ I-VP O \ncall NN I-NP O\n\n\n"
        "Peter NNP I-NP B-PER\nBlackburn NNP I-NP I-PER"
    )
    two = "# a comment\nEU\tB-ORG\nrejects\tO\ncall\tO\n\t\n# more = here\nPeter\tB-PER\nBlackburn\tI-PER"
    one = write(tmp_path, "four.txt", four + end, suffix)
    other = write(tmp_path, "two.conll", two + end, suffix)
    assert tagged(read(TaggedSentence, [one])) == tagged(read("tag", [other])) == SIMPLE
    assert [one.line for one in read(TaggedSentence, [one, other])] == [3, 8, 2, 7]
    assert next(read(TaggedSentence, [one], Conll(tag=1))).tags == ("NNP", "VBZ", "NN")


def test_a_word_may_begin_like_a_comment(tmp_path):
    text = "#photo\tO\n#\tO\n#New\tB-x\n"
    assert next(read(TaggedSentence, [write(tmp_path, "a", text)])).words == ("#photo", "#", "#New")
    spaces = "# sent id = 4\n#photo O\nin O\n"
    assert next(read(TaggedSentence, [write(tmp_path, "b", spaces)])).words == ("#photo", "in")


def test_only_blanks_and_tabs_separate(tmp_path):
    path = write(tmp_path, "a", "10\u00a0000 O\n\u3000 O\nx\u2028y O\n")
    assert next(read(TaggedSentence, [path])).words == ("10\u00a0000", "\u3000", "x\u2028y")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a\tO\nb\n", r"line 2: expected 2 columns as in the other lines, found 1: 'b'"),
        ("a O\nb x O\n", r"line 2: expected 2 columns as in the other lines, found 3"),
        ("a\n", r"line 1: only one column, 'a': expected a word and a tag"),
        ("a\tO\n\tO\n", r"line 2: the word is missing"),
        ("a\tO\nb\t\n", r"line 2: the tag is missing"),
        ("a\tB-x\nb\tO\nc\tI-x\n", r"line 3: tag I-x follows no entity: in BIO an entity must start with B-.*lenient"),
        ("a\tB-x\nb\tI-y\n", r"line 2: tag I-y follows an entity x"),
        ("a\tB-x\nb\tI-x\nc\tbx\n", r"line 3: invalid tag 'bx': expected O, B-TYPE, I-TYPE \(scheme BIO\)"),
        ("a\tB-x\nb\tO\nc\tS-x\n", r"line 2: O before entity x is closed: in BIOES it must end with E-x"),
        ("a\tS-x\nb\tB-x\n", r"line 2: the end of the sentence before entity x is closed"),
        ("a\tS-x\nb\tE-x\n", r"line 2: tag E-x follows no entity"),
    ],
)
def test_broken_columns(tmp_path, text, match):
    fails(match, TaggedSentence, [write(tmp_path, "a.conll", text)])


def test_faults_can_be_read_as_the_scorer_does(tmp_path):
    path = write(tmp_path, "a", "a\tB-x\nb\tO\nc\tI-x\nd\tI-y\n")
    assert next(read(TaggedSentence, [path], Conll(scheme=Scheme.LENIENT))).tags == ("B-x", "O", "B-x", "B-y")


ENTITIES = st.lists(st.tuples(st.sampled_from(["x", "y-z", None]), st.integers(1, 4)), min_size=1, max_size=8)


def tags_of(entities, scheme):
    """Tags of these entities in a scheme, by its definition."""
    tags, previous_type = [], None
    for entity_type, length in entities:
        if entity_type is None:
            tags += ["O"] * length
        elif scheme is Scheme.IOB1:
            first = "B" if entity_type == previous_type else "I"
            tags += [f"{first}-{entity_type}"] + [f"I-{entity_type}"] * (length - 1)
        else:
            first, last, single = {Scheme.BIO: "BIB", Scheme.BIOES: "BES", Scheme.BILOU: "BLU"}[scheme]
            prefixes = [first, *"I" * (length - 2), last] if length > 1 else [single]
            tags += [f"{prefix}-{entity_type}" for prefix in prefixes]
        previous_type = entity_type
    return tags


@pytest.mark.parametrize("scheme", [Scheme.BIO, Scheme.IOB1, Scheme.BIOES, Scheme.BILOU])
@given(sentences=st.lists(ENTITIES, min_size=1, max_size=5))
@property_settings
def test_every_scheme_is_recognised_and_means_the_same(scheme, sentences):
    tagged_sentences = [tags_of(entities, scheme) for entities in sentences]
    detected = detect_scheme(tagged_sentences)
    for tags, entities in zip(tagged_sentences, sentences, strict=True):
        assert list(to_bio(tags, detected, Path("file"), range(len(tags)))) == tags_of(entities, Scheme.BIO)


def test_parts_of_speech_are_left_alone():
    assert detect_scheme([["DT", "NN", "S-bar", "O"]]) is Scheme.PLAIN
    assert to_bio(["DT", "NN"], Scheme.PLAIN, Path("file"), [1, 2]) == ("DT", "NN")


# SQuAD


def document(**change):
    qa = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]} | change
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": "Ann ran.", "qas": [qa]}]}]}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_squad(tmp_path, suffix):
    found = list(read("answer", [write(tmp_path, "a.json", json.dumps(document()), suffix)]))
    assert [(one.id, one.title, one.context, one.question) for one in found] == [("q1", "T", "Ann ran.", "Who?")]
    assert found[0].answers == (Answer(text="Ann", start=0),)


def test_squad_2_without_an_answer(tmp_path):
    plausible = [{"text": "Ann", "answer_start": 0}]
    for change in (dict(is_impossible=True, answers=[], plausible_answers=plausible), dict(is_impossible=True)):
        path = write(tmp_path, "a.json", json.dumps(document(**change)))
        assert next(read(Question, [path])).answers == ()


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_line_of_a_question(tmp_path, indent, ascii_only):
    squad = document()
    qas = squad["data"][0]["paragraphs"][0]["qas"]
    qas += [qas[0] | {"id": name, "question": '"id": "ä"'} for name in ("ä", "1", 'b"c', "1")]
    text = json.dumps(squad, indent=indent, ensure_ascii=ascii_only)
    path = write(tmp_path, "a.json", text)
    ids = [i for i, line in enumerate(text.split("\n"), 1) if line.strip().startswith('"id"')] or [1] * 5
    assert [one.line for one in read(Question, [path])] == ids


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"data": [\n  {"title" 1}]}', r"line 2: invalid JSON \(Expecting ':' delimiter, character 12"),
        ("[]", r"expected a JSON object with \"data\", found list"),
        ('{"version": 1}', r"the file: expected a list \"data\".*found version"),
        (json.dumps(document(question=None)), r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: expected a string \"question\""),
        (
            json.dumps(document(answers=[{"text": "x"}])),
            r"qas\[0\]\.answers\[0\]: expected \"answer_start\".*None",
        ),
        (json.dumps(document(answers="x")), r"expected a list \"answers\""),
        (json.dumps(document(id=5)), r"expected a string \"id\", found 5"),
        (b'{"data":\n\xff', r"line 2: byte 1 of the line .* is not valid UTF-8"),
    ],
)
def test_broken_squad(tmp_path, text, match):
    fails(match, Question, [write(tmp_path, "a.json", text)])
