"""From text to text as in transformers: the same folder, its tokenizer, its generation_config, in float64.

transformers gets each text alone, we get all of them at once. Every network is random, with enough end tokens that some
texts end by themselves.
"""

import json
from dataclasses import dataclass, field

import pytest
import torch
import transformers
from parity.grid import SIZES
from parity.oracle import Case, oracle
from parity.test_generation import in_double
from unit.tasks import vocabularies

import regard

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
TEXTS = ["the small dog runs under the tree.", "東京", "it's a horse! naïve Straße, 42 🙂", "big"]
LIMIT = 10
PREFIXES = {
    "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4},
    "summarization": {"prefix": "summarize: ", "max_length": 200},
}


@dataclass(frozen=True)
class Folder:
    """A published kind of folder."""

    case: Case
    vocabulary: object
    tokenizer: str
    habits: dict = field(default_factory=dict)
    """What generation_config.json says besides the end tokens."""
    ask: dict = field(default_factory=dict)
    """How we are asked."""
    prefix: str = ""
    """What transformers has to be given before the text."""
    config: dict = field(default_factory=dict)
    told: dict = field(default_factory=dict)
    """What transformers' tokenizer has to be told."""


def of(family, architecture, vocabulary, tokenizer, **more):
    sizes = SIZES[family] | {key: 60 for key in ("max_position_embeddings", "n_positions") if key in SIZES[family]}
    sizes |= {"num_layers": 3} if family == "t5" else {}  # transformers counts the encoder's layers for the cache
    return Folder(Case(family, architecture, sizes), vocabulary, tokenizer, **more)


MARIAN = dict(forced_eos_token_id=0, renormalize_logits=True, bad_words_ids=[["last"]], decoder_start_token_id="last")
FOLDERS = {
    "BART": of("bart", "BartForConditionalGeneration", vocabularies.roberta, "BartTokenizer", habits=dict(
        decoder_start_token_id=2, forced_bos_token_id=0, forced_eos_token_id=2, min_length=4, no_repeat_ngram_size=3,
        early_stopping=True, length_penalty=2.0, num_beams=4)),
    "mBART": of("mbart", "MBartForConditionalGeneration", vocabularies.mbart, "MBartTokenizer",
        habits=dict(decoder_start_token_id="ro_RO"), ask=dict(source_language="en_XX", target_language="ro"),
        told=dict(src_lang="en_XX", tgt_lang="ro_RO")),
    "mBART-50": of("mbart", "MBartForConditionalGeneration", vocabularies.mbart, "MBart50Tokenizer",
        habits=dict(decoder_start_token_id=2, forced_bos_token_id="de_DE", forced_eos_token_id=2),
        ask=dict(source_language="fr", target_language="de_DE"), told=dict(src_lang="fr_XX", tgt_lang="de_DE")),
    "T5": of("t5", "T5ForConditionalGeneration", vocabularies.t5, "T5Tokenizer",
        habits=dict(decoder_start_token_id=0, suppress_tokens=[2]), config=dict(task_specific_params=PREFIXES),
        ask=dict(source_language="en", target_language="de"), prefix="translate English to German: "),
    "T5, a prefix by name": of("t5", "T5ForConditionalGeneration", vocabularies.t5, "T5Tokenizer",
        habits=dict(decoder_start_token_id=0, repetition_penalty=1.3), config=dict(task_specific_params=PREFIXES),
        ask=dict(prefix="summarization"), prefix="summarize: "),
    "Marian": of("marian", "MarianMTModel", vocabularies.marian, "MarianTokenizer", habits=MARIAN),
    "Marian of many languages": of("marian", "MarianMTModel", vocabularies.marian_of_many, "MarianTokenizer",
        habits=MARIAN, ask=dict(target_language="fr"), prefix=">>fr<< "),
    "2017": of("marian", "MarianMTModel", vocabularies.trained, "PreTrainedTokenizerFast",
        habits=dict(decoder_start_token_id=1), config=dict(activation_function="relu")),
    "GPT-2": of("gpt2", "GPT2LMHeadModel", vocabularies.gpt2, "GPT2Tokenizer", habits=dict(no_repeat_ngram_size=2)),
    "Llama": of("llama", "LlamaForCausalLM", vocabularies.llama, "LlamaTokenizer"),
    "GPT": of("openai-gpt", "OpenAIGPTLMHeadModel", vocabularies.gpt, "OpenAIGPTTokenizer"),
    "CTRL": of("ctrl", "CTRLLMHeadModel", vocabularies.ctrl, "CTRLTokenizer", habits=dict(repetition_penalty=1.2),
        ask=dict(control="Links"), prefix="Links "),
}  # fmt: skip


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request, tmp_path_factory):
    """A folder opened by both."""
    folder, place = FOLDERS[request.param], tmp_path_factory.mktemp("model")
    folder.vocabulary(place)
    settings = place / "tokenizer_config.json"
    said = json.loads(settings.read_text()) if settings.exists() else {"tokenizer_class": folder.tokenizer}
    settings.write_text(json.dumps(said))
    tokenizer = getattr(transformers, folder.tokenizer).from_pretrained(place, **folder.told)
    model = saved(folder, tokenizer, place)
    return folder, tokenizer, model, regard.load(place, dtype=torch.float64)


def saved(folder, tokenizer, place):
    """A random model, saved with its generation_config. It is not opened again: transformers would make Marian's waves
    anew, in float32."""
    size = max(tokenizer.get_vocab().values()) + 1

    def number(value):
        named = {"last": size - 1} if isinstance(value, str) else {}
        return named.get(value, tokenizer.convert_tokens_to_ids(value)) if isinstance(value, str) else value

    habits = {key: number(value) for key, value in folder.habits.items()}
    if "bad_words_ids" in habits:
        habits["bad_words_ids"] = [[size - 1]]
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 3
    pad = size - 1 if folder.case.family == "marian" and "last" in folder.habits.values() else 1
    sizes = dict(vocab_size=size, pad_token_id=pad, eos_token_id=end) | folder.config
    model = oracle(Case(folder.case.family, folder.case.architecture, folder.case.sizes | sizes))
    ends = [end, *range(20, size - 60, 9)]
    model.generation_config = transformers.GenerationConfig(**habits, eos_token_id=ends, pad_token_id=pad)
    model.save_pretrained(place)
    return model


def theirs(pair, text, beams):
    """The best texts with their scores, and the text of the prompt, where it is repeated."""
    folder, tokenizer, model, _ = pair
    given = tokenizer(folder.prefix + text, return_tensors="pt").input_ids
    if folder.tokenizer == "PreTrainedTokenizerFast":
        assert given[0, -1] == tokenizer.eos_token_id
    scored = {} if beams == 1 else dict(num_return_sequences=beams)
    with torch.no_grad(), in_double(folder.case.family):
        output = model.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, num_beams=beams, max_new_tokens=LIMIT,
            return_dict_in_generate=True, output_scores=True, **scored,
        )  # fmt: skip
    begun = 1 if model.config.is_encoder_decoder else given.shape[1]
    rows = [until_end(row, begun, model.generation_config.eos_token_id) for row in output.sequences.tolist()]
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    scores = output.sequences_scores.tolist() if beams > 1 else [None] * len(texts)
    prompt = "" if model.config.is_encoder_decoder else tokenizer.decode(given[0], skip_special_tokens=True)
    return prompt, list(zip(texts, scores, strict=True))


def until_end(row, begun, ends):
    """What was written, without the padding behind it, which may be a word."""
    return row[: next((at + 1 for at in range(begun, len(row)) if row[at] in ends), len(row))]


@pytest.mark.parametrize("beams", [1, 4])
def test_the_same_texts(pair, beams):
    folder, _, network, model = pair
    write = model.translate if network.config.is_encoder_decoder else model.generate
    results = write(TEXTS, beam=beams, n_best=beams, limit=LIMIT, **folder.ask)
    for text, result in zip(TEXTS, results, strict=True):
        prompt, expected = theirs(pair, text, beams)
        mine = [(prompt + one.text, one.score) for one in (result, *result.alternatives)]
        expected = [(found, score) for found, score in expected if score is None or score > -1e8]
        assert [found for found, _ in mine] == [found for found, _ in expected]
        for (_, score), (_, their_score) in zip(mine, expected, strict=True):
            assert their_score is None or abs(score - their_score) < 1e-9


def test_what_nobody_asked_for_is_as_the_authors_have_it(pair):
    folder, _, network, model = pair
    write = model.translate if network.config.is_encoder_decoder else model.generate
    beam = folder.habits.get("num_beams", 1)
    assert write(TEXTS, limit=LIMIT, **folder.ask) == write(TEXTS, beam=beam, limit=LIMIT, **folder.ask)
