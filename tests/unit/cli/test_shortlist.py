"""`--shortlist`: learned by `convert`, stored in the folder, used by `translate`."""

import shutil

import pytest
from unit.cli.runner import run
from unit.tasks import models

import regard
from regard.engine import shortlist
from regard.engine.shortlist_head import ShortlistEncoderDecoder
from regard.generation import Inputs, generate
from regard.tasks.translate import TranslateOptions


@pytest.fixture
def folder(tmp_path):
    return models.translating(tmp_path / "model")


@pytest.fixture
def parallel(tmp_path):
    one, other = tmp_path / "train.a", tmp_path / "train.b"
    one.write_text("the dog runs\na man sleeps\nthe man\n")
    other.write_text("a dog\nthe cat sleeps\na cat\n")
    return one, other


@pytest.fixture
def short(folder, parallel, tmp_path):
    called = run("convert", folder, tmp_path / "short", "--shortlist", *parallel)
    assert called.code == 0, called.err
    assert "tokens per text on average" in called.err
    return tmp_path / "short"


def test_it_is_learnt_kept_and_used(short):
    model = regard.load(short)
    table = model.shortlist
    size = len(model.tokenizer)
    assert (table.source_vocabulary, table.vocabulary) == (size, size)
    translator = model.translator(TranslateOptions(shortlist=table))
    assert isinstance(translator.network, ShortlistEncoderDecoder)
    expected = model.translate("the dog", shortlist=True)
    called = run("translate", short, "the dog", "--shortlist", "--precision", "float32")
    assert called.out == expected.text + "\n"


@pytest.mark.parametrize("text", ["the dog", "a man sleeps", "cat"])
def test_what_is_written_is_in_the_list(short, text):
    model = regard.load(short)
    translator = model.translator(TranslateOptions(shortlist=model.shortlist, max_new_tokens=12))
    source = model.tokenizer.encode(text).ids
    allowed = set(model.shortlist.lookup(source, translator.network.always).tolist())
    assert (
        {*model.generation_config.eos_token_ids, model.tokenizer.special_ids.unk}
        <= allowed
        < set(range(len(model.tokenizer)))
    )
    inputs = Inputs(prompt=translator.decoder_prompt, source=source)
    assert set(next(generate(translator.network, [inputs], translator.decoding_options)).tokens) <= allowed


def test_it_goes_along_when_a_folder_is_converted_again(short, tmp_path):
    assert run("convert", short, tmp_path / "bytes", "--precision", "int8").code == 0
    assert run("translate", tmp_path / "bytes", "the dog", "--shortlist").code == 0
    table, again = shortlist.load_shortlist(short), shortlist.load_shortlist(tmp_path / "bytes")
    assert table.targets.tolist() == again.targets.tolist()


def test_an_old_one_does_not_stay(folder, short):
    assert run("convert", folder, short, "--force").code == 0
    assert not (short / shortlist.SHORTLIST_FILE).exists()


def test_a_model_without_one_says_how_to_make_it(folder):
    called = run("translate", folder, "the dog", "--shortlist")
    assert called.code == 2
    assert "has no shortlist" in called.err


def test_one_of_another_vocabulary_is_refused(short, tmp_path):
    other = models.translating(tmp_path / "other", more=3)
    shutil.copyfile(short / shortlist.SHORTLIST_FILE, other / shortlist.SHORTLIST_FILE)
    called = run("translate", other, "the dog", "--shortlist")
    assert called.code == 2
    assert "belongs to another model" in " ".join(called.err.split())


def test_a_decoder_alone_has_none(parallel, tmp_path):
    folder = models.continuing(tmp_path / "decoder")
    called = run("convert", folder, tmp_path / "copy", "--shortlist", *parallel)
    assert called.code == 2
    assert "requires an encoder-decoder network" in called.err
    assert not (tmp_path / "copy").exists()
    with pytest.raises(ValueError, match="has no encoder"):
        regard.load(folder).translate("the dog", shortlist=True)


def test_lines_that_do_not_match_write_nothing(folder, parallel, tmp_path):
    parallel[1].write_text("a dog\n")
    with pytest.raises(ValueError, match="line count mismatch"):
        run("convert", folder, tmp_path / "short", "--shortlist", *parallel)
    assert not (tmp_path / "short").exists()
