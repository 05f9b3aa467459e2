"""The keyword arguments of `model.translate` and `model.generate`, and what a string and a list of strings give."""

from dataclasses import fields

import pytest
from unit.tasks import models
from unit.tasks.models import comparable

from regard.tasks.answer import AnswerKeywords, AnswerOptions
from regard.tasks.classify import ClassifyKeywords, ClassifyOptions
from regard.tasks.fill import FillKeywords, FillOptions
from regard.tasks.generate import GenerateKeywords, GenerateOptions, Generation, Sampling
from regard.tasks.summarize import SummarizeKeywords, SummarizeOptions
from regard.tasks.tag import TagKeywords, TagOptions
from regard.tasks.translate import TranslateKeywords, TranslateOptions, Translation

TEXTS = ["the small dog", "a man"]


@pytest.fixture(scope="module", params=["translate", "generate"])
def task(request, tmp_path_factory):
    """The method of the model, its result type, and the method of the `Translator` or `Generator`."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "translate":
        model = models.opened(models.translating(folder))
        return model.translate, Translation, model.prepare("translate").run
    model = models.opened(models.continuing(folder))
    return model.generate, Generation, model.prepare("generate").run


@pytest.mark.parametrize(
    ("keywords", "options", "aliases"),
    [
        (TranslateKeywords, TranslateOptions, {"num_beams"}),
        (GenerateKeywords, GenerateOptions, {"num_beams", *(field.name for field in fields(Sampling))}),
        (ClassifyKeywords, ClassifyOptions, set()),
        (SummarizeKeywords, SummarizeOptions, {"num_beams"}),
        (TagKeywords, TagOptions, set()),
        (AnswerKeywords, AnswerOptions, {"num_beams"}),
        (FillKeywords, FillOptions, set()),
    ],
)
def test_the_keywords_are_the_fields_of_the_options(keywords, options, aliases):
    assert set(keywords.__annotations__) == {field.name for field in fields(options)} | aliases


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_a_string_gives_one_result_and_a_list_or_iterator_gives_a_list(task, kind):
    run, result_type, _ = task
    single = [run(text, max_new_tokens=4) for text in TEXTS]
    assert all(type(result) is result_type for result in single)
    results = run(kind(TEXTS), max_new_tokens=4)
    assert isinstance(results, list)
    assert [comparable(result) for result in results] == [comparable(result) for result in single]
    assert [comparable(result) for result in run(kind(TEXTS[:1]), max_new_tokens=4)] == [comparable(single[0])]
    assert run(kind([]), max_new_tokens=4) == []


def test_num_beams_is_beam(task):
    run, _, _ = task
    results = [run(TEXTS[0], max_new_tokens=4, n_best=3, **{name: 3}) for name in ("beam", "num_beams")]
    assert comparable(results[0]) == comparable(results[1])
    assert len(results[1].alternatives) == 2
    with pytest.raises(ValueError, match="beam and num_beams are the same option"):
        run(TEXTS[0], beam=3, num_beams=3)


def test_iterating_over_a_single_string_is_refused(task):
    _, _, run_iterable = task
    with pytest.raises(ValueError, match=r"found a single string: pass \[text\]"):
        next(run_iterable(TEXTS[0]))


def test_sampling_can_be_given_by_its_own_keywords(tmp_path):
    model = models.opened(models.continuing(tmp_path))
    direct = model.generate(TEXTS, temperature=1.5, top_k=9, seed=3, max_new_tokens=5)
    nested = model.generate(TEXTS, sampling=Sampling(temperature=1.5, top_k=9, seed=3), max_new_tokens=5)
    assert [comparable(result) for result in direct] == [comparable(result) for result in nested]
    with pytest.raises(ValueError, match="sampling and top_p are the same option"):
        model.generate("a", sampling=Sampling(), top_p=0.5)


def test_temperature_zero_is_greedy(tmp_path):
    model = models.opened(models.continuing(tmp_path))
    greedy = model.generate(TEXTS, max_new_tokens=5)
    cold = model.generate(TEXTS, temperature=0.0, seed=5, max_new_tokens=5)
    assert [comparable(result) for result in cold] == [comparable(result) for result in greedy]
    with pytest.raises(ValueError, match="temperature is -1: expected 0"):
        Sampling(temperature=-1.0)


def test_a_seed_is_drawn_once_for_the_call(tmp_path):
    """A text is the same alone and in a batch under the drawn seed."""
    model = models.opened(models.continuing(tmp_path))
    runner = model.prepare("generate", temperature=2.0, max_new_tokens=6)
    seed = runner.options.sampling.seed
    batch = [comparable(result) for result in runner.run(TEXTS)]
    assert batch == [comparable(model.generate(text, temperature=2.0, seed=seed, max_new_tokens=6)) for text in TEXTS]
    assert model.prepare("generate", temperature=2.0).options.sampling.seed != seed
