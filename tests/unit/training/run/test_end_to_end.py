"""Every task from its recipe to a model folder."""

import json
import random

import pytest
import torch
import transformers
from safetensors.torch import load_file
from unit.training.recipes import load_recipe, train
from unit.training.tiny_data import RECIPE, WORDS, write_recipe

import regard
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.modules.dropout import Dropout
from regard.training.run import run as running
from regard.training.run.reporter import LineReporter
from regard.training.run.run_dir import RunDir, read_metrics

ENCODER = """
[tokenizer]
kind = "wordpiece"
size = 80

[network]
family = "bert"
layers = 1
model_dim = 16
heads = 2
max_length = 24
"""
TRAINING = """
[training]
batch_tokens = 128
steps = {steps}
optimizer = {{ kind = "adamw", lr = 1e-2 }}
schedule = {{ kind = "constant", warmup_steps = 5 }}
evaluate_every = 20
save_every = 20
"""


def sentences(count, seed):
    draw = random.Random(seed)
    return [[draw.choice(WORDS) for _ in range(draw.randint(2, 8))] for _ in range(count)]


def write(folder, text, steps=40, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    path = folder / "recipe.toml"
    path.write_text(text + TRAINING.format(steps=steps))
    return path


def measures(run):
    return [line for line in read_metrics(RunDir(run).metrics) if "valid_loss" in line]


def learns(run, measure, least):
    """The validation metric rises above chance, and the loss falls."""
    found = measures(run)
    assert found[-1]["valid_loss"] < found[0]["valid_loss"] or found[-1][measure] >= least
    assert found[-1][measure] >= least


def lines(rows):
    return "".join(" ".join(row) + "\n" for row in rows)


def test_generate(tmp_path):
    """A language in which each word determines the next."""
    draw = random.Random(1)
    begins = [(draw.randrange(12), draw.randint(3, 12)) for _ in range(120)]
    texts = [" ".join((WORDS * 2)[begin : begin + count]) + "\n" for begin, count in begins]
    head = 'task = "generate"\n[data]\ntrain = ["t.txt"]\nvalid = ["v.txt"]\nmax_length = 8\n'
    rest = (
        '[tokenizer]\nkind = "words"\nsize = 20\n'
        + '[network]\nfamily = "gpt2"\nlayers = 1\nmodel_dim = 32\nmax_length = 16\n'
    )
    path = write(tmp_path, head + rest, steps=60, t_txt="".join(texts[:100]), v_txt="".join(texts[100:]))
    best = train(path, output=tmp_path / "run")
    learns(tmp_path / "run", "valid_accuracy", 0.7)
    network, tokenizer = regard.load(best).network.eval(), load_tokenizer(best)
    row = torch.tensor([[tokenizer.token_to_id("green"), tokenizer.token_to_id("dog")]])
    assert int(network(row).logits[0, -1].argmax()) == tokenizer.token_to_id("cat")


def test_fill_reads_what_stands_beside_a_hidden_word(tmp_path):
    """Words in pairs, a7 b7: a row's words tell what may be missing, and only the neighbour what is missing where."""
    draw = random.Random(1)
    rows = [[f"{side}{number}" for number in draw.sample(range(20), 8) for side in "ab"] for _ in range(600)]
    head = 'task = "fill"\n[data]\ntrain = ["t.txt"]\nvalid = ["v.txt"]\nmax_length = 20\n'
    rest = (
        '[tokenizer]\nkind = "words"\nsize = 60\n'
        + '[network]\nfamily = "roformer"\nlayers = 2\nmodel_dim = 64\nheads = 2\ndropout = 0.0\nmax_length = 20\n'
    )
    path = write(tmp_path, head + rest, steps=100, t_txt=lines(rows[:500]), v_txt=lines(rows[500:]))
    best = train(path, {"training.batch_tokens": 1024}, output=tmp_path / "run")
    learns(tmp_path / "run", "valid_accuracy", 0.75)
    network, tokenizer = regard.load(best).network.eval(), load_tokenizer(best)
    assert network.max_length == 20  # the maximum length for fine-tuning
    words = "a3 b3 a11 <mask> a5 b5 <mask> b9 a6 b6".split()
    guessed = network(torch.tensor([[tokenizer.token_to_id(word) for word in words]])).logits[0].argmax(dim=-1)
    assert [int(guessed[place]) for place in (3, 6)] == [tokenizer.token_to_id("b11"), tokenizer.token_to_id("a9")]


def test_fill_then_classify_with_what_was_learnt(tmp_path):
    """Pretraining, then fine-tuning from its folder: the head is new, everything else is loaded."""
    train_rows, valid_rows = sentences(80, 1), sentences(20, 2)
    head = 'task = "fill"\n[data]\ntrain = ["t.txt"]\nvalid = ["v.txt"]\nmax_length = 16\n'
    path = write(
        tmp_path / "fill",
        head + ENCODER + "[objective]\nwhole_word_masking = true\n",
        t_txt=lines(train_rows),
        v_txt=lines(valid_rows),
    )
    best = train(path, {"training.steps": 20}, output=tmp_path / "fill" / "run")
    assert json.loads((best / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]

    def table(rows):
        return "sentence\tlabel\n" + "".join(
            f"{' '.join(row)}\t{'animal' if {*row} & {'dog', 'cat'} else 'other'}\n" for row in rows
        )

    head = 'task = "classify"\n[data]\ntrain = ["t.tsv"]\nvalid = ["v.tsv"]\ncolumns = { text = "sentence" }\n'
    path = write(
        tmp_path / "classify",
        head + f'[network]\nload = "{best}"\n',
        steps=80,
        t_tsv=table(sentences(200, 1)),
        v_tsv=table(sentences(60, 3)),
    )
    tuned = train(path, {"training.best_metric": "accuracy"}, output=tmp_path / "classify" / "run")
    learns(tmp_path / "classify" / "run", "valid_accuracy", 0.9)
    config = json.loads((tuned / "config.json").read_text())
    assert config["id2label"] == {"0": "animal", "1": "other"}
    assert json.loads((tuned / "regard.json").read_text())["labels"] == ["animal", "other"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tuned).eval()
    ours, tokenizer = regard.load(tuned).network.eval(), load_tokenizer(tuned)
    row = torch.tensor([tokenizer.encode("dog sings far").ids])
    torch.testing.assert_close(ours(row).logits, theirs(row).logits, rtol=1e-4, atol=1e-5)
    assert int(ours(row).logits.argmax()) == 0


def test_tag(tmp_path):
    def conll(rows):
        tag = {"dog": "B-animal", "cat": "B-animal", "far": "B-place", "near": "B-place"}
        return "\n".join("".join(f"{word} {tag.get(word, 'O')}\n" for word in row) for row in rows)

    head = 'task = "tag"\n[data]\ntrain = ["t.conll"]\nvalid = ["v.conll"]\n'
    path = write(tmp_path, head + ENCODER, t_conll=conll(sentences(150, 1)), v_conll=conll(sentences(30, 2)))
    best = train(path, output=tmp_path / "run")
    learns(tmp_path / "run", "valid_accuracy", 0.95)
    assert json.loads((best / "regard.json").read_text())["labels"] == ["O", "B-animal", "B-place"]


def test_answer(tmp_path):
    """The answer to `where` is the word `far` or `near`, which occurs once in each text."""

    def squad(count, seed):
        draw, paragraphs = random.Random(seed), []
        for number in range(count):
            others = [word for word in WORDS if word not in ("far", "near")]
            row = [draw.choice(others) for _ in range(draw.randint(2, 6))]
            row.insert(draw.randint(0, len(row)), draw.choice(["far", "near"]))
            text = " ".join(row)
            answer = "far" if "far" in row else "near"
            found = {"text": answer, "answer_start": text.index(answer)}
            paragraphs.append({"context": text, "qas": [{"id": str(number), "question": "now", "answers": [found]}]})
        return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})

    head = 'task = "answer"\n[data]\ntrain = ["t.json"]\nvalid = ["v.json"]\nmax_length = 16\n'
    path = write(tmp_path, head + ENCODER, steps=80, t_json=squad(200, 1), v_json=squad(40, 2))
    train(path, output=tmp_path / "run")
    learns(tmp_path / "run", "valid_accuracy", 0.9)


def test_distill(tmp_path):
    """A student with alpha = 1 learns the distribution of the teacher."""
    recipe = write_recipe(tmp_path)
    taught = train(recipe, {"training.steps": 30}, output=tmp_path / "teacher")
    change = {"training.steps": 30, "tokenizer": {"load": str(taught)}, "network.layers": [1, 2]}
    change["objective.distillation"] = {"load": str(taught), "share": 1.0, "temperature": 1.0}
    train(recipe, change, output=tmp_path / "student")
    losses = [line["loss"] for line in read_metrics(RunDir(tmp_path / "student").metrics) if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]  # a divergence, which could reach 0


def test_vocabularies_of_their_own(tmp_path):
    recipe = write_recipe(tmp_path)
    (tmp_path / "train.b").write_text((tmp_path / "train.b").read_text().upper().replace("DOG", "HUND UND"))
    (tmp_path / "valid.b").write_text((tmp_path / "valid.b").read_text().upper())
    best = train(recipe, {"tokenizer.shared": False, "training.steps": 2}, output=tmp_path / "run")
    tokenizer, network = load_tokenizer(best), regard.load(best).network
    assert len(tokenizer) != len(tokenizer.target)
    assert network.config.head.vocabulary == len(tokenizer.target)
    assert network.config.source.tokens.vocabulary == len(tokenizer)


def test_the_2017_transformer_opens_in_transformers_and_says_the_same(tmp_path):
    best = train(write_recipe(tmp_path), {"training.steps": 10}, output=tmp_path / "run")
    theirs = transformers.MarianMTModel.from_pretrained(best).eval()
    ours, tokenizer = regard.load(best).network.eval(), load_tokenizer(best)
    assert theirs.generation_config.decoder_start_token_id == tokenizer.special_ids.bos
    assert theirs.generation_config.eos_token_id == tokenizer.special_ids.eos
    source, target = torch.tensor([tokenizer.encode("red dog").ids]), torch.tensor([[tokenizer.special_ids.bos, 7]])
    said = theirs(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target).logits, said, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["adafactor", "muon"])
def test_other_optimizers_learn_too(tmp_path, kind):
    rate = {"adafactor": 0.03, "muon": 0.02}[kind]
    text = RECIPE.replace('{ kind = "adamw", rate = 5e-3, decay = 0.01 }', f'{{ kind = "{kind}", rate = {rate} }}')
    train(write_recipe(tmp_path, text), {"training.gradient_accumulation_steps": 1}, output=tmp_path / "run")
    losses = [line["loss"] for line in read_metrics(RunDir(tmp_path / "run").metrics) if "loss" in line]
    assert losses[-1] < losses[0] - 0.2


def test_measures_and_samples_are_handed_in(tmp_path, capsys):
    """The metric of the task selects the best model, and samples are logged."""
    seen = []

    def measure(trained):
        assert not trained.network.training
        seen.append(trained.tokenizer.decode(trained.tokenizer.encode("red dog").ids))
        return {"bleu": [1.0, 3.0, 2.0][len(seen) - 1]}

    change = {"training.steps": 3, "training.evaluate_every": 1, "training.best_metric": "bleu"}
    place = tmp_path / "run"
    train(
        write_recipe(tmp_path),
        change,
        output=place,
        compute_metrics=measure,
        sample_outputs=lambda trained: ["red dog → dog red"],
    )
    assert [line["valid_bleu"] for line in measures(place)] == [1.0, 3.0, 2.0]
    assert seen == ["red dog"] * 3
    said = capsys.readouterr().err
    assert said.count("red dog → dog red") == 3
    assert "the best model (step 2)" in said


def test_without_validation_data_the_last_network_is_the_best(tmp_path):
    best = train(write_recipe(tmp_path), {"data.valid": [], "training.steps": 3}, output=tmp_path / "run")
    kept = load_file(tmp_path / "run" / "checkpoints" / "step-00000003" / "state.safetensors")
    found = dict(regard.load(best).network.named_parameters())
    assert all(torch.equal(kept[f"parameter/{name}"], value) for name, value in found.items())


def test_a_machine_that_lacks_what_is_asked_for(tmp_path, capsys, monkeypatch):
    recipe = write_recipe(tmp_path)
    with pytest.raises(ValueError, match=r"training\.device = 'cuda:99' is not available on this machine"):
        train(recipe, {"training.device": "cuda:99"}, output=tmp_path / "gpu")
    monkeypatch.setattr(running, "has_bfloat16", lambda device: False)
    train(recipe, {"training.precision": "bfloat16", "training.steps": 1}, output=tmp_path / "run")
    assert "no native bfloat16 on this machine: using float32" in capsys.readouterr().err


def test_a_task_needs_its_kind_of_network(tmp_path):
    with pytest.raises(ValueError, match="bert has no network for task 'translate'"):
        train(write_recipe(tmp_path), {"network": {"family": "bert"}}, output=tmp_path / "run")


def test_sizes_that_a_family_does_not_have(tmp_path):
    with pytest.raises(ValueError, match=r"network\.max_length: t5 has no such size"):
        train(write_recipe(tmp_path), {"network": {"family": "t5", "max_length": 5}}, output=tmp_path / "run")


def test_a_family_that_was_published_without_dropout_can_have_it_and_is_saved_as_itself(tmp_path):
    head = 'task = "generate"\n[data]\ntrain = ["t.txt"]\nmax_length = 8\n[tokenizer]\nkind = "characters"\n'
    network = '[network]\nfamily = "llama"\nlayers = 1\nmodel_dim = 16\nheads = 2\nmax_length = 8\ndropout = 0.4\n'
    recipe = write(tmp_path, head + network, steps=2, t_txt=lines(sentences(20, 1)))
    loop = running.build_loop(load_recipe(recipe), RunDir(tmp_path / "looked"), LineReporter(None))
    dropped = [
        part.extra_repr() for part in loop.network.modules() if isinstance(part, Dropout) and part.drop_threshold
    ]
    assert dropped == ["p=0.4"] * 3  # of the embedding, attention output and feed-forward output
    run = train(recipe, output=tmp_path / "run")
    assert json.loads((run / "config.json").read_text())["model_type"] == "llama"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(run, dtype=torch.float32)
    text = torch.tensor([[3, 4, 5, 6]])
    torch.testing.assert_close(regard.load(run).network(text).logits, theirs(text).logits)


@pytest.mark.parametrize("family", ["bart", "t5", "marian", "mbart"])
def test_sizes_in_the_words_of_a_family(tmp_path, family):
    change = {"network": {"family": family, "layers": [1, 2], "model_dim": 16, "heads": 2}, "training.steps": 2}
    network = regard.load(train(write_recipe(tmp_path), change, output=tmp_path / "run")).network
    assert network.config.model_dim == 16
    assert (network.config.encoder.layers, network.config.decoder.layers) == (1, 2)
    assert network.config.encoder.blocks[0].attention.heads == 2
    assert network.config.encoder.blocks[0].feedforward.dim == 64
