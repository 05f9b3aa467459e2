"""The parser of `.model` files, compared with the sentencepiece package, and fuzzed with invalid files."""

import contextlib

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization import vocabularies
from unit.tokenization.sample_texts import texts
from unit.tokenization.vocabularies import train_sentencepiece

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import ModelType, PieceType, read_sentencepiece_model
from regard.tokenization.sentencepiece_normalizer import SentencePieceNormalizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "a.model"
    train_sentencepiece(path, user_defined_symbols="<b>,x-y", control_symbols="<c>", pad_id=3)
    return path


@pytest.mark.parametrize("options", [{}, {"model_type": "bpe", "byte_fallback": True, "vocab_size": 900}])
def test_pieces_scores_and_kinds_equal_the_packages(options, tmp_path):
    train_sentencepiece(
        tmp_path / "a.model", user_defined_symbols="<b>", control_symbols="<c>", unk_id=2, bos_id=0, eos_id=1, **options
    )
    ours = read_sentencepiece_model(tmp_path / "a.model")
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "a.model"))
    assert len(ours.pieces) == len(theirs)
    for index, piece in enumerate(ours.pieces):
        assert piece.text == theirs.id_to_piece(index)
        assert piece.score == theirs.get_score(index)
        assert (piece.type is PieceType.CONTROL) == theirs.is_control(index)
        assert (piece.type is PieceType.UNKNOWN) == theirs.is_unknown(index)
        assert (piece.type is PieceType.BYTE) == theirs.is_byte(index)
    assert ours.pieces[theirs.piece_to_id("<b>")].type is PieceType.USER_DEFINED
    assert ours.unk_id == theirs.unk_id() == 2
    assert ours.model_type is (ModelType.BPE if options else ModelType.UNIGRAM)
    assert ours.byte_fallback is bool(options)


RULES = ["nmt_nfkc", "nfkc", "nfkc_cf", "identity"]


@pytest.fixture(scope="module", params=[*RULES, "spaces", "no prefix"])
def normalizers(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "a.model"
    rule = request.param if request.param in RULES else "nmt_nfkc"
    options = {"spaces": {"remove_extra_whitespaces": False}, "no prefix": {"add_dummy_prefix": False}}
    train_sentencepiece(
        path, normalization_rule_name=rule, user_defined_symbols="<b>,x-y", **options.get(request.param, {})
    )
    return SentencePieceNormalizer(read_sentencepiece_model(path)), sentencepiece.SentencePieceProcessor(str(path))


def test_texts_are_normalised_as_the_package_does_it(normalizers):
    ours, theirs = normalizers
    for text in (long_text[:150] for long_text in texts(450)):
        if "\0" not in text:  # the package's interface truncates a text there
            assert ours.normalize(text) == theirs.normalize(text), text
            assert ours.normalize_with_offsets(text)[0] == ours.normalize(text)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@settings(max_examples=200, deadline=None)
def test_all_of_unicode_is_normalised_as_the_package_does_it(normalizers, text):
    ours, theirs = normalizers
    normalized, starts, ends = ours.normalize_with_offsets(text)
    assert normalized == theirs.normalize(text)
    assert all(0 <= first <= end <= len(text) for first, end in zip(starts, ends, strict=True))
    assert starts == sorted(starts)


def test_a_file_that_ends_early_is_an_error(model, tmp_path):
    data = model.read_bytes()
    for end in (0, 1, 2, 10, len(data) // 3, len(data) // 2):
        (tmp_path / "cut.model").write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"cut\.model is corrupt or not a SentencePiece model"):
            read_sentencepiece_model(tmp_path / "cut.model")


@given(data=st.binary(max_size=400), offset=st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_garbage_is_refused_or_read_but_never_breaks(model, tmp_path_factory, data, offset):
    path = tmp_path_factory.getbasetemp() / "garbage.model"
    valid = model.read_bytes()
    for content in (data, valid[:offset] + data + valid[offset + len(data) :]):
        path.write_bytes(content)
        with contextlib.suppress(TokenizerError):
            found = read_sentencepiece_model(path)
            assert 0 <= found.unk_id < len(found.pieces)


def test_a_length_beyond_the_file_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "a.model").write_bytes(b"\x0a\xff\xff\xff\xff\x7f")
    with pytest.raises(ValueError, match=r"has length 34359738367, but only 0 bytes are left"):
        read_sentencepiece_model(tmp_path / "a.model")


def test_a_pointer_is_told_from_a_model(tmp_path):
    (tmp_path / "a.model").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n")
    with pytest.raises(ValueError, match="is a git-lfs pointer"):
        read_sentencepiece_model(tmp_path / "a.model")


def test_llamas_order_of_joining_gives_the_packages_pieces(tmp_path):
    """On texts without runs of spaces, which the package and the library treat differently."""
    from regard.tokenization.tokenizer_loader import load_tokenizer

    vocabularies.llama(tmp_path)
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    ours = load_tokenizer(tmp_path)
    assert ours.family == "llama"
    for text in vocabularies.corpus(200, seed=9):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)
