"""Ids, offsets, pairs and decoded texts equal those of transformers, on ten thousand texts for each file format.

The vocabularies are trained here and saved as each family publishes them. One difference is intended: transformers
finds special tokens in the input text of a unigram vocabulary even with `split_special_tokens=True`; here they are
encoded as plain text. Those texts are compared with the sentencepiece package, which encodes them as text too.
"""

import re
import warnings

import pytest
import sentencepiece
import transformers
from unit.tokenization.sample_texts import EMOJI, MARKS, SPECIAL, WORDS, has_special, texts
from unit.tokenization.vocabularies import LAYOUTS

from regard.tokenization.tokenizer_loader import load_tokenizer

TEXTS = texts(10_000)
UNIGRAM = ("t5", "albert", "xlnet", "mbart", "mbart50")
WRITTEN_IN_PYTHON = ("ctrl", "marian")


@pytest.fixture(scope="module", params=LAYOUTS)
def both(request, tmp_path_factory):
    """A family's name, our tokenizer, and that of transformers."""
    make, name = LAYOUTS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    make(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's class recommends a package that it does not use
        theirs = getattr(transformers, name).from_pretrained(folder)
    return request.param, load_tokenizer(folder, family=request.param), theirs


def ids(theirs, rows, **options):
    minimal = dict(return_attention_mask=False, return_token_type_ids=False, verbose=False)
    return theirs(rows, **minimal, **options)["input_ids"]


def as_text(theirs, family, rows):
    """Ids of transformers, with special tokens in the input encoded as text."""
    if family not in WRITTEN_IN_PYTHON:
        return ids(theirs, rows, split_special_tokens=True)
    tokens = [theirs.tokenize(row, split_special_tokens=True) for row in rows]
    return [theirs.build_inputs_with_special_tokens(theirs.convert_tokens_to_ids(row)) for row in tokens]


def test_ids(both):
    family, ours, theirs = both
    rows = [text for text in TEXTS if family not in UNIGRAM or not has_special(text)]
    expected = as_text(theirs, family, rows)
    different = [text for text, a, b in zip(rows, ours.encode_batch_ids(rows), expected, strict=True) if a != b]
    assert len(rows) > 8_000
    assert different == []


def test_ids_with_special_tokens_read(both):
    _, ours, theirs = both
    rows = [text for text in TEXTS if has_special(text)]
    expected = ids(theirs, rows)
    found = [row.ids for row in ours.encode_batch(rows, parse_special_tokens=True)]
    assert len(rows) > 900
    assert [text for text, a, b in zip(rows, found, expected, strict=True) if a != b] == []


def test_offsets_segments_and_pairs(both):
    family, ours, theirs = both
    rows = [text for text in TEXTS if not has_special(text)][:1600]
    first, second = rows[0::2], rows[1::2]
    found = ours.encode_batch(first, second)
    if family in WRITTEN_IN_PYTHON:
        expected = theirs(first, second, verbose=False)
        assert [row.ids for row in found] == expected["input_ids"]
        return
    expected = theirs(
        first,
        second,
        split_special_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
        return_special_tokens_mask=True,
        verbose=False,
    )
    assert [row.ids for row in found] == expected["input_ids"]
    assert [row.offsets for row in found] == expected["offset_mapping"]
    assert [row.segments for row in found] == expected["token_type_ids"]
    assert [list(map(int, row.special_tokens_mask)) for row in found] == expected["special_tokens_mask"]
    assert [row.sequence_ids for row in found] == [expected.sequence_ids(index) for index in range(len(first))]


def test_decoded_texts(both):
    _, ours, theirs = both
    rows = ours.encode_batch_ids([text for text in TEXTS if not has_special(text)][:800])
    assert ours.decode_batch(rows) == [theirs.decode(row, skip_special_tokens=True) for row in rows]
    assert ours.decode_batch(rows, skip_special_tokens=False) == [theirs.decode(row) for row in rows]


def test_a_saved_tokenizer_opens_in_transformers(both, tmp_path):
    family, ours, _ = both
    ours.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rows = [text for text in TEXTS if not has_special(text)][:400]
    assert as_text(theirs, family, rows) == ours.encode_batch_ids(rows)
    again = load_tokenizer(tmp_path)
    assert again.encode_batch_ids(rows) == ours.encode_batch_ids(rows)
    for name in ("special_ids", "languages", "control_codes", "family", "model_max_length"):
        assert getattr(again, name) == getattr(ours, name)
    assert (theirs.eos_token_id, theirs.mask_token_id) == (ours.special_ids.eos, ours.special_ids.mask)


@pytest.mark.parametrize("both", UNIGRAM, indirect=True)
def test_special_tokens_in_a_text_are_text_in_unigram_vocabularies(both):
    _, ours, _ = both
    special = {ours.token_to_id(name) for name in SPECIAL if name in ours.get_vocab()} - {ours.special_ids.unk}
    for text in TEXTS:
        if has_special(text):
            assert special.isdisjoint(ours.encode(text, add_special_tokens=False).ids), text


@pytest.mark.parametrize("both", ["t5", "mbart"], indirect=True)
def test_special_tokens_in_a_text_are_cut_as_sentencepiece_cuts_them(both, tmp_path):
    """On texts that need no normalization, which the two libraries do differently."""
    family, ours, _ = both
    LAYOUTS[family][0](tmp_path)
    pieces = sentencepiece.SentencePieceProcessor(str(next(tmp_path.glob("*.model"))))
    for name in SPECIAL:
        for text in (name, f"a {name} man", f"dog{name}", f"{name}{name} {name}"):
            expected = [pieces.id_to_piece(number) for number in pieces.encode(text)]
            found = [ours.id_to_token(token_id) for token_id in ours.encode(text, add_special_tokens=False).ids]
            assert found == expected, text


def test_marian_reads_its_target_side(tmp_path):
    LAYOUTS["marian"][0](tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    rows = TEXTS[:600]
    ours = load_tokenizer(tmp_path)
    expected = theirs(text_target=rows, verbose=False)["input_ids"]
    assert [row.ids for row in ours.target.encode_batch(rows, parse_special_tokens=True)] == expected
    assert ours.target.encode_batch_ids(rows) != ours.encode_batch_ids(rows)


def test_marian_offsets_name_the_text_of_each_piece(tmp_path):
    """Marian's class in transformers has no offsets, so the text at each offset must normalize to the token."""
    LAYOUTS["marian"][0](tmp_path)
    ours = load_tokenizer(tmp_path)
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "source.spm"))
    for text in TEXTS[:400]:
        row = ours.encode(text, add_special_tokens=False)
        ends = [0, *(end for _, end in row.offsets)]
        assert ends == sorted(ends), text
        for token, (start, end) in zip(row.tokens, row.offsets, strict=True):
            if token.strip("▁") and not re.fullmatch(">>.*<<", token, flags=re.DOTALL) and token != "<unk>":
                assert token.strip("▁") in pieces.normalize(text[start:end]), (text, token)


@pytest.mark.parametrize("language", ["de_DE", "zh_CN"])
@pytest.mark.parametrize("family", ["mbart", "mbart50"])
def test_languages_by_name(family, language, tmp_path):
    make, name = LAYOUTS[family]
    make(tmp_path)
    theirs = getattr(transformers, name).from_pretrained(tmp_path, src_lang=language)
    ours = load_tokenizer(tmp_path, family=family)
    rows = [*WORDS, *MARKS, *EMOJI]
    assert ours.encode_batch_ids(rows, language=language) == theirs(rows)["input_ids"]


def test_control_codes_are_known_by_name(tmp_path):
    LAYOUTS["ctrl"][0](tmp_path)
    theirs = transformers.CTRLTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.family == "ctrl"
    assert set(ours.control_codes) == {"Links", "Books"}
    row = ours.encode("a man", control="Links")
    assert row.ids == [theirs.convert_tokens_to_ids("Links"), *theirs("a man")["input_ids"]]
    assert row.special_tokens_mask[0]
    assert not any(row.special_tokens_mask[1:])
    with pytest.raises(ValueError, match="did you mean 'Links'"):
        ours.encode("a man", control="Link")
