"""Loading: the family is inferred from the files, and errors name what is wrong with them."""

import base64
import json
import re
import shutil
import struct

import pytest
from unit.tokenization.sample_texts import texts
from unit.tokenization.vocabularies import LAYOUTS, corpus, train_sentencepiece

from regard.tokenization.algorithms import ByteBPE, WordPiece
from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer

TEXTS = [text[:200] for text in texts(300)]


@pytest.mark.parametrize("family", [name for name in LAYOUTS if name != "mbart50"])
def test_the_family_is_found_out_from_the_files(family, tmp_path):
    """From the vocabulary only; mBART-50 has the same file as mBART, and only its config differs."""
    LAYOUTS[family][0](tmp_path)
    inferred, explicit = load_tokenizer(tmp_path), load_tokenizer(tmp_path, family=family)
    assert inferred.family == family
    assert inferred.encode_batch_ids(TEXTS) == explicit.encode_batch_ids(TEXTS)


@pytest.mark.parametrize(
    ("file", "config", "family"),
    [
        ("config.json", {"model_type": "bart"}, "roberta"),
        ("config.json", {"model_type": "gpt2"}, "gpt2"),
        ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizerFast"}, "roberta"),
        ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, "gpt2"),
    ],
)
def test_the_family_is_read_from_the_configs(file, config, family, tmp_path):
    LAYOUTS["roberta"][0](tmp_path)
    (tmp_path / file).write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).family == family


@pytest.mark.parametrize(("kind", "family"), [("MBart50Tokenizer", "mbart50"), ("MBartTokenizer", "mbart")])
def test_the_tokenizers_class_goes_before_the_models_kind(kind, family, tmp_path):
    LAYOUTS["mbart"][0](tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mbart"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    assert load_tokenizer(tmp_path).family == family


@pytest.mark.parametrize(
    ("file", "config"),
    [("config.json", {"model_type": "roformer"}), ("tokenizer_config.json", {"tokenizer_class": "RoFormerTokenizer"})],
)
def test_a_tokenizer_that_would_cut_otherwise_than_its_own_is_refused(file, config, tmp_path):
    """RoFormer's vocabulary looks like BERT's, but its tokenizer segments words with jieba."""
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / file).write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"with jieba, which is not supported.*load_tokenizer\(folder, family=\"bert\"\)"
    ):
        load_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path, family="bert").family == "bert"


@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast"])
def test_a_class_of_its_own_goes_before_the_refusal(kind, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    assert load_tokenizer(tmp_path).family == "bert"


def test_a_tokenizer_that_was_trained_here_opens_beside_a_roformer(tmp_path):
    tokenizer = train_tokenizer(WordPiece(size=200), ["some words, and some more"])
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    assert load_tokenizer(tmp_path).encode_batch_ids(TEXTS) == tokenizer.encode_batch_ids(TEXTS)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizerFast"}')
    with pytest.raises(ValueError, match="jieba"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_that_cannot_be_told_asks_for_its_family(tmp_path):
    train_sentencepiece(tmp_path / "a.model")
    with pytest.raises(ValueError, match=r"a\.model: the family cannot be inferred.*family=, one of t5, albert"):
        load_tokenizer(tmp_path / "a.model")
    assert load_tokenizer(tmp_path / "a.model", family="mbart").family == "mbart"
    with pytest.raises(ValueError, match=r"this family needs a bpe model; this is a unigram model"):
        load_tokenizer(tmp_path / "a.model", family="llama")
    with pytest.raises(ValueError, match=r"family 'bert' does not use this kind of file"):
        load_tokenizer(tmp_path / "a.model", family="bert")
    with pytest.raises(ValueError, match="unknown family 'bortt'; known families: albert"):
        load_tokenizer(tmp_path / "a.model", family="bortt")


@pytest.mark.parametrize(("family", "file"), [("bert", "vocab.txt"), ("gpt2", "vocab.json"), ("gpt2", "merges.txt")])
def test_one_file_is_enough_to_name_a_tokenizer(family, file, tmp_path):
    LAYOUTS[family][0](tmp_path)
    assert load_tokenizer(tmp_path / file).encode_batch_ids(TEXTS) == load_tokenizer(tmp_path).encode_batch_ids(TEXTS)


def test_padding_and_truncation_in_a_file_are_not_applied_but_told(tmp_path):
    """Some published files truncate every text to 128 tokens and pad it to 128."""
    ours = train_tokenizer(WordPiece(size=300), corpus(200))
    long, short = "a man " * 40, "a"
    length = len(ours.encode(long))
    ours._backend.enable_truncation(16)
    ours._backend.enable_padding(length=16, pad_id=0, pad_token="[PAD]")
    ours._backend.save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(tmp_path)
    assert len(found.encode(long)) == length > 80
    assert len(found.encode(short)) == 3
    assert (found.model_max_length, found.truncation_length) == (16, 16)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    assert (load_tokenizer(tmp_path).model_max_length, load_tokenizer(tmp_path).truncation_length) == (512, 16)
    found.save(tmp_path / "again")
    assert len(load_tokenizer(tmp_path / "again").encode(long)) == length > 80


@pytest.mark.parametrize("value", [1e30, int(1e30), 1000000000000000019884624838656, None])
def test_an_absurd_longest_length_is_none(value, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value}))
    assert load_tokenizer(tmp_path).model_max_length is None


def test_settings_beside_the_vocabulary_are_used(tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "model_max_length": 128}))
    assert load_tokenizer(tmp_path).model_max_length == 128
    assert load_tokenizer(tmp_path).encode("Dog", add_special_tokens=False).ids == [
        load_tokenizer(tmp_path).special_ids.unk
    ]


@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
def test_added_tokens_have_their_ids(file, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    size = len(load_tokenizer(tmp_path))
    flags = dict(content="<new>", lstrip=False, rstrip=False, single_word=False, normalized=False, special=True)
    config = {"<new>": size} if file == "added_tokens.json" else {"added_tokens_decoder": {str(size): flags}}
    (tmp_path / file).write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).token_to_id("<new>") == size
    assert size in load_tokenizer(tmp_path).encode("a <new> man", parse_special_tokens=True).ids
    wrong = {"<new>": size + 5} if file == "added_tokens.json" else {"added_tokens_decoder": {str(size + 5): flags}}
    (tmp_path / file).write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match="the files are from different models"):
        load_tokenizer(tmp_path)


BROKEN = [
    ("bert", "vocab.txt", b"a\nb\n", r"vocab\.txt: the unknown token \[UNK\] is missing"),
    ("bert", "vocab.txt", b"[UNK]\na\n", r"vocab\.txt: the vocabulary has no cls token \(usually \[CLS\]\)"),
    ("bert", "vocab.txt", b"[UNK]\n\xff\n", r"vocab\.txt: byte 7 is not valid UTF-8"),
    ("bert", "tokenizer_config.json", b"{\n,", r"tokenizer_config\.json, line 2: invalid JSON"),
    ("bert", "tokenizer_config.json", b"[]", r"tokenizer_config\.json: expected a JSON object, found list"),
    ("gpt2", "vocab.json", b"{}", r"vocab\.json: the vocabulary is empty"),
    ("gpt2", "vocab.json", b'{"a": "b"}', r"vocab\.json: token 'a' has the id 'b'; expected a non-negative integer"),
    ("gpt2", "vocab.json", b'{"<|endoftext|>": 0}', r"merges\.txt, merge 1 \(.*\): .* is not in vocab\.json"),
    (
        "gpt2",
        "merges.txt",
        b"#version: 0.2\na b\nabc\n",
        r"merges\.txt, line 3: expected two tokens separated by one space, found 'abc'",
    ),
    ("roberta", "vocab.json", None, r"contains no tokenizer: expected tokenizer\.json, vocab\.txt"),
    ("roberta", "merges.txt", None, r"merges\.txt is missing from the same directory"),
    ("t5", "spiece.model", b"nothing", r"spiece\.model is corrupt or not a SentencePiece model"),
    ("marian", "target.spm", None, r"needs source\.spm, target\.spm and vocab\.json; target\.spm is missing"),
    ("marian", "vocab.json", b'{"a": 1}', r"vocab\.json: the unknown token <unk> is missing"),
    ("ctrl", "vocab.json", b'{"a@@": 1}', r"vocab\.json: the unknown token '<unk>' is missing"),
]


@pytest.mark.parametrize(("family", "file", "content", "message"), BROKEN)
def test_what_is_wrong_with_a_file_is_said(family, file, content, message, tmp_path):
    LAYOUTS[family][0](tmp_path)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"{}", b'{"model": {"type": "BPE"}}', b"[", b"\xff"])
def test_a_broken_tokenizer_json_is_named(content, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"no such file or directory: .*nowhere"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="found nothing"):
        load_tokenizer(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"weights\.bin: unrecognized file name"):
        load_tokenizer(tmp_path / "weights.bin")


def test_a_target_side_of_its_own_is_saved_and_found(tmp_path):
    source, target = (
        train_tokenizer(ByteBPE(size=300), corpus(200)),
        train_tokenizer(WordPiece(size=300), corpus(200, seed=5)),
    )
    source.with_target(target).save(tmp_path)
    found = load_tokenizer(tmp_path)
    assert found.encode_batch_ids(TEXTS) == source.encode_batch_ids(TEXTS)
    assert found.target.encode_batch_ids(TEXTS) == target.encode_batch_ids(TEXTS)
    assert found.fingerprint() != load_tokenizer(tmp_path / "tokenizer.json").fingerprint()


@pytest.mark.parametrize("family", LAYOUTS)
def test_a_fingerprint_names_one_tokenizer(family, tmp_path):
    LAYOUTS[family][0](tmp_path)
    ours = load_tokenizer(tmp_path, family=family)
    ours.save(tmp_path / "copy")
    other = train_tokenizer(ByteBPE(size=300), corpus(50))
    assert load_tokenizer(tmp_path / "copy").fingerprint() == ours.fingerprint()
    assert load_tokenizer(tmp_path / "copy").fingerprint() != other.fingerprint()


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
    """If writing fails halfway, the folder is unchanged."""
    old, new = train_tokenizer(ByteBPE(size=300), corpus(100)), train_tokenizer(ByteBPE(size=310), corpus(100))
    old.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"tokenizer.json", "tokenizer_config.json"}
    calls = []

    def fail(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError("no space left")

    monkeypatch.setattr("regard.files.os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        new.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    shutil.rmtree(tmp_path)
    (tmp_path).write_text("a file")
    with pytest.raises(ValueError, match="is a file; expected a directory"):
        new.save(tmp_path)


def tokenizer_json(folder, **parts):
    """Write a tokenizer.json with a normalizer, pre-tokenizer or decoder of its own."""
    backend = train_tokenizer(ByteBPE(size=300), ["the dog sleeps"])._backend
    values = json.loads(backend.to_str()) | parts
    (folder / "tokenizer.json").write_text(json.dumps(values))
    return folder


REPLACE = {"type": "Replace", "pattern": {"String": "x"}, "content": "xxxx"}


def charsmap(size):
    return {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(struct.pack("<I", size) + b"x" * 8).decode(),
    }


@pytest.mark.parametrize(
    ("normalizer", "message"),
    [
        (charsmap(2**32 - 8), "precompiled_charsmap is corrupt"),
        ({"type": "Sequence", "normalizers": [charsmap(4000)]}, "precompiled_charsmap is corrupt"),
        ({"type": "Precompiled", "precompiled_charsmap": "@"}, "precompiled_charsmap is not base64"),
        ({"type": "Replace", "pattern": {"String": ""}, "content": "x" * 65}, "makes texts up to 65 times longer"),
        (
            {
                "type": "Sequence",
                "normalizers": 6 * [{"type": "Replace", "pattern": {"String": "x"}, "content": "xxxx"}],
            },
            "makes texts up to 4,096 times longer",
        ),
        ({"type": "Prepend", "prepend": "x" * 10**6}, "makes texts up to 1,000,000 times longer"),
    ],
)
@pytest.mark.parametrize("spelling", ["plain", "escaped"])
def test_a_tokenizer_that_would_fill_the_memory_is_refused(tmp_path, normalizer, message, spelling):
    tokenizer_json(tmp_path, normalizer=normalizer)
    if spelling == "escaped":
        path = tmp_path / "tokenizer.json"
        path.write_text(re.sub('"(P|R)(?=recompiled|eplace|repend)', r'"\\u00\1', path.read_text()).translate({}))
        path.write_text(path.read_text().replace("\\u00P", "\\u0050").replace("\\u00R", "\\u0052"))
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json: .*{message}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}},
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}, "pre_tokenizer": None},
    ],
    ids=["backtracking", "no unknown token"],
)
def test_a_panic_of_the_library_is_an_error(tmp_path, parts):
    tokenizer_json(tmp_path, post_processor=None, **parts)
    with pytest.raises(TokenizerError, match="the tokenizer cannot"):
        load_tokenizer(tmp_path).encode("x" * 60)
