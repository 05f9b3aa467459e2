"""`model.generate`: prompts of every length, chance, stops."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import models, vocabularies
from unit.tasks.models import said

from regard.tasks.generate import Chance, Wish

PROMPTS = vocabularies.sentences(30, seed=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small Llama: its bytes are tokens."""
    return models.opened(models.continuing(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A small GPT-2, which cannot read beyond 48 tokens."""
    return models.opened(models.continuing(tmp_path_factory.mktemp("gpt2"), "gpt2", vocabularies.gpt2))


def test_in_order_as_each_prompt_alone(model):
    results = model.generate(PROMPTS[:12], limit=6)
    assert [said(result) for result in results] == [said(model.generate(one, limit=6)[0]) for one in PROMPTS[:12]]


@settings(max_examples=10, deadline=None)
@given(prompt=st.text(alphabet="ab é東🙂.\n", max_size=10), seed=st.none() | st.integers(0, 3), beam=st.integers(1, 3))
def test_a_stream_is_the_text(model, prompt, seed, beam):
    chance = None if seed is None else Chance(seed=seed, temperature=1.5)
    wish = dict(limit=9, chance=chance, beam=None if chance else beam)
    *pieces, whole = model.generator(Wish(**wish)).stream(prompt)
    assert "".join(pieces) == whole.text
    assert said(whole) == said(model.generate(prompt, **wish)[0])


@pytest.mark.parametrize("name", ["model", "learnt"])
@pytest.mark.parametrize("limit", [None, 5, 60])
def test_a_prompt_that_is_too_long_keeps_its_latest_words_and_says_so(name, limit, request):
    """Llama without a limit is kept to what it was made for; with one it may read on, which GPT-2 cannot."""
    model = request.getfixturevalue(name)
    prompt = "dog " * 70
    whole = model.tokenizer.encode(prompt).ids
    result = model.generate(prompt, limit=limit)[0]
    if name == "model" and limit is not None:
        assert result.truncated == 0
        return
    assert result.truncated > 0
    read = model.generator(Wish(limit=limit))._prompt(prompt)
    assert read.cut == result.truncated == len(whole) - len(read.tokens)
    assert len(read.tokens) + result.limit <= 48
    assert read.tokens == whole[len(whole) - len(read.tokens) :]
    assert len(read.tokens) >= 24


def test_what_begins_a_text_survives_cutting(tmp_path):
    folder = models.continuing(tmp_path)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true}')
    model = models.opened(folder)
    read = model.generator(Wish())._prompt("dog " * 70)
    assert read.tokens[0] == model.tokenizer.special.begin
    assert model.tokenizer.special.begin not in read.tokens[1:]
    assert len(read.tokens) == 24


def test_an_empty_prompt_begins_a_text_if_there_is_a_token_for_that(model, tmp_path):
    assert model.generator(Wish())._prompt("").tokens == [model.tokenizer.special.begin]
    assert model.generate("", limit=3)[0].stopped in ("end", "length")


def test_without_a_token_that_begins_a_text_a_prompt_is_needed(learnt):
    generator = learnt.generator(Wish())
    generator.first = None
    with pytest.raises(ValueError, match="needs a prompt of at least one word"):
        generator._prompt("")


def test_an_end_that_the_tokenizer_adds_is_not_part_of_a_prompt(tmp_path):
    """Our own tokenizers end every text with </s>; a prompt that ends cannot be continued."""
    model = models.opened(models.continuing(tmp_path, vocabulary=vocabularies.trained))
    assert model.tokenizer.encode("the dog").ids[-1] == model.tokenizer.special.end
    assert model.generator(Wish())._prompt("the dog").tokens == model.tokenizer.encode("the dog").ids[:-1]


def test_chance_follows_the_seed_and_the_text_alone(model):
    def by(seed, prompts):
        return [one.text for one in model.generate(prompts, limit=6, chance=Chance(seed=seed))]

    assert by(1, PROMPTS[:6]) == [by(1, prompt)[0] for prompt in PROMPTS[:6]]
    assert by(1, PROMPTS[:6]) != by(2, PROMPTS[:6])
    several = model.generate(PROMPTS[0], limit=6, chance=Chance(seed=1), n_best=4)[0]
    assert len({one.text for one in (several, *several.alternatives)}) > 1
    assert several.text == by(1, PROMPTS[0])[0]


def test_narrowed_chance_is_the_likeliest_token(model):
    greedy = model.generate(PROMPTS, limit=5)
    for chance in (Chance(top_k=1), Chance(top_p=0.0), Chance(min_p=1.0), Chance(temperature=1e-6)):
        assert [one.text for one in model.generate(PROMPTS, limit=5, chance=chance)] == [one.text for one in greedy]


def test_a_text_stops_where_it_is_told_to(model):
    plain = next(result for result in model.generate(PROMPTS, limit=12) if len(result.text) > 8)
    prompt = PROMPTS[model.generate(PROMPTS, limit=12).index(plain)]
    stop = plain.text[2:4]
    result = model.generate(prompt, limit=12, stop=[stop])[0]
    assert result.stopped == "text"
    assert plain.text.startswith(result.text)
    assert stop in result.text
    assert len(result.tokens) < len(plain.tokens)
    never = model.generate(prompt, limit=12, stop=["this never comes"])[0]
    assert (never.text, never.stopped) == (plain.text, plain.stopped)


def test_loops_end_only_for_those_who_ask(tmp_path):
    """A network of nothing finds all tokens equally likely, and always writes the first."""
    model = models.opened(models.continuing(tmp_path))
    for value in model.network.parameters():
        value.detach().zero_()
    endless = model.generate(PROMPTS[0], limit=20)[0]
    ended = model.generate(PROMPTS[0], limit=20, end_loops=True)[0]
    assert (endless.stopped, len(endless.tokens)) == ("length", 20)
    assert (ended.stopped, len(ended.tokens)) == ("repeat", 4)


def test_a_control_code_is_asked_for(tmp_path):
    from regard.tasks import generation_config
    from regard.tasks.generate import Generator
    from regard.tokenization.tokenizer_loader import load

    vocabularies.ctrl(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "ctrl"}')
    tokenizer = load(tmp_path)
    network = models.opened(models.continuing(tmp_path / "llama")).network
    said = generation_config.read(tmp_path, tokenizer)

    def prompt(text, control=None):
        return Generator(network, tokenizer, said, Wish(control=control))._prompt(text).tokens

    with pytest.raises(ValueError, match=r"control code.*knows Books, Links"):
        prompt("the dog")
    with pytest.raises(ValueError, match="Link"):
        prompt("the dog", "Lnks")
    assert prompt("the dog", "Links") == prompt("Links the dog")
    assert prompt("", "Books") == [tokenizer.controls["Books"]]


def test_chance_and_beams_do_not_go_together(model):
    with pytest.raises(ValueError, match="not by both"):
        model.generate("a", chance=Chance(), beam=2)
    with pytest.raises(ValueError, match="control code 'x'"):
        model.generate("a", control="x")


def test_texts_go_to_a_network_that_can_write(tmp_path):
    model = models.opened(models.translating(tmp_path))
    with pytest.raises(ValueError, match="`translate` writes with this one"):
        model.generate("a man")
