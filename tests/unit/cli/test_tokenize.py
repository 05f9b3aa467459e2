import json
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner
from unit.tokenization.vocabularies import LAYOUTS, corpus

from regard.cli.main import app
from regard.tokenization.algorithms import CharacterLevel
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    LAYOUTS["bert"][0](folder)
    return folder


def run(*words, given=None):
    return CliRunner().invoke(app, ["tokenize", *map(str, words)], input=given)


def objects(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_says_what_encode_says(bert):
    text = "A dog, naïve [SEP] 🙂"
    (told,) = objects(run(bert, text, "--json"))
    row = load_tokenizer(bert).encode(text)
    assert told["text"] == text
    assert (told["tokens"], told["ids"], told["special"]) == (row.tokens, row.ids, row.special_tokens_mask)
    assert [tuple(place) for place in told["offsets"]] == row.offsets


def test_columns_show_the_text_of_each_token(bert):
    lines = run(bert, "A dog, naïve").stdout.splitlines()
    row = load_tokenizer(bert).encode("A dog, naïve")
    parts = [line.split("\t") for line in lines if line]
    assert [part[0] for part in parts] == row.tokens
    assert [int(part[1]) for part in parts] == row.ids
    assert parts[0][2:] == ["", "", ""]
    assert [json.loads(part[4]) for part in parts[1:-1]] == ["A dog, naïve"[a:b] for a, b in row.offsets[1:-1]]


def test_options_reach_the_tokenizer(bert):
    ours = load_tokenizer(bert)
    (pair,) = objects(run(bert, "a dog", "--pair", "the man", "--json"))
    assert (pair["ids"], pair["segments"]) == (
        ours.encode("a dog", "the man").ids,
        ours.encode("a dog", "the man").segments,
    )
    (bare,) = objects(run(bert, "a dog", "--no-special", "--json"))
    assert bare["ids"] == ours.encode("a dog", add_special_tokens=False).ids
    (read,) = objects(run(bert, "a [MASK]", "--parse-special", "--json"))
    assert ours.special_ids.mask in read["ids"]
    (text,) = objects(run(bert, "a [MASK]", "--json"))
    assert ours.special_ids.mask not in text["ids"]


def test_languages_and_the_target_side(tmp_path):
    LAYOUTS["marian"][0](tmp_path)
    ours = load_tokenizer(tmp_path)
    (told,) = objects(run(tmp_path, "a dog", "--language", "fr", "--json"))
    assert told["ids"] == [ours.token_to_id(">>fr<<"), *ours.encode("a dog").ids]
    (told,) = objects(run(tmp_path, "manhorse", "--target", "--json"))
    assert told["ids"] == ours.target.encode("manhorse").ids


@pytest.mark.parametrize("source", ["file", "input"])
def test_lines_of_a_file_or_of_the_input(source, bert, tmp_path):
    lines = corpus(1200)
    (tmp_path / "texts").write_text("\n".join(lines) + "\n", "utf-8")
    words = (bert, tmp_path / "texts") if source == "file" else (bert, "-")
    result = run(*words, "--json", given=None if source == "file" else "\n".join(lines) + "\n")
    assert [told["ids"] for told in objects(result)] == load_tokenizer(bert).encode_batch_ids(lines)


def test_from_ids_to_text(bert):
    ours = load_tokenizer(bert)
    ids = ours.encode("the dog walks").ids
    assert run(bert, " ".join(map(str, ids)), "--decode").stdout == "[CLS] the dog walks [SEP]\n"
    assert run(bert, json.dumps(ids), "--decode", "--no-special").stdout == "the dog walks\n"
    assert objects(run(bert, json.dumps(ids), "--decode", "--no-special", "--json")) == [{"text": "the dog walks"}]


def test_a_token_that_is_a_line_end_stays_in_its_line(tmp_path):
    train_tokenizer(CharacterLevel(size=100), ["a\tb", "c"]).save(tmp_path)
    lines = run(tmp_path, "a\tb\nc").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines[:5]] == ["a", "\\t", "b", "\\n", "c"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{bert}", "1 x", "--decode"], 2, "'x' is not a token id"),
        (["{bert}", "1 999999", "--decode"], 1, "no token has id 999999"),
        (["nowhere", "a"], 1, "no such file or directory: nowhere"),
        (["{bert}", "a", "--language", "de"], 1, "has no language codes"),
        (["{bert}", "a", "--family", "x"], 1, "unknown family 'x'"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_said(words, code, said, bert):
    words = [word.format(bert=bert) for word in words]
    command = [sys.executable, "-c", "from regard.cli.main import main; main()", "tokenize", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_it_needs_no_torch(bert):
    code = (
        "import sys; from regard.cli.main import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, "tokenize", str(bert), "a dog"], check=True, capture_output=True)


def test_a_terminal_sees_colours(bert):
    """Adjacent tokens have different background colors."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "from regard.cli.main import main; main()", "tokenize", str(bert), "dogs walks"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    subprocess.run(command, stdout=follower, env=environment, check=True)
    os.close(follower)
    seen = os.read(leader, 65536).decode()
    first = seen.splitlines()[0]
    assert first.count("48;2;38;70;83m") >= 1
    assert first.count("48;2;122;68;25m") >= 1
    assert "tokens" in seen
