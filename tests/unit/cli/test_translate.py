"""`regard translate`: sources of texts, standard output and standard error, exit codes."""

import json
import random
import re

import pytest
from unit.cli.runner import run, shell
from unit.tasks import models, vocabularies

import regard
from regard.tokenization.text_files import DataError

SENTENCES = vocabularies.sentences(30, seed=21)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.translating(tmp_path_factory.mktemp("translating"))


@pytest.fixture(scope="module")
def expected(folder):
    """What Python gives for the first sentences."""
    return [result.text for result in regard.load(folder).translate(SENTENCES[:6], max_new_tokens=6)]


def test_a_text(folder, expected):
    called = run("translate", folder, SENTENCES[0], "--max-new-tokens", 6)
    assert (called.code, called.lines) == (0, [expected[0]])


def test_lines_of_a_file_of_standard_input_and_of_a_dash(folder, expected, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(SENTENCES[:6]))  # without a line end at its end
    assert run("translate", folder, file, "--max-new-tokens", 6).lines == expected
    for more in ([], ["-"]):
        assert (
            run("translate", folder, *more, "--max-new-tokens", 6, given="\r\n".join(SENTENCES[:6])).lines == expected
        )


def test_a_name_of_a_file_is_a_file_and_other_names_are_texts(folder, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "the dog").write_text(SENTENCES[1])
    assert run("translate", folder, "the dog", "--max-new-tokens", 6).lines == [expected[1]]
    called = run("translate", folder, "texts.txt", "--max-new-tokens", 6)
    assert "there is no file texts.txt" in called.err
    assert len(called.lines) == 1
    assert "there is no file" not in run("translate", folder, "He left. Then.", "--max-new-tokens", 3).err
    assert run("translate", folder, "x" * 5000, "--max-new-tokens", 3).code == 0  # too long for a file's name


def test_empty_lines_stay(folder, expected):
    given = f"\n\n{SENTENCES[0]}\n\n \n{SENTENCES[1]}\n\n"
    assert run("translate", folder, "--max-new-tokens", 6, given=given).lines == [
        "",
        "",
        expected[0],
        "",
        "",
        expected[1],
        "",
    ]
    assert run("translate", folder, given="\n\n").lines == ["", ""]
    assert run("translate", folder, given="").lines == []
    assert (
        run("translate", folder, "--stream", "--max-new-tokens", 6, given=given).lines
        == run("translate", folder, "--max-new-tokens", 6, given=given).lines
    )


def test_two_thousand_lines_come_in_order(folder, tmp_path):
    """Lines of very different lengths, many of them equal: equal lines give equal results."""
    draw = random.Random(1)
    pool = [*SENTENCES[:14], "", "a"]
    texts = [draw.choice(pool) for _ in range(2000)]
    (tmp_path / "many.txt").write_text("\n".join(texts) + "\n")
    known = dict(zip(pool, run("translate", folder, "--max-new-tokens", 3, given="\n".join(pool)).lines, strict=True))
    assert len(set(known.values())) > 5
    called = run("translate", folder, tmp_path / "many.txt", "--max-new-tokens", 3)
    assert called.lines == [known[text] for text in texts]
    assert "of 2000 texts: unfinished after the maximum of 3 tokens (--max-new-tokens)" in called.err


def test_json(folder):
    call = (
        "translate",
        folder,
        SENTENCES[2],
        "--json",
        "--alignment",
        "--beam",
        3,
        "--n-best",
        2,
        "--max-new-tokens",
        8,
    )
    told = json.loads(run(*call).out)
    quick = regard.load(folder, precision="float32")
    result = quick.translate(SENTENCES[2], beam=3, n_best=2, max_new_tokens=8, alignment=True)
    assert told == result.as_json()
    assert told["alignment"]
    assert told["stopped"] in ("end", "length")
    assert len(told["alternatives"]) == 1


def test_n_best_has_a_line_with_its_score_for_each(folder):
    lines = run("translate", folder, "--n-best", 3, "--max-new-tokens", 5, given="\n".join(SENTENCES[:2])).lines
    assert len(lines) == 6
    scores = [float(line.split("\t")[0]) for line in lines]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_a_stream_is_the_text(folder, expected):
    given = "\n".join(SENTENCES[:6])
    assert run("translate", folder, "--stream", "--max-new-tokens", 6, given=given).lines == expected
    said = [
        json.loads(line)
        for line in run("translate", folder, "--stream", "--json", "--max-new-tokens", 6, given=given).lines
    ]
    whole = [one["text"] for one in said if "text" in one]
    assert whole == expected
    assert "".join(one.get("delta", "") for one in said) == "".join(expected)


def test_what_was_cut_split_or_unfinished_is_said(tmp_path):
    folder = models.with_positions(tmp_path / "short")
    given = "\n".join(["a dog", " ".join(SENTENCES[:9]), "dog " * 80])
    for stream in ([], ["--stream"]):
        said = run("translate", folder, "--max-new-tokens", 2, *stream, given=given).err
        assert "2 of 3 texts: longer than the network allows: processed in chunks of whole sentences" in said
        assert re.search(r"1 of 3 texts: longer than the network allows: \d+ input tokens truncated", said)
        assert "unfinished after the maximum of 2 tokens" in said


def test_limits_that_differ_are_said_as_a_range(tmp_path):
    """Without --max-new-tokens, the maximum depends on the length of the text."""
    folder = models.translating(tmp_path, said={"eos_token_id": 3, "suppress_tokens": [3]})
    said = run("translate", folder, given="a\na small dog runs\n").err
    short, long = (4 * len(regard.load(folder).tokenizer.encode(text)) + 64 for text in ("a", "a small dog runs"))
    assert f"2 of 2 texts: unfinished after the maximum of {short} to {long} tokens" in said


def test_broken_text_names_its_line(folder, tmp_path):
    (tmp_path / "latin").write_bytes(b"a dog\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"latin, line 2: byte 4 .* is not valid UTF-8"):
        run("translate", folder, tmp_path / "latin")
    called = shell("translate", folder, tmp_path / "latin")
    assert called.code == 1
    assert "latin, line 2" in called.err
    assert "Traceback" not in called.err
    with pytest.raises(DataError, match="standard input, line 1"):
        run("translate", folder, given=b"\xff")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["FOLDER"], "is a folder"),
        (["a", "--alignment"], "add --json"),
        (["a", "--stream", "--n-best", "2"], "remove --n-best"),
        (["a", "--beam", "2", "--n-best", "3"], "n_best must be between 1 and beam=2"),
        (["a", "--beam", "0"], "--beam"),
        (["a", "--to", "de"], "one source and one target language"),
    ],
)
def test_wrong_calls(folder, tmp_path, words, said):
    called = run("translate", folder, *[str(tmp_path) if word == "FOLDER" else word for word in words])
    assert called.code == 2
    assert said in " ".join(called.err.split())
    assert called.out == ""


def test_what_a_model_knows_is_listed(tmp_path):
    folder = models.translating(tmp_path, vocabularies.marian_of_many, {"eos_token_id": 0, "decoder_start_token_id": 1})
    for words in ([], ["--to", "xx"]):
        called = run("translate", folder, "a dog", *words)
        assert called.code == 2
        assert "available languages: de, fr" in " ".join(called.err.split())
    assert run("translate", folder, "a dog", "--to", "fr", "--max-new-tokens", 3).code == 0


def test_beams_wider_than_the_vocabulary(folder):
    called = run("translate", folder, "a dog", "--beam", 400, "--max-new-tokens", 2)
    assert (called.code, len(called.lines)) == (0, 1)


def test_a_minimum_that_cannot_be_reached_gives_way_to_the_limit(tmp_path):
    folder = models.translating(tmp_path, said={"min_length": 50})
    told = json.loads(run("translate", folder, "a dog", "--max-new-tokens", 4, "--json").out)
    assert (told["stopped"], len(told["tokens"])) == ("length", 4)


def test_prefixes_that_leave_no_room(tmp_path):
    folder = models.with_positions(tmp_path)
    with pytest.raises(ValueError, match="so nothing can be generated"):
        run("translate", folder, "a dog", "--target-prefix", "dog " * 60)
