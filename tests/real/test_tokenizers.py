"""Published vocabularies: ids equal those of transformers on ten thousand texts, and those of published test cases."""

import json
import os
from pathlib import Path

import pytest
import transformers
from unit.tokenization.sample_texts import has_special, texts

from regard.tokenization.tokenizer_loader import load_tokenizer

if "REGARD_DATA" not in os.environ:
    pytest.skip("REGARD_DATA is not set", allow_module_level=True)
DATA = Path(os.environ["REGARD_DATA"])
VOCABULARIES = DATA / "tokenizers"
STORIES = DATA / "weights/stories15M"
TEXTS = texts(10_000)

PUBLISHED = {
    "bert-base-uncased": (VOCABULARIES / "bert-base-uncased", transformers.BertTokenizer),
    "gpt2": (VOCABULARIES / "gpt2", transformers.GPT2Tokenizer),
    "albert": (VOCABULARIES / "albert", transformers.AlbertTokenizer),
    "stories15M": (STORIES, transformers.AutoTokenizer),
    "stories260K": (DATA / "weights/stories260K", transformers.AutoTokenizer),
}


def real_lines():
    """Lines of real data sets in three languages, and of code-like and noisy text."""
    files = ["multi30k/val.en", "multi30k/val.de", "multi30k/val.fr", "wikitext-2/valid.txt", "wnut17/dev.conll"]
    paths = [path for name in files for path in [DATA / name] if path.is_file()]
    return [line for path in paths for line in path.read_text("utf-8").split("\n")[:1500]]


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_equal_those_of_transformers(name):
    folder, kind = PUBLISHED[name]
    ours, theirs = load_tokenizer(folder), kind.from_pretrained(folder)
    lines = [*TEXTS, *real_lines()]
    minimal = dict(return_attention_mask=False, return_token_type_ids=False, verbose=False)
    expected = theirs(lines, **minimal)["input_ids"]
    found = [row.ids for row in ours.encode_batch(lines, parse_special_tokens=True)]
    assert [text for text, a, b in zip(lines, found, expected, strict=True) if a != b] == []
    plain = [text for text in lines if name != "albert" or not has_special(text)]
    expected = theirs(plain, split_special_tokens=True, **minimal)["input_ids"]
    assert [text for text, a, b in zip(plain, ours.encode_batch_ids(plain), expected, strict=True) if a != b] == []


def test_the_known_case():
    row = load_tokenizer(VOCABULARIES / "bert-base-uncased").encode("Run, rabbit run. Dig that hole, forget the sun.")
    assert " ".join(row.tokens) == "[CLS] run , rabbit run . dig that hole , forget the sun . [SEP]"
    assert " ".join(map(str, row.ids)) == "101 2448 1010 10442 2448 1012 10667 2008 4920 1010 5293 1996 3103 1012 102"


def test_cases_of_bert():
    ours = load_tokenizer(VOCABULARIES / "bert-base-uncased")
    lines = (VOCABULARIES / "cases/bert-base-uncased.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    rows = ours.encode_batch([case["text"] for case in cases], add_special_tokens=False)
    assert len(cases) == 500
    assert [row.ids for row in rows] == [case["ids"] for case in cases]
    assert [row.tokens for row in rows] == [case["tokens"] for case in cases]


@pytest.mark.parametrize(
    ("name", "folder"),
    [("gpt-2", VOCABULARIES / "gpt2"), ("bert-bge", VOCABULARIES / "bert-base-uncased"), ("llama-spm", STORIES)],
)
def test_cases_of_llama_cpp(name, folder):
    inputs = (VOCABULARIES / f"cases/ggml-vocab-{name}.gguf.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (VOCABULARIES / f"cases/ggml-vocab-{name}.gguf.out").read_text("utf-8").split("\n")
    expected = [[int(token_id) for token_id in line.split()] for line in lines]
    ours = load_tokenizer(folder)
    found = [ours.encode(text, add_special_tokens=False).ids for text in inputs]
    assert len(found) == len(expected) > 40
    assert found == expected


def test_the_prompt_of_the_stories():
    ours = load_tokenizer(STORIES)
    assert ours.encode("Once upon a time").ids == [1, 9038, 2501, 263, 931]
    assert (ours.model_max_length, ours.special_ids.bos, ours.special_ids.pad) == (256, 1, None)


@pytest.mark.parametrize("name", ["gpt2", "stories15M"])
def test_what_knows_every_byte_gives_every_text_back(name):
    """Llama's vocabulary spells a space as ▁, and drops one at the start of the text."""
    ours = load_tokenizer(PUBLISHED[name][0])
    lines = [*TEXTS, *real_lines()]
    if name != "gpt2":
        lines = [text for text in lines if not text.startswith(" ") and "▁" not in text]
    assert ours.decode_batch(ours.encode_batch_ids(lines)) == lines
