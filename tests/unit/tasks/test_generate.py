"""`model.generate`: prompts of every length, sampling, stopping."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import models, vocabularies
from unit.tasks.models import comparable

from regard.tasks.generate import GenerateOptions, Sampling

PROMPTS = vocabularies.sentences(30, seed=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small Llama with byte tokens."""
    return models.opened(models.continuing(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A small GPT-2 with 48 learned position embeddings."""
    return models.opened(models.continuing(tmp_path_factory.mktemp("gpt2"), "gpt2", vocabularies.gpt2))


def test_in_order_as_each_prompt_alone(model):
    results = model.generate(PROMPTS[:12], max_new_tokens=6)
    assert [comparable(result) for result in results] == [
        comparable(model.generate(prompt, max_new_tokens=6)) for prompt in PROMPTS[:12]
    ]


@settings(max_examples=10, deadline=None)
@given(prompt=st.text(alphabet="ab é東🙂.\n", max_size=10), seed=st.none() | st.integers(0, 3), beam=st.integers(1, 3))
def test_a_stream_is_the_text(model, prompt, seed, beam):
    sampling = None if seed is None else Sampling(seed=seed, temperature=1.5)
    options = dict(max_new_tokens=9, sampling=sampling, beam=None if sampling else beam)
    *parts, result = model.prepare("generate", **options).stream(prompt)
    assert "".join(parts) == result.text
    assert comparable(result) == comparable(model.generate(prompt, **options))


@pytest.mark.parametrize("name", ["model", "gpt2"])
@pytest.mark.parametrize("limit", [None, 5, 60])
def test_a_prompt_that_is_too_long_keeps_its_last_words(name, limit, request):
    """With max_new_tokens, Llama may generate beyond its context length, and GPT-2 cannot; no prompt is longer."""
    model = request.getfixturevalue(name)
    prompt = "dog " * 70
    ids = model.tokenizer.encode(prompt).ids
    result = model.generate(prompt, max_new_tokens=limit)
    assert result.truncated > 0
    encoded = model.prepare("generate", max_new_tokens=limit)._encode_prompt(prompt)
    assert encoded.truncated == result.truncated == len(ids) - len(encoded.tokens)
    assert len(encoded.tokens) + (24 if name == "model" and limit == 60 else result.max_new_tokens) <= 48
    assert encoded.tokens == ids[len(ids) - len(encoded.tokens) :]
    assert len(encoded.tokens) >= 24


def test_the_bos_token_survives_truncation(tmp_path):
    folder = models.continuing(tmp_path)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true}')
    model = models.opened(folder)
    encoded = model.prepare("generate")._encode_prompt("dog " * 70)
    assert encoded.tokens[0] == model.tokenizer.special_ids.bos
    assert model.tokenizer.special_ids.bos not in encoded.tokens[1:]
    assert len(encoded.tokens) == 24


def test_an_empty_prompt_is_the_bos_token(model, tmp_path):
    assert model.prepare("generate")._encode_prompt("").tokens == [model.tokenizer.special_ids.bos]
    assert model.generate("", max_new_tokens=3).stopped in ("end", "length")


def test_without_a_bos_token_an_empty_prompt_is_refused(gpt2):
    generator = gpt2.prepare("generate")
    generator.bos_token_id = None
    with pytest.raises(ValueError, match="no BOS token, so an empty prompt is not possible: give at least one word"):
        generator._encode_prompt("")


def test_an_eos_token_that_the_tokenizer_adds_is_not_part_of_the_prompt(tmp_path):
    """Tokenizers trained by regard append </s> to every text."""
    model = models.opened(models.continuing(tmp_path, vocabulary=vocabularies.trained))
    assert model.tokenizer.encode("the dog").ids[-1] == model.tokenizer.special_ids.eos
    assert model.prepare("generate")._encode_prompt("the dog").tokens == model.tokenizer.encode("the dog").ids[:-1]


def test_samples_depend_on_the_seed_and_the_prompt_alone(model):
    def samples(seed, prompts):
        results = model.generate(prompts, max_new_tokens=6, sampling=Sampling(seed=seed))
        return [result.text for result in results]

    assert samples(1, PROMPTS[:6]) == [samples(1, [prompt])[0] for prompt in PROMPTS[:6]]
    assert samples(1, PROMPTS[:6]) != samples(2, PROMPTS[:6])
    several = model.generate(PROMPTS[0], max_new_tokens=6, sampling=Sampling(seed=1), n_best=4)
    assert len({result.text for result in (several, *several.alternatives)}) > 1
    assert several.text == samples(1, [PROMPTS[0]])[0]


def test_sampling_from_one_token_is_greedy_search(model):
    greedy = model.generate(PROMPTS, max_new_tokens=5)
    for sampling in (Sampling(top_k=1), Sampling(top_p=0.0), Sampling(min_p=1.0), Sampling(temperature=1e-6)):
        sampled = model.generate(PROMPTS, max_new_tokens=5, sampling=sampling)
        assert [result.text for result in sampled] == [result.text for result in greedy]


def test_generation_ends_at_a_stop_string(model):
    plain = next(result for result in model.generate(PROMPTS, max_new_tokens=12) if len(result.text) > 8)
    prompt = PROMPTS[model.generate(PROMPTS, max_new_tokens=12).index(plain)]
    stop = plain.text[2:4]
    result = model.generate(prompt, max_new_tokens=12, stop=[stop])
    assert result.stopped == "text"
    assert plain.text.startswith(result.text)
    assert stop in result.text
    assert len(result.tokens) < len(plain.tokens)
    never = model.generate(prompt, max_new_tokens=12, stop=["this never comes"])
    assert (never.text, never.stopped) == (plain.text, plain.stopped)


def test_repetition_stops_generation_only_on_request(tmp_path):
    """With all weights zero, all logits are equal and greedy search always chooses the first token."""
    model = models.opened(models.continuing(tmp_path))
    for value in model.network.parameters():
        value.detach().zero_()
    endless = model.generate(PROMPTS[0], max_new_tokens=20)
    ended = model.generate(PROMPTS[0], max_new_tokens=20, stop_on_repetition=True)
    assert (endless.stopped, len(endless.tokens)) == ("length", 20)
    assert (ended.stopped, len(ended.tokens)) == ("repeat", 4)


def test_a_control_code_is_required(tmp_path):
    from regard.tasks import generation_config
    from regard.tasks.generator import Generator
    from regard.tokenization.tokenizer_loader import load_tokenizer

    vocabularies.ctrl(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "ctrl"}')
    tokenizer = load_tokenizer(tmp_path)
    network = models.opened(models.continuing(tmp_path / "llama")).network
    config = generation_config.read_generation_config(tmp_path, tokenizer)

    def prompt(text, control=None):
        return Generator(network, tokenizer, config, GenerateOptions(control=control))._encode_prompt(text).tokens

    with pytest.raises(ValueError, match=r"control code.*available: Books, Links"):
        prompt("the dog")
    with pytest.raises(ValueError, match="Link"):
        prompt("the dog", "Lnks")
    assert prompt("the dog", "Links") == prompt("Links the dog")
    assert prompt("", "Books") == [tokenizer.control_codes["Books"]]


def test_sampling_and_beam_search_cannot_be_combined(model):
    with pytest.raises(ValueError, match="sampling and beam search cannot be combined"):
        model.generate("a", sampling=Sampling(), beam=2)
    with pytest.raises(ValueError, match="control code 'x'"):
        model.generate("a", control="x")


def test_an_encoder_decoder_writes_a_text_for_a_source(tmp_path):
    model = models.opened(models.translating(tmp_path))
    texts = ["a man", "the small dog runs"]
    expected = [result.text for result in model.translate(texts, max_new_tokens=9)]
    assert [result.text for result in model.generate(texts, max_new_tokens=9)] == expected
    *pieces, result = model.prepare("generate", max_new_tokens=9).stream(texts[1])
    assert "".join(pieces) == result.text == expected[1]
    sampled = [model.generate("a man", max_new_tokens=9, sampling=Sampling(seed=seed)).text for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    beams = model.generate("a man", max_new_tokens=9, beam=3, n_best=2)
    best = model.translate("a man", max_new_tokens=9, beam=3, n_best=2)
    assert [each.text for each in (beams, *beams.alternatives)] == [each.text for each in (best, *best.alternatives)]
    with pytest.raises(ValueError, match="this one reads tokens and predicts the next token: use `generate`"):
        models.opened(models.continuing(tmp_path / "llama")).translate("a man")
