"""An input that cannot be read costs no result of those before it, and the error names its line."""

import pytest
from unit.cli.runner import run
from unit.tasks import models, vocabularies

import regard
from regard.tokenization.text_files import DataError

GOOD = [sentence[:20] for sentence in vocabularies.sentences(90, seed=5)]
"""More lines than are tokenized at a time, and fewer than are read ahead."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return {"translate": models.translating(place / "a"), "generate": models.continuing(place / "b")}


@pytest.fixture
def bad_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\n".join(GOOD).encode() + b"\nbad \xff byte\nnot reached\n")
    return path


@pytest.mark.parametrize("command", ["translate", "generate"])
def test_what_was_read_before_the_error_is_written(folders, bad_file, command, capsys):
    limit = ["--max-new-tokens", "2"]
    expected = getattr(regard.load(folders[command]), command)(GOOD, max_new_tokens=2)
    from regard.cli.main import app

    with pytest.raises(DataError, match=r"texts\.txt, line 91: byte 5 of the line .* is not valid UTF-8"):
        app([command, str(folders[command]), str(bad_file), *limit], standalone_mode=False)
    written = capsys.readouterr().out.split("\n")[:-1]
    assert len(written) == len(GOOD)
    assert written[:5] == [result.text.replace("\n", "\\n") for result in expected[:5]]


def test_tokens_before_the_error_are_written(folders, bad_file, capsys):
    from regard.cli.main import app

    with pytest.raises(DataError, match="line 91"):
        app(["tokenize", str(folders["translate"]), str(bad_file), "--json"], standalone_mode=False)
    assert len(capsys.readouterr().out.split("\n")[:-1]) == len(GOOD)


def test_an_input_that_cannot_be_processed_costs_no_other_result(folders):
    """An empty prompt is an error of this input, and not of reading."""
    from regard.generation import DecodingOptions, Inputs, generate

    network = regard.load(folders["generate"]).network
    inputs = [Inputs(prompt=[5, 6]), Inputs(prompt=[7]), Inputs(prompt=[]), Inputs(prompt=[8])]
    results = generate(network, inputs, DecodingOptions(max_new_tokens=1))
    assert [next(results).index, next(results).index] == [0, 1]
    with pytest.raises(ValueError, match="the prompt of input 3 is empty"):
        next(results)


def test_notes_are_written_too(folders, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"the dog\n\xff\n")
    with pytest.raises(DataError):
        run("translate", folders["translate"], path, "--max-new-tokens", 1)
