"""Multilingual and multi-task models need a language or a prefix; the errors list the available ones."""

import json

import pytest
from unit.tasks import vocabularies

from regard.tasks import generation_config
from regard.tasks.translation_direction import translation_direction
from regard.tokenization.tokenizer_loader import load_tokenizer

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
def direction(request, tmp_path):
    kind = request.param
    make, config = KINDS[kind]
    make(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    if kind == "mbart50":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MBart50Tokenizer"}))
    tokenizer = load_tokenizer(tmp_path)
    config = generation_config.read_generation_config(tmp_path, tokenizer)
    return lambda source=None, target=None, prefix=None: translation_direction(
        tokenizer, config, source, target, prefix
    )


def of(*kinds):
    return pytest.mark.parametrize("direction", kinds, indirect=True)


@of("t5")
def test_t5_takes_a_task_prefix(direction):
    assert direction("en", "de").source_prefix == "translate English to German: "
    assert direction(prefix="summarization").source_prefix == "summarize: "
    assert direction(prefix="summarize: ").source_prefix == "summarize: "
    assert direction(prefix="").source_prefix == ""
    for wrong in ({}, dict(source="en"), dict(source="de", target="en"), dict(source="xx", target="de")):
        with pytest.raises(ValueError, match="--from en --to de; --from en --to fr; --prefix summarization"):
            direction(**wrong)
    with pytest.raises(ValueError, match="leave one out"):
        direction("en", "de", "summarize: ")


@of("summarizer")
def test_a_model_with_one_task_requires_its_prefix(direction):
    with pytest.raises(ValueError, match=r"requires a task prefix\. Available: --prefix one"):
        direction()


@of("mbart")
def test_the_decoder_start_token_of_mbart_is_the_language(direction):
    found = direction("en", "ro_RO")
    assert (found.tokenizer_language, found.source_prefix) == ("en_XX", "")
    assert found.generation_config.forced_bos_token_id is None
    assert found.generation_config.decoder_start_token_id not in (2, None)
    assert (
        found.generation_config.decoder_start_token_id
        == direction("de", "ro").generation_config.decoder_start_token_id
        != direction("de", "en").generation_config.decoder_start_token_id
    )


@of("mbart50")
def test_the_first_new_token_of_mbart_50_is_the_language(direction):
    found = direction("fr", "de_DE")
    assert (found.tokenizer_language, found.generation_config.decoder_start_token_id) == ("fr_XX", 2)
    assert (
        found.generation_config.forced_bos_token_id
        == direction("en", "de").generation_config.forced_bos_token_id
        != direction("en", "fr").generation_config.forced_bos_token_id
    )


@of("mbart", "mbart50")
def test_unknown_or_missing_languages_are_refused(direction):
    for wrong in (
        dict(),
        dict(source="en"),
        dict(target="de"),
        dict(source="en", target="xx"),
        dict(prefix="translate: "),
    ):
        with pytest.raises(ValueError, match=r"[Aa]vailable.*: .*cs_CZ, de_DE, en_XX"):
            direction(**wrong)


@of("many")
def test_multilingual_marian_takes_a_target_language(direction):
    assert (direction(target="fr").tokenizer_language, direction(target="fr").source_prefix) == ("fr", "")
    with pytest.raises(ValueError, match="--to is required; available languages: de, fr"):
        direction()
    with pytest.raises(ValueError, match="unknown language 'es'; available languages: de, fr"):
        direction(target="es")
    with pytest.raises(ValueError, match="takes only a target language: leave out --from"):
        direction("en", "fr")


@of("two")
def test_a_bilingual_model_needs_no_language(direction):
    assert (direction().source_prefix, direction().tokenizer_language) == ("", None)
    assert direction(prefix="say: ").source_prefix == "say: "
    with pytest.raises(ValueError, match="one source and one target language"):
        direction(target="de")


KINDS["t5 without a list"] = (vocabularies.t5, dict(model_type="t5"))


@of("t5 without a list")
def test_a_t5_without_a_list_has_the_usual_prefix(direction):
    """Flan-T5 and fine-tuned models have no list of their prefixes."""
    assert direction("en", "de").source_prefix == "translate English to German: "
    assert direction("English", "romanian").source_prefix == "translate English to romanian: "
    for wrong in (dict(source="en"), dict(source="xx", target="de")):
        with pytest.raises(ValueError, match="expected both languages, by code"):
            direction(**wrong)
    assert direction().source_prefix == ""


@of("t5 without a list", "t5")
def test_a_prefix_in_words_gets_its_separator(direction):
    assert direction(prefix="question").source_prefix == "question: "
    assert direction(prefix="question:").source_prefix == "question: "
    assert direction(prefix="question: ").source_prefix == "question: "
    assert direction(prefix="").source_prefix == ""


@of("two")
def test_other_models_get_a_space(direction):
    assert direction(prefix="say:").source_prefix == "say: "
    assert direction(prefix="say").source_prefix == "say "
