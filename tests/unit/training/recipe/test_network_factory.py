"""Which networks each task accepts, by what they read and predict."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from unit.generation.networks import XLNET
from unit.training.recipes import load_recipe, train
from unit.training.run.test_end_to_end import measures, sentences, write
from unit.training.tiny_data import batch, ids, write_recipe

from regard.families.registry import FAMILIES
from regard.tasks.registry import TASKS
from regard.training.objectives.classify import SequenceClassification
from regard.training.recipe.network_factory import NetworkRequirements, _check_sizes, check_network
from regard.training.recipe.preflight import check_recipe
from regard.training.recipe.schema import Recipe
from regard.transformer.network import build, build_on_meta

ACCEPTED = {
    "bert": {"BertForMaskedLM": ["fill"], "BertForPreTraining": [], "BertForTokenClassification": ["tag"]},
    "electra": {"ElectraForPreTraining": [], "ElectraForQuestionAnswering": ["answer"]},
    "gpt2": {
        "GPT2LMHeadModel": ["answer", "generate"],
        "GPT2DoubleHeadsModel": [],
        "GPT2ForSequenceClassification": ["classify"],
    },
    "transfo-xl": {"TransfoXLLMHeadModel": ["answer", "generate"]},
    "xlnet": {
        "XLNetLMHeadModel": [],
        "XLNetForSequenceClassification": ["classify"],
        "XLNetForTokenClassification": ["tag"],
        "XLNetForQuestionAnswering": [],
    },
    "bart": {"BartForConditionalGeneration": ["answer", "summarize", "translate"], "BartForSequenceClassification": []},
    "vit": {"ViTForImageClassification": []},
    "clip": {"CLIPModel": []},
    "t5": {"T5Model": []},
}


def accepts(network, task):
    """Whether a network can be trained for a task with any of its objectives."""
    return any(accepts_with(network, task, kind) for kind in task.objectives)


def accepts_with(network, task, kind):
    objective = SimpleNamespace(kind=kind, separator=",", format="", no_answer="")
    try:
        check_network(network, Recipe.model_construct(task=task.for_objective(task, objective)))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("family", "name"), [(family, name) for family in ACCEPTED for name in ACCEPTED[family]])
def test_the_tasks_of_a_network(family, name):
    sizes = {"vocab_size": 50, "cutoffs": []} if family == "transfo-xl" else {}
    network = build_on_meta(FAMILIES[family].read_config(sizes, name)[0])
    trainable = [task for task in TASKS.values() if task.objectives]
    assert sorted(task.name for task in trainable if accepts(network, task)) == ACCEPTED[family][name]


def test_the_error_says_what_was_expected_and_found(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path), {"network": {"preset": "t5-small"}, "tokenizer.shared": True})
    check_recipe(recipe)
    network = build_on_meta(FAMILIES["gpt2"].read_config({}, "GPT2DoubleHeadsModel")[0])
    message = (
        r"task 'translate' needs a network that reads a source and a target and predicts the next token only; found "
        r"one that reads tokens and predicts a label and the next token: choose another \[network\]"
    )
    with pytest.raises(ValueError, match=message):
        check_network(network, recipe)


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        (NetworkRequirements(41, 40, False, 0, 0), "the tokenizer has 41 tokens, but the network in folder only 40"),
        (NetworkRequirements(40, 31, False, 0, 0), "the tokenizer has 31 tokens, but the network in folder only 30"),
        (
            NetworkRequirements(40, 30, False, 0, 2),
            "the data has 2 labels, but the head of the network in folder has 0",
        ),
    ],
)
def test_sizes_that_do_not_fit_a_loaded_network(requirements, message):
    values = {"vocab_size": 40, "decoder_vocab_size": 30, "share_encoder_decoder_embeddings": False}
    network = build_on_meta(FAMILIES["marian"].read_config({**values, "pad_token_id": 0}, "MarianMTModel")[0])
    _check_sizes(network, Path("folder"), NetworkRequirements(40, 30, False, 0, 0))
    with pytest.raises(ValueError, match=message):
        _check_sizes(network, Path("folder"), requirements)


def test_xlnet_reads_the_segments_of_a_pair_of_texts():
    network = build(FAMILIES["xlnet"].read_config({**XLNET, "num_labels": 3}, "XLNetForSequenceClassification")[0])
    for value in network.parameters():
        torch.nn.init.normal_(value, std=0.3)
    columns = {"tokens": ids([5, 6, 7, 8], [9, 10, 11]), "label": ids([1], [2])}
    segments = [ids([0] * 4, [0] * 3), ids([0, 0, 1, 1], [0, 1, 1])]
    objective, network = SequenceClassification(), network.eval()
    plain = objective.loss(network, batch(**columns)).sum
    one_text, pair = (objective.loss(network, batch(**columns, segments=column)).sum for column in segments)
    torch.testing.assert_close(one_text, plain)  # the same bias for all keys
    assert not torch.allclose(pair, plain, atol=1e-4)


def test_xlnet_learns_to_classify(tmp_path):
    recipe = 'task = "classify"\n[data]\ntrain = ["t.tsv"]\nvalid = ["t.tsv"]\ncolumns = { text = "sentence" }\n'
    recipe += (
        '[tokenizer]\nkind = "words"\nsize = 40\n[network]\nfamily = "xlnet"\nlayers = 1\nmodel_dim = 16\nheads = 2\n'
    )
    rows = [f"{' '.join(row)}\t{'animal' if {*row} & {'dog', 'cat'} else 'other'}\n" for row in sentences(150, 1)]
    run = train(write(tmp_path, recipe, steps=60, t_tsv="sentence\tlabel\n" + "".join(rows)), output=tmp_path / "run")
    assert measures(run.parent)[-1]["valid_accuracy"] > 0.9
