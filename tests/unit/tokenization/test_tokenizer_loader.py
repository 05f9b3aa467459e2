"""Folders and files: what they are is found out, and what is wrong with them is said."""

import json
import shutil

import pytest
from unit.tokenization.sample_texts import texts
from unit.tokenization.vocabularies import LAYOUTS, corpus, pieces

from regard.tokenization.algorithms import ByteBPE, WordPiece
from regard.tokenization.tokenizer_loader import load
from regard.tokenization.tokenizer_trainer import train

TEXTS = [text[:200] for text in texts(300)]


@pytest.mark.parametrize("family", [name for name in LAYOUTS if name != "mbart50"])
def test_the_family_is_found_out_from_the_files(family, tmp_path):
    """By the vocabulary alone; mBART-50's file is mBART's, and its config tells them apart."""
    LAYOUTS[family][0](tmp_path)
    assert load(tmp_path).family == family
    assert load(tmp_path).ids_of(TEXTS) == load(tmp_path, family=family).ids_of(TEXTS)


@pytest.mark.parametrize(
    ("file", "said", "family"),
    [
        ("config.json", {"model_type": "bart"}, "roberta"),
        ("config.json", {"model_type": "gpt2"}, "gpt2"),
        ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizerFast"}, "roberta"),
        ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, "gpt2"),
    ],
)
def test_the_family_is_read_from_the_configs(file, said, family, tmp_path):
    LAYOUTS["roberta"][0](tmp_path)
    (tmp_path / file).write_text(json.dumps(said))
    assert load(tmp_path).family == family


@pytest.mark.parametrize(("kind", "family"), [("MBart50Tokenizer", "mbart50"), ("MBartTokenizer", "mbart")])
def test_the_tokenizers_class_goes_before_the_models_kind(kind, family, tmp_path):
    LAYOUTS["mbart"][0](tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mbart"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    assert load(tmp_path).family == family


@pytest.mark.parametrize(
    ("file", "said"),
    [("config.json", {"model_type": "roformer"}), ("tokenizer_config.json", {"tokenizer_class": "RoFormerTokenizer"})],
)
def test_a_tokenizer_that_would_cut_otherwise_than_its_own_is_refused(file, said, tmp_path):
    """RoFormer's vocabulary looks like BERT's, and its words are found by a dictionary."""
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / file).write_text(json.dumps(said))
    with pytest.raises(ValueError, match=r"find Chinese words by a dictionary \(jieba\).*family=\"bert\""):
        load(tmp_path)
    assert load(tmp_path, family="bert").family == "bert"


@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast"])
def test_a_class_of_its_own_goes_before_the_refusal(kind, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    assert load(tmp_path).family == "bert"


def test_a_tokenizer_that_was_trained_here_opens_beside_a_roformer(tmp_path):
    tokenizer = train(WordPiece(size=200), ["some words, and some more"])
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    assert load(tmp_path).ids_of(TEXTS) == tokenizer.ids_of(TEXTS)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizerFast"}')
    with pytest.raises(ValueError, match="jieba"):
        load(tmp_path)


def test_a_vocabulary_that_cannot_be_told_asks_for_its_family(tmp_path):
    pieces(tmp_path / "a.model")
    with pytest.raises(ValueError, match=r"a\.model: its family cannot be told.*family=, one of t5, albert"):
        load(tmp_path / "a.model")
    assert load(tmp_path / "a.model", family="mbart").family == "mbart"
    with pytest.raises(ValueError, match=r"this family has bpe models, and this is unigram"):
        load(tmp_path / "a.model", family="llama")
    with pytest.raises(ValueError, match=r"family 'bert' does not come with such a file"):
        load(tmp_path / "a.model", family="bert")
    with pytest.raises(ValueError, match="family 'bortt' is not known; known are albert"):
        load(tmp_path / "a.model", family="bortt")


@pytest.mark.parametrize(("family", "file"), [("bert", "vocab.txt"), ("gpt2", "vocab.json"), ("gpt2", "merges.txt")])
def test_one_file_is_enough_to_name_a_tokenizer(family, file, tmp_path):
    LAYOUTS[family][0](tmp_path)
    assert load(tmp_path / file).ids_of(TEXTS) == load(tmp_path).ids_of(TEXTS)


def test_padding_and_truncation_in_a_file_are_not_applied_but_told(tmp_path):
    """Some published files cut every text at 128 tokens and pad it to 128."""
    ours = train(WordPiece(size=300), corpus(200))
    long, short = "a man " * 40, "a"
    length = len(ours.encode(long))
    ours._core.enable_truncation(16)
    ours._core.enable_padding(length=16, pad_id=0, pad_token="[PAD]")
    ours._core.save(str(tmp_path / "tokenizer.json"))
    found = load(tmp_path)
    assert len(found.encode(long)) == length > 80
    assert len(found.encode(short)) == 3
    assert (found.longest, found.truncation) == (16, 16)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    assert (load(tmp_path).longest, load(tmp_path).truncation) == (512, 16)
    found.save(tmp_path / "again")
    assert len(load(tmp_path / "again").encode(long)) == length > 80


@pytest.mark.parametrize("value", [1e30, int(1e30), 1000000000000000019884624838656, None])
def test_an_absurd_longest_length_is_none(value, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value}))
    assert load(tmp_path).longest is None


def test_settings_beside_the_vocabulary_are_used(tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "model_max_length": 128}))
    assert load(tmp_path).longest == 128
    assert load(tmp_path).encode("Dog", special_tokens=False).ids == [load(tmp_path).special.unknown]


@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
def test_added_tokens_have_their_ids(file, tmp_path):
    LAYOUTS["bert"][0](tmp_path)
    size = len(load(tmp_path))
    flags = dict(content="<new>", lstrip=False, rstrip=False, single_word=False, normalized=False, special=True)
    said = {"<new>": size} if file == "added_tokens.json" else {"added_tokens_decoder": {str(size): flags}}
    (tmp_path / file).write_text(json.dumps(said))
    assert load(tmp_path).id("<new>") == size
    assert size in load(tmp_path).encode("a <new> man", read_special=True).ids
    wrong = {"<new>": size + 5} if file == "added_tokens.json" else {"added_tokens_decoder": {str(size + 5): flags}}
    (tmp_path / file).write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match="do not belong together"):
        load(tmp_path)


BROKEN = [
    ("bert", "vocab.txt", b"a\nb\n", r"vocab\.txt: there is no \[UNK\]"),
    ("bert", "vocab.txt", b"[UNK]\na\n", r"vocab\.txt: the vocabulary lacks the special token .* \[CLS\]"),
    ("bert", "vocab.txt", b"[UNK]\n\xff\n", r"vocab\.txt: byte 7 is no UTF-8"),
    ("bert", "tokenizer_config.json", b"{\n,", r"tokenizer_config\.json, line 2: this is no valid JSON"),
    ("bert", "tokenizer_config.json", b"[]", r"tokenizer_config\.json: expected a JSON object, found list"),
    ("gpt2", "vocab.json", b"{}", r"vocab\.json: the vocabulary is empty"),
    ("gpt2", "vocab.json", b'{"a": "b"}', r"vocab\.json: token 'a' has the id 'b'; expected a whole number"),
    ("gpt2", "vocab.json", b'{"<|endoftext|>": 0}', r"merges\.txt, merge 1 \(.*\): .* is not in vocab\.json"),
    ("gpt2", "merges.txt", b"#version: 0.2\na b\nabc\n", r"merges\.txt, line 3: expected two pieces .* found 'abc'"),
    ("roberta", "vocab.json", None, r"has no tokenizer: expected tokenizer\.json, vocab\.txt"),
    ("roberta", "merges.txt", None, r"merges\.txt should lie beside it, and does not"),
    ("t5", "spiece.model", b"nothing", r"spiece\.model is damaged or no SentencePiece model"),
    ("marian", "target.spm", None, r"a Marian tokenizer is source\.spm, target\.spm and vocab\.json; target\.spm"),
    ("marian", "vocab.json", b'{"a": 1}', r"vocab\.json: there is no <unk> in it"),
    ("ctrl", "vocab.json", b'{"a@@": 1}', r"vocab\.json: there is no <unk> in it"),
]


@pytest.mark.parametrize(("family", "file", "content", "said"), BROKEN)
def test_what_is_wrong_with_a_file_is_said(family, file, content, said, tmp_path):
    LAYOUTS[family][0](tmp_path)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"{}", b'{"model": {"type": "BPE"}}', b"[", b"\xff"])
def test_a_broken_tokenizer_json_is_named(content, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(ValueError, match="there is no file or folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="found nothing"):
        load(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"weights\.bin: not known by its name"):
        load(tmp_path / "weights.bin")


def test_a_target_side_of_its_own_is_saved_and_found(tmp_path):
    source, target = train(ByteBPE(size=300), corpus(200)), train(WordPiece(size=300), corpus(200, seed=5))
    source.with_target(target).save(tmp_path)
    found = load(tmp_path)
    assert found.ids_of(TEXTS) == source.ids_of(TEXTS)
    assert found.target.ids_of(TEXTS) == target.ids_of(TEXTS)
    assert found.fingerprint() != load(tmp_path / "tokenizer.json").fingerprint()


@pytest.mark.parametrize("family", LAYOUTS)
def test_a_fingerprint_names_one_tokenizer(family, tmp_path):
    LAYOUTS[family][0](tmp_path)
    ours = load(tmp_path, family=family)
    ours.save(tmp_path / "copy")
    assert load(tmp_path / "copy").fingerprint() == ours.fingerprint()
    assert len({load(tmp_path / "copy").fingerprint(), train(ByteBPE(size=300), corpus(50)).fingerprint()}) == 2


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
    """When writing fails in the middle, the folder is as it was."""
    old, new = train(ByteBPE(size=300), corpus(100)), train(ByteBPE(size=310), corpus(100))
    old.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"tokenizer.json", "tokenizer_config.json"}
    calls = []

    def fail(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError("no space left")

    monkeypatch.setattr("regard.tokenization.io.os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        new.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    shutil.rmtree(tmp_path)
    (tmp_path).write_text("a file")
    with pytest.raises(ValueError, match="is a file"):
        new.save(tmp_path)
