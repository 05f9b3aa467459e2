"""Models that know several languages or tasks are asked for them by name; what they know is listed."""

import json

import pytest
from unit.tasks import vocabularies

from regard.tasks import generation_config
from regard.tasks.translation_direction import way
from regard.tokenization.tokenizer_loader import load

TASKS = {
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
    "summarization": {"prefix": "summarize: "},
}
KINDS = {
    "t5": (vocabularies.t5, dict(model_type="t5", task_specific_params=TASKS)),
    "summarizer": (vocabularies.t5, dict(model_type="t5", task_specific_params={"one": {"prefix": "summarize: "}})),
    "mbart": (vocabularies.mbart, dict(model_type="mbart", decoder_start_token_id=2, forced_bos_token_id=7)),
    "mbart50": (vocabularies.mbart, dict(model_type="mbart", decoder_start_token_id=2)),
    "many": (vocabularies.marian_of_many, dict(model_type="marian")),
    "two": (vocabularies.marian, dict(model_type="marian")),
}  # fmt: skip


@pytest.fixture
def ask(request, tmp_path):
    kind = request.param
    make, config = KINDS[kind]
    make(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    if kind == "mbart50":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MBart50Tokenizer"}))
    tokenizer = load(tmp_path)
    said = generation_config.read(tmp_path, tokenizer)
    return lambda source=None, target=None, prefix=None: way(tokenizer, said, source, target, prefix)


def of(*kinds):
    return pytest.mark.parametrize("ask", kinds, indirect=True)


@of("t5")
def test_t5_is_asked_in_words(ask):
    assert ask("en", "de").prefix == "translate English to German: "
    assert ask(prefix="summarization").prefix == "summarize: "
    assert ask(prefix="summarize: ").prefix == "summarize: "
    assert ask(prefix="").prefix == ""
    for wrong in ({}, dict(source="en"), dict(source="de", target="en"), dict(source="xx", target="de")):
        with pytest.raises(ValueError, match="--from en --to de; --from en --to fr; --prefix summarization"):
            ask(**wrong)
    with pytest.raises(ValueError, match="leave one out"):
        ask("en", "de", "summarize: ")


@of("summarizer")
def test_a_model_with_one_task_is_not_left_without_its_prefix(ask):
    with pytest.raises(ValueError, match="It knows --prefix one"):
        ask()


@of("mbart")
def test_mbart_starts_a_target_with_its_language(ask):
    found = ask("en", "ro_RO")
    assert (found.language, found.prefix) == ("en_XX", "")
    assert found.habits.begin is None
    assert found.habits.start not in (2, None)
    assert found.habits.start == ask("de", "ro").habits.start != ask("de", "en").habits.start


@of("mbart50")
def test_mbart_50_writes_the_language_first(ask):
    found = ask("fr", "de_DE")
    assert (found.language, found.habits.start) == ("fr_XX", 2)
    assert found.habits.begin == ask("en", "de").habits.begin != ask("en", "fr").habits.begin


@of("mbart", "mbart50")
def test_languages_that_are_not_known_or_not_said(ask):
    for wrong in (
        dict(),
        dict(source="en"),
        dict(target="de"),
        dict(source="en", target="xx"),
        dict(prefix="translate: "),
    ):
        with pytest.raises(ValueError, match=r"knows .*cs_CZ, de_DE, en_XX"):
            ask(**wrong)


@of("many")
def test_marian_of_many_languages_is_told_the_target(ask):
    assert (ask(target="fr").language, ask(target="fr").prefix) == ("fr", "")
    with pytest.raises(ValueError, match="this model knows de, fr"):
        ask()
    with pytest.raises(ValueError, match="'es' is not known; this model knows de, fr"):
        ask(target="es")
    with pytest.raises(ValueError, match="leave --from out"):
        ask("en", "fr")


@of("two")
def test_a_model_of_two_languages_needs_not_be_told(ask):
    assert (ask().prefix, ask().language) == ("", None)
    assert ask(prefix="say: ").prefix == "say: "
    with pytest.raises(ValueError, match="one source and one target language"):
        ask(target="de")
