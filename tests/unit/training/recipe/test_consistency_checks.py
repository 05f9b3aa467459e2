"""Consistency of network and tokenizer, of labels and their order, of student and teacher."""

import json

import pytest
import torch
from unit.training.recipes import train
from unit.training.run.test_end_to_end import ENCODER, sentences, write
from unit.training.tiny_data import write_recipe

import regard
from regard.families.registry import FAMILIES
from regard.tokenization.algorithms import ByteBPE, WordPiece
from regard.tokenization.tokenizer_trainer import train_tokenizer as learn
from regard.training.objectives.distillation import kl_divergence
from regard.training.objectives.factory import continuation_mask
from regard.training.optim.optimizer import AdamWConfig, parameter_groups
from regard.transformer.network import build

CLASSIFY = 'task = "classify"\n[data]\ntrain = ["t.tsv"]\ncolumns = { text = "sentence" }\n'


def table(rows, names=("animal", "other")):
    def label(row):
        return names[0] if {*row} & {"dog", "cat"} else names[1]

    return "sentence\tlabel\n" + "".join(f"{' '.join(row)}\t{label(row)}\n" for row in rows)


@pytest.fixture
def classifier(tmp_path):
    """A trained classifier whose labels are not in the order of the alphabet."""
    path = write(tmp_path / "first", CLASSIFY + ENCODER, steps=60, t_tsv=table(sentences(150, 1)))
    best = train(path, output=tmp_path / "first" / "run")
    for name in ("config.json", "regard.json"):
        text = (best / name).read_text()
        for label, turned in (("animal", "z-animal"), ("other", "a-other")):
            text = text.replace(f'"{label}"', f'"{turned}"')
        (best / name).write_text(text)
    return best


def test_labels_keep_the_order_of_the_network_that_is_loaded(tmp_path, classifier):
    rows = sentences(60, 2)
    path = write(
        tmp_path / "second",
        CLASSIFY + f'[network]\nload = "{classifier}"\n',
        steps=1,
        t_tsv=table(rows, ("z-animal", "a-other")),
    )
    best = train(path, {"training.optimizer": {"kind": "adamw", "lr": 1e-9}}, output=tmp_path / "second" / "run")
    assert json.loads((best / "regard.json").read_text())["labels"] == ["z-animal", "a-other"]
    model = regard.load(best)
    right = [
        int(model.network.eval()(torch.tensor([model.tokenizer.encode(" ".join(row)).ids])).logits.argmax())
        == (0 if {*row} & {"dog", "cat"} else 1)
        for row in rows
    ]
    assert sum(right) > 0.9 * len(rows)  # the pretrained head still predicts the same labels


def test_a_teacher_with_other_labels_or_another_tokenizer(tmp_path, classifier):
    change = {"objective.distillation": {"teacher": str(classifier)}}
    path = write(tmp_path / "third", CLASSIFY + ENCODER, steps=1, t_tsv=table(sentences(60, 3)))
    with pytest.raises(ValueError, match=r"the teacher .* has the labels z-animal, a-other, the data has animal"):
        train(path, change, output=tmp_path / "third" / "run")
    (tmp_path / "third" / "t.tsv").write_text(
        table([[*row, "words"] for row in sentences(60, 3)], ("z-animal", "a-other"))
    )
    with pytest.raises(ValueError, match=r"has a different vocabulary: set \[tokenizer\] load = "):
        train(path, change, output=tmp_path / "third" / "run")
    train(path, {**change, "tokenizer": {"load": str(classifier)}}, output=tmp_path / "third" / "run")


def test_a_network_that_knows_fewer_tokens_than_the_tokenizer(tmp_path):
    recipe = write_recipe(tmp_path / "small")
    small = train(recipe, {"training.steps": 1, "tokenizer.size": 10}, output=tmp_path / "small" / "run")
    large = train(recipe, {"training.steps": 1}, output=tmp_path / "large")
    change = {"training.steps": 1, "network": {"load": str(small)}, "tokenizer": {"load": str(large)}}
    with pytest.raises(
        ValueError, match=r"the tokenizer has \d+ tokens, but the network in .* only 10: use the tokenizer of"
    ):
        train(recipe, change, output=tmp_path / "both")


def test_a_decoder_begins_as_its_generation_config_says(tmp_path):
    """Newer folders have it only there; fine-tuning keeps it."""
    recipe = write_recipe(tmp_path)
    first = train(recipe, {"training.steps": 1}, output=tmp_path / "first")
    for name, token in (("config.json", None), ("generation_config.json", 7)):
        values = json.loads((first / name).read_text())
        (first / name).write_text(json.dumps({**values, "decoder_start_token_id": token}))
    second = train(recipe, {"training.steps": 1, "network": {"load": str(first)}}, output=tmp_path / "second")
    assert json.loads((second / "generation_config.json").read_text())["decoder_start_token_id"] == 7


def test_what_needs_validation_data_says_so(tmp_path):
    recipe = write_recipe(tmp_path)
    for change in ({"training.patience": 3}, {"training.average_checkpoints": {"kind": "best", "count": 2}}):
        with pytest.raises(ValueError, match=r"need validation data: set data.valid"):
            train(recipe, {**change, "data.valid": []}, output=tmp_path / "run")


TEXT = ["walking and walked, a talk about walks\nand talks"] * 5


def words_of(tokenizer, text):
    """The tokens of a text, grouped by word."""
    on = continuation_mask(tokenizer)
    names = {number: token for token, number in tokenizer.get_vocab().items()}
    words = []
    for number in tokenizer.encode(text, add_special_tokens=False).ids:
        if on[number] and words:
            words[-1].append(names[number])
        else:
            words.append([names[number]])
    return words


def test_words_where_a_text_holds_the_other_kinds_marks():
    """A `▁` or `Ġ` in the text does not join all its tokens to one word."""
    tokenizer = learn(WordPiece(size=60, lowercase=True), [*TEXT, "▁ Ġ"])
    assert any(token.startswith(("▁", "ġ", "Ġ")) for token in tokenizer.get_vocab())
    joined = ["".join(word).replace("##", "") for word in words_of(tokenizer, "walking walked talks")]
    assert joined == ["walking", "walked", "talks"]


def test_words_end_where_lines_end():
    tokenizer = learn(ByteBPE(size=280), TEXT)
    joined = ["".join(word) for word in words_of(tokenizer, "a walk\nand talks")]
    assert joined[:2] == ["a", "Ġwalk"]
    assert joined[-1] == "Ġtalks"


def test_a_divergence_of_half_precision_is_computed_in_whole():
    draw = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 5, 8000, generator=draw).bfloat16().unbind()
    other.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = kl_divergence(one, other)
    exact = other.detach().double().requires_grad_()
    wanted = kl_divergence(one.double(), exact)
    found.backward()
    wanted.backward()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-4)
    torch.testing.assert_close(other.grad.double(), exact.grad, rtol=1e-2, atol=1e-6)


def test_layers_are_counted_in_their_own_stack():
    sizes = dict(vocab_size=20, d_model=8, encoder_layers=4, decoder_layers=2, encoder_attention_heads=2)
    sizes |= dict(decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=0)
    network = build(FAMILIES["bart"].read_config(sizes, "BartForConditionalGeneration")[0], seed=1)
    speeds = {name: group.lr_scale for group in parameter_groups(network, AdamWConfig(), 0.5) for name in group.names}
    assert speeds["decoder.blocks.1.feedforward.up.weight"] == speeds["encoder.blocks.3.feedforward.up.weight"] == 0.5
    assert speeds["decoder.blocks.0.feedforward.up.weight"] == speeds["encoder.blocks.2.feedforward.up.weight"] == 0.25
    assert speeds["encoder.blocks.0.feedforward.up.weight"] == 0.5**4
    assert speeds["source.tokens.weight"] == 0.5**5
