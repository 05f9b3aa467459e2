"""The reader of `.model` files, against the sentencepiece package, and against garbage."""

import contextlib

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization import vocabularies
from unit.tokenization.sample_texts import texts
from unit.tokenization.vocabularies import pieces

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import Kind, PieceKind, read
from regard.tokenization.sentencepiece_normalizer import Normalizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "a.model"
    pieces(path, user_defined_symbols="<b>,x-y", control_symbols="<c>", pad_id=3)
    return path


@pytest.mark.parametrize("options", [{}, {"model_type": "bpe", "byte_fallback": True, "vocab_size": 900}])
def test_pieces_scores_and_kinds_equal_the_packages(options, tmp_path):
    pieces(
        tmp_path / "a.model", user_defined_symbols="<b>", control_symbols="<c>", unk_id=2, bos_id=0, eos_id=1, **options
    )
    ours = read(tmp_path / "a.model")
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "a.model"))
    assert len(ours.pieces) == len(theirs)
    for number, piece in enumerate(ours.pieces):
        assert piece.text == theirs.id_to_piece(number)
        assert piece.score == theirs.get_score(number)
        assert (piece.kind is PieceKind.CONTROL) == theirs.is_control(number)
        assert (piece.kind is PieceKind.UNKNOWN) == theirs.is_unknown(number)
        assert (piece.kind is PieceKind.BYTE) == theirs.is_byte(number)
    assert ours.pieces[theirs.piece_to_id("<b>")].kind is PieceKind.USER_DEFINED
    assert ours.unknown == theirs.unk_id() == 2
    assert ours.kind is (Kind.BPE if options else Kind.UNIGRAM)
    assert ours.byte_fallback is bool(options)


RULES = ["nmt_nfkc", "nfkc", "nfkc_cf", "identity"]


@pytest.fixture(scope="module", params=[*RULES, "spaces", "no prefix"])
def normalizers(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "a.model"
    rule = request.param if request.param in RULES else "nmt_nfkc"
    more = {"spaces": {"remove_extra_whitespaces": False}, "no prefix": {"add_dummy_prefix": False}}
    pieces(path, normalization_rule_name=rule, user_defined_symbols="<b>,x-y", **more.get(request.param, {}))
    return Normalizer(read(path)), sentencepiece.SentencePieceProcessor(str(path))


def test_texts_are_normalised_as_the_package_does_it(normalizers):
    ours, theirs = normalizers
    for text in (whole[:150] for whole in texts(450)):
        if "\0" not in text:  # the package's interface ends a text there
            assert ours.normal(text) == theirs.normalize(text), text
            assert ours.aligned(text)[0] == ours.normal(text)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@settings(max_examples=200, deadline=None)
def test_all_of_unicode_is_normalised_as_the_package_does_it(normalizers, text):
    ours, theirs = normalizers
    normal, begins, ends = ours.aligned(text)
    assert normal == theirs.normalize(text)
    assert all(0 <= first <= end <= len(text) for first, end in zip(begins, ends, strict=True))
    assert begins == sorted(begins)


def test_a_file_that_ends_early_is_an_error(model, tmp_path):
    data = model.read_bytes()
    for end in (0, 1, 2, 10, len(data) // 3, len(data) // 2):
        (tmp_path / "cut.model").write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"cut\.model is damaged or no SentencePiece model"):
            read(tmp_path / "cut.model")


@given(data=st.binary(max_size=400), at=st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_garbage_is_refused_or_read_but_never_breaks(model, tmp_path_factory, data, at):
    path = tmp_path_factory.getbasetemp() / "garbage.model"
    whole = model.read_bytes()
    for content in (data, whole[:at] + data + whole[at + len(data) :]):
        path.write_bytes(content)
        with contextlib.suppress(TokenizerError):
            found = read(path)
            assert 0 <= found.unknown < len(found.pieces)


def test_a_length_beyond_the_file_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "a.model").write_bytes(b"\x0a\xff\xff\xff\xff\x7f")
    with pytest.raises(ValueError, match=r"claims 34359738367 bytes, and 0 are left"):
        read(tmp_path / "a.model")


def test_a_pointer_is_told_from_a_model(tmp_path):
    (tmp_path / "a.model").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n")
    with pytest.raises(ValueError, match="only a pointer"):
        read(tmp_path / "a.model")


def test_llamas_order_of_joining_gives_the_packages_pieces(tmp_path):
    """On texts without runs of spaces, where the package and the library have the same rules."""
    from regard.tokenization.tokenizer_loader import load

    vocabularies.llama(tmp_path)
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    ours = load(tmp_path)
    assert ours.family == "llama"
    for text in vocabularies.corpus(200, seed=9):
        assert ours.encode(text, special_tokens=False).ids == theirs.encode(text)
