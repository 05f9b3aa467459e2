"""Images in classify and embed: the results of transformers' networks, processors and post-processing."""

import json

import numpy as np
import pytest
import torch
from unit.checkpoint.folders import random_network
from unit.cli.runner import run
from unit.data.image_samples import bomb, random_image
from unit.test_save_and_use import CASES
from unit.tokenization.vocabularies import LAYOUTS

import regard
from regard.checkpoint.save import save
from regard.data.image_files import ImageError
from regard.data.image_processor import clip_processor, processor_file, vit_processor
from regard.families.registry import FAMILIES
from regard.tokenization.tokenizer_loader import load_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")
LABELS = ["ant", "bee", "cat"]
WORDS = ["a one", "two dogs", "nine"]


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    _, _, sizes = CASES["vit"]
    values = sizes | dict(num_labels=3, architectures=["ViTForImageClassification"], model_type="vit")
    save(random_network(FAMILIES["vit"].read_config(values)[0]), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor_file(vit_processor(15, 15))))
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    LAYOUTS["clip"][0](folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    tokenizer = load_tokenizer(folder)
    _, _, sizes = CASES["clip"]
    text = sizes["text_config"] | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.special_ids.eos}
    values = sizes | dict(text_config=text, architectures=["CLIPModel"], model_type="clip")
    save(random_network(FAMILIES["clip"].read_config(values)[0]), folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor_file(clip_processor(15))))
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(20):  # more than a batch
        random_image(20 + number, 31 - number, seed=number).save(folder / f"{number:02}.png")
    return sorted(folder.iterdir())


def opened(images):
    import PIL.Image

    return [PIL.Image.open(path) for path in images]


def test_probabilities_equal_those_of_transformers(vit, images):
    import transformers

    theirs = transformers.ViTForImageClassification.from_pretrained(vit, dtype=torch.float32)
    pixels = transformers.ViTImageProcessorPil.from_pretrained(vit)(opened(images), return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**pixels).logits.softmax(-1).numpy()
    results = regard.load(vit).classify(images)
    found = np.array([[result.scores[label] for label in LABELS] for result in results])
    assert np.abs(found - expected).max() < 1e-5
    assert [result.label for result in results] == [LABELS[row.argmax()] for row in expected]


def test_zero_shot_labels_equal_those_of_transformers(clip, images):
    import transformers

    theirs = transformers.CLIPModel.from_pretrained(clip, dtype=torch.float32)
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(clip)(opened(images), return_tensors="pt")
    tokenizer = load_tokenizer(clip)
    rows = []
    for word in WORDS:  # one text at a time, without padding
        ids = torch.tensor([tokenizer.encode(f"three {word}").ids])
        with torch.no_grad():
            rows.append(theirs(input_ids=ids, attention_mask=torch.ones_like(ids), **pixels).logits_per_image[:, 0])
    expected = torch.stack(rows, 1).softmax(-1).numpy()
    results = regard.load(clip).classify(images, labels=", ".join(WORDS), template="three {}")
    found = np.array([[result.scores[word] for word in WORDS] for result in results])
    assert np.abs(found - expected).max() < 1e-5


def test_both_sides_of_clip_are_embedded(clip, images):
    import transformers

    theirs = transformers.CLIPModel.from_pretrained(clip, dtype=torch.float32)
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(clip)(opened(images), return_tensors="pt")
    ids = torch.tensor([load_tokenizer(clip).encode(WORDS[1]).ids])
    with torch.no_grad():
        output = theirs(input_ids=ids, attention_mask=torch.ones_like(ids), **pixels)
    model = regard.load(clip)
    vectors = np.array([result.vector for result in model.embed(images, images=True)])
    assert np.abs(vectors - output.image_embeds.numpy()).max() < 1e-5
    assert np.abs(np.array(model.embed(WORDS[1]).vector) - output.text_embeds[0].numpy()).max() < 1e-5


def test_compiled_networks_read_images_too(vit, clip, images):
    for folder, options in ((vit, {}), (clip, {"labels": "one, two"})):
        exact = regard.load(folder).classify(images[:4], **options)
        compiled = regard.load(folder, precision="float32").classify(images[:4], **options)
        for left, right in zip(exact, compiled, strict=True):
            assert all(abs(right.scores[label] - score) < 1e-4 for label, score in left.scores.items())


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_image_has_the_same_result_in_every_batch(vit, images, precision):
    model = regard.load(vit, precision=precision)
    for alone, together in zip(map(model.classify, images), model.classify(images), strict=True):
        assert all(abs(together.scores[label] - score) < 1e-5 for label, score in alone.scores.items())


def test_an_image_has_the_same_result_as_file_array_and_image(vit, images):
    model = regard.load(vit)
    name = model.classify(images[0])
    (image,) = opened(images[:1])
    assert model.classify(str(images[0])) == model.classify(image) == model.classify(np.asarray(image)) == name
    with pytest.raises(ValueError, match="expected uint8"):
        model.classify(np.zeros((4, 4, 3)))


def test_commands_read_an_image_a_folder_and_a_list_of_names(vit, images, tmp_path):
    folder = images[0].parent
    expected = [f"{result.label}\t{result.scores[result.label]:.4f}" for result in regard.load(vit).classify(images)]
    assert run("classify", vit, images[0]).lines == expected[:1]
    assert run("classify", vit, folder).lines == expected
    names = tmp_path / "names.tsv"
    names.write_text("".join(f"{path}\tfirst column only\n" for path in images[:3]))
    assert run("classify", vit, names).lines == expected[:3]
    assert run("classify", vit, "-", given="\n".join(map(str, images[:2]))).lines == expected[:2]


def test_the_zero_shot_command(clip, images):
    called = run("classify", clip, images[0], "--labels", "a dog,a cat", "--json")
    scores = json.loads(called.out)["scores"]
    assert set(scores) == {"a dog", "a cat"}
    assert sum(scores.values()) == pytest.approx(1, abs=1e-5)


def test_the_command_writes_vectors_of_images(clip, images, tmp_path):
    run("embed", clip, images[0].parent, "--images", "-o", tmp_path / "v.npy")
    expected = np.array([result.vector for result in regard.load(clip).embed(images, images=True)])
    assert np.abs(np.load(tmp_path / "v.npy") - expected).max() < 1e-4


def test_calls_that_do_not_fit_the_model(vit, clip, images, tmp_path):
    with pytest.raises(ValueError, match="give labels, separated by commas"):
        regard.load(clip).classify(images[0])
    with pytest.raises(ValueError, match="has labels of its own"):
        regard.load(vit).classify(images[0], labels="a, b")
    called = run("classify", vit, images[0], "--labels", "a,b")
    assert (called.code, "leave out --labels" in " ".join(called.err.split())) == (2, True)
    (vit_copy := tmp_path / "vit").mkdir()
    for path in vit.iterdir():
        (vit_copy / path.name).write_bytes(path.read_bytes())
    (vit_copy / "preprocessor_config.json").write_text(json.dumps(processor_file(vit_processor(16, 15))))
    with pytest.raises(ValueError, match="gives images of 3 × 16 × 15, but the network reads 3 × 15 × 15"):
        regard.load(vit_copy).classify(images[0])


def test_bad_images_are_named(vit, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ImageError, match=r"text\.png is not an image"):
        run("classify", vit, tmp_path / "text.png")
    with pytest.raises(ImageError, match="expected at most"):
        run("classify", vit, bomb(tmp_path / "bomb.png"))


def test_images_are_read_as_results_are_taken(vit, images):
    read = []

    def names():
        for path in images:
            read.append(path)
            yield path

    results = regard.load(vit).prepare("classify").run(names())
    next(results)
    assert len(read) == 16  # one batch


def test_the_processor_is_saved_with_the_model(vit, images, tmp_path):
    regard.load(vit).save(tmp_path / "copy")
    assert regard.load(tmp_path / "copy").classify(images[0]) == regard.load(vit).classify(images[0])
