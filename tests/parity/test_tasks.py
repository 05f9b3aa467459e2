"""From text to text as in transformers: the same folder, its tokenizer, its generation_config, in float64.

transformers gets each text alone, regard gets all of them in one batch. Every network is random, with so many EOS
tokens that some outputs end before the maximum length.
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
MAX_NEW_TOKENS = 10
PREFIXES = {
    "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4},
    "summarization": {"prefix": "summarize: ", "max_length": 200},
}


@dataclass(frozen=True)
class Folder:
    """A model folder in a published layout."""

    case: Case
    vocabulary: object
    tokenizer: str
    generation_config: dict = field(default_factory=dict)
    """The values of generation_config.json besides the EOS tokens."""
    options: dict = field(default_factory=dict)
    """Keyword arguments of `model.translate` or `model.generate`."""
    prefix: str = ""
    """Text before the source, for transformers."""
    config: dict = field(default_factory=dict)
    tokenizer_options: dict = field(default_factory=dict)
    """Keyword arguments of transformers' tokenizer."""


def make_folder(family, architecture, vocabulary, tokenizer, **fields):
    sizes = SIZES[family] | {key: 60 for key in ("max_position_embeddings", "n_positions") if key in SIZES[family]}
    sizes |= {"num_layers": 3} if family == "t5" else {}  # transformers' cache has as many layers as the encoder
    return Folder(Case(family, architecture, sizes), vocabulary, tokenizer, **fields)


MARIAN = dict(forced_eos_token_id=0, renormalize_logits=True, bad_words_ids=[["last"]], decoder_start_token_id="last")
FOLDERS = {
    "BART": make_folder("bart", "BartForConditionalGeneration", vocabularies.roberta, "BartTokenizer",
        generation_config=dict(decoder_start_token_id=2, forced_bos_token_id=0, forced_eos_token_id=2, min_length=4,
            no_repeat_ngram_size=3, early_stopping=True, length_penalty=2.0, num_beams=4)),
    "mBART": make_folder("mbart", "MBartForConditionalGeneration", vocabularies.mbart, "MBartTokenizer",
        generation_config=dict(decoder_start_token_id="ro_RO"),
        options=dict(source_language="en_XX", target_language="ro"),
        tokenizer_options=dict(src_lang="en_XX", tgt_lang="ro_RO")),
    "mBART-50": make_folder("mbart", "MBartForConditionalGeneration", vocabularies.mbart, "MBart50Tokenizer",
        generation_config=dict(decoder_start_token_id=2, forced_bos_token_id="de_DE", forced_eos_token_id=2),
        options=dict(source_language="fr", target_language="de_DE"),
        tokenizer_options=dict(src_lang="fr_XX", tgt_lang="de_DE")),
    "T5": make_folder("t5", "T5ForConditionalGeneration", vocabularies.t5, "T5Tokenizer",
        generation_config=dict(decoder_start_token_id=0, suppress_tokens=[2]),
        config=dict(task_specific_params=PREFIXES),
        options=dict(source_language="en", target_language="de"), prefix="translate English to German: "),
    "T5, a prefix by name": make_folder("t5", "T5ForConditionalGeneration", vocabularies.t5, "T5Tokenizer",
        generation_config=dict(decoder_start_token_id=0, repetition_penalty=1.3),
        config=dict(task_specific_params=PREFIXES),
        options=dict(prefix="summarization"), prefix="summarize: "),
    "Marian": make_folder("marian", "MarianMTModel", vocabularies.marian, "MarianTokenizer", generation_config=MARIAN),
    "Marian of many languages": make_folder("marian", "MarianMTModel", vocabularies.marian_of_many, "MarianTokenizer",
        generation_config=MARIAN, options=dict(target_language="fr"), prefix=">>fr<< "),
    "2017": make_folder("marian", "MarianMTModel", vocabularies.trained, "PreTrainedTokenizerFast",
        generation_config=dict(decoder_start_token_id=1), config=dict(activation_function="relu")),
    "GPT-2": make_folder("gpt2", "GPT2LMHeadModel", vocabularies.gpt2, "GPT2Tokenizer",
        generation_config=dict(no_repeat_ngram_size=2)),
    "Llama": make_folder("llama", "LlamaForCausalLM", vocabularies.llama, "LlamaTokenizer"),
    "GPT": make_folder("openai-gpt", "OpenAIGPTLMHeadModel", vocabularies.gpt, "OpenAIGPTTokenizer"),
    "CTRL": make_folder("ctrl", "CTRLLMHeadModel", vocabularies.ctrl, "CTRLTokenizer",
        generation_config=dict(repetition_penalty=1.2),
        options=dict(control="Links"), prefix="Links "),
}  # fmt: skip


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request, tmp_path_factory):
    """A folder loaded by both libraries."""
    folder, path = FOLDERS[request.param], tmp_path_factory.mktemp("model")
    folder.vocabulary(path)
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text()) if file.exists() else {"tokenizer_class": folder.tokenizer}
    file.write_text(json.dumps(config))
    tokenizer = getattr(transformers, folder.tokenizer).from_pretrained(path, **folder.tokenizer_options)
    model = save_model(folder, tokenizer, path)
    return folder, tokenizer, model, regard.load(path, precision="float64")


def save_model(folder, tokenizer, path):
    """Save a random model with its generation_config, and return it.

    It is not loaded again, because transformers would recompute Marian's sinusoidal positions in float32.
    """
    size = max(tokenizer.get_vocab().values()) + 1

    def token_id(value):
        named = {"last": size - 1} if isinstance(value, str) else {}
        return named.get(value, tokenizer.convert_tokens_to_ids(value)) if isinstance(value, str) else value

    config = {key: token_id(value) for key, value in folder.generation_config.items()}
    if "bad_words_ids" in config:
        config["bad_words_ids"] = [[size - 1]]
    eos = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 3
    pad = size - 1 if folder.case.family == "marian" and "last" in folder.generation_config.values() else 1
    sizes = dict(vocab_size=size, pad_token_id=pad, eos_token_id=eos) | folder.config
    model = oracle(Case(folder.case.family, folder.case.architecture, folder.case.sizes | sizes))
    eos_token_ids = [eos, *range(20, size - 60, 9)]
    model.generation_config = transformers.GenerationConfig(**config, eos_token_id=eos_token_ids, pad_token_id=pad)
    model.save_pretrained(path)
    return model


def their_results(pair, text, beams):
    """The prompt, if the output repeats it, and the best texts with their scores."""
    folder, tokenizer, model, _ = pair
    ids = tokenizer(folder.prefix + text, return_tensors="pt").input_ids
    if folder.tokenizer == "PreTrainedTokenizerFast":
        assert ids[0, -1] == tokenizer.eos_token_id
    options = {} if beams == 1 else dict(num_return_sequences=beams)
    with torch.no_grad(), in_double(folder.case.family):
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=beams, max_new_tokens=MAX_NEW_TOKENS,
            return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip
    start = 1 if model.config.is_encoder_decoder else ids.shape[1]
    rows = [until_eos(row, start, model.generation_config.eos_token_id) for row in output.sequences.tolist()]
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    scores = output.sequences_scores.tolist() if beams > 1 else [None] * len(texts)
    prompt = "" if model.config.is_encoder_decoder else tokenizer.decode(ids[0], skip_special_tokens=True)
    return prompt, list(zip(texts, scores, strict=True))


def until_eos(row, start, eos_token_ids):
    """The tokens up to the EOS token, without the padding after it, whose token may have text."""
    ends = (position + 1 for position in range(start, len(row)) if row[position] in eos_token_ids)
    return row[: next(ends, len(row))]


@pytest.mark.parametrize("beams", [1, 4])
def test_the_same_texts(pair, beams):
    folder, _, network, model = pair
    run = model.translate if network.config.is_encoder_decoder else model.generate
    results = run(TEXTS, beam=beams, n_best=beams, max_new_tokens=MAX_NEW_TOKENS, **folder.options)
    for text, result in zip(TEXTS, results, strict=True):
        prompt, expected = their_results(pair, text, beams)
        ours = [(prompt + each.text, each.score) for each in (result, *result.alternatives)]
        expected = [(their_text, score) for their_text, score in expected if score is None or score > -1e8]
        assert [our_text for our_text, _ in ours] == [their_text for their_text, _ in expected]
        for (_, score), (_, their_score) in zip(ours, expected, strict=True):
            assert their_score is None or abs(score - their_score) < 1e-9


def test_the_default_beam_is_that_of_the_generation_config(pair):
    folder, _, network, model = pair
    run = model.translate if network.config.is_encoder_decoder else model.generate
    beam = folder.generation_config.get("num_beams", 1)
    options = dict(max_new_tokens=MAX_NEW_TOKENS) | folder.options
    assert run(TEXTS, **options) == run(TEXTS, beam=beam, **options)
