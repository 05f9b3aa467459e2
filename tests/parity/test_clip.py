"""CLIP and ViT beyond the grid: old configs, both spellings of the keys, sizes, initialization."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from parity.grid import CLIP, CLIP_TEXT, CLIP_VISION, VIT
from parity.oracle import LABELS, Case, batch, distance, exactly, oracle, ours, pairs
from safetensors.torch import load_file, save_file

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.report import LoadStatus
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES, preset
from regard.transformer import config
from regard.transformer.config_json import from_json, to_json
from regard.transformer.network import build, build_on_meta
from regard.transformer.summary import count_parameters

EXACT = 1e-9


@pytest.fixture
def clip(tmp_path):
    case = Case("clip", "CLIPModel", CLIP)
    model = oracle(case)
    network, _ = ours(case, model, tmp_path)
    return model, network, tmp_path


def edit(folder, change):
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


def test_each_encoder_alone_gives_the_features_of_transformers(clip):
    model, network, _ = clip
    inputs = batch(network)
    with torch.no_grad(), exactly("clip"):
        theirs = model(input_ids=inputs.source, pixel_values=inputs.images, return_loss=True)
        text = model.get_text_features(inputs.source).pooler_output
        images = model.get_image_features(inputs.images).pooler_output
    with torch.no_grad():
        output = network(inputs.source, inputs.images)
        assert distance(network.text(inputs.source).pooled, text) <= EXACT
        assert distance(network.vision(inputs.images).pooled, images) <= EXACT
        assert distance(network.embed_text(inputs.source), theirs.text_embeds) <= EXACT
        assert distance(network.embed_images(inputs.images), theirs.image_embeds) <= EXACT
        assert distance(output.logits_per_image, theirs.logits_per_image) <= EXACT
    labels = torch.arange(len(inputs.source))
    loss = (
        sum(torch.nn.functional.cross_entropy(x, labels) for x in (output.logits_per_text, output.logits_per_image)) / 2
    )
    assert distance(loss, theirs.loss) <= EXACT


@pytest.mark.parametrize("older", [None, {}, {"hidden_size": 24, "eos_token_id": 2}, {"vocab_size": 50}])
@pytest.mark.parametrize("newer", [None, {"eos_token_id": 2}, {"eos_token_id": 7, "hidden_act": "gelu"}])
def test_a_duplicate_sub_config_is_read_as_transformers_reads_it(older, newer):
    values = {"text_config": newer, "text_config_dict": older, "vision_config": {"hidden_size": 48}}
    design, _ = FAMILIES["clip"].read_config(values, "CLIPModel")
    theirs = transformers.CLIPConfig(**json.loads(json.dumps(values))).text_config
    eos = theirs.eos_token_id
    assert design.text.head.pooling == (config.HighestToken() if eos == 2 else config.AtToken(token=eos))
    assert design.text.model_dim == theirs.hidden_size
    assert design.text.embedding.tokens.vocabulary == theirs.vocab_size
    assert design.text.encoder.blocks[0].feedforward.activation.value == theirs.hidden_act
    assert design.vision.model_dim == 48


def test_a_config_of_2021_lists_the_keys_of_all_families():
    """The keys of the first files: those of other families do not affect the network."""
    old = dict.fromkeys(["architectures", "bad_words_ids", "finetuning_task", "prefix", "sep_token_id", "torch_dtype"])
    old |= dict(_name_or_path="", add_cross_attention=False, is_decoder=False, dropout=0.0, max_length=20, num_beams=1)
    old |= dict(pruned_heads={}, tie_encoder_decoder=False, tie_word_embeddings=True, top_k=50, eos_token_id=2)
    old |= dict(bos_token_id=0, pad_token_id=1, initializer_range=0.02, gradient_checkpointing=False)
    text, vision = old | dict(model_type="clip_text_model"), old | dict(model_type="clip_vision_model")
    values = dict(text_config=text, vision_config=vision, text_config_dict=None, initializer_factor=1.0)
    design, _ = FAMILIES["clip"].read_config(values, "CLIPModel")
    assert design.text.head.pooling == config.HighestToken()
    assert design.vision == preset("clip-vit-base-patch32").vision


@pytest.mark.parametrize("where", ["text_config", "vision_config", "text_config_dict", "vision_config_dict"])
def test_an_unknown_key_in_a_sub_config_is_an_error(clip, where):
    _, _, folder = clip
    edit(folder, lambda values: values.setdefault(where, {}).update(hiden_size=24))
    with pytest.raises(CheckpointError, match=r"hiden_size' \(did you mean 'hidden_size'"):
        load(folder)


def test_a_sub_config_that_is_no_object_is_an_error(clip):
    _, _, folder = clip
    edit(folder, lambda values: values.update(text_config=[1]))
    with pytest.raises(CheckpointError, match="text_config must be dict"):
        load(folder)


@pytest.mark.parametrize("family", ["clip_text_model", "clip_vision_model"])
def test_both_spellings_of_an_encoder_alone(family, tmp_path):
    """Before release 5 the classes without projection had the prefix that those with projection still have."""
    bare = next(iter(FAMILIES[family].architectures))
    case = Case(family, bare, {"clip_text_model": CLIP_TEXT, "clip_vision_model": CLIP_VISION}[family])
    network, _ = ours(case, oracle(case), tmp_path)
    prefix = "text_model." if family == "clip_text_model" else "vision_model."
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    assert not any(name.startswith(prefix) for name in tensors)
    old = {prefix + name: value for name, value in tensors.items()}
    save_file({**old, f"{prefix}embeddings.position_ids": torch.arange(3)[None]}, path, {"format": "pt"})
    again, report = load(tmp_path)
    assert not report.newly_initialized
    for expected, loaded in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(expected, loaded)


def test_an_encoder_of_a_dual_encoder_can_be_saved_alone(clip, tmp_path):
    model, network, _ = clip
    folder = tmp_path / "text"
    assert save(network.text, folder) == "clip_text_model"
    with exactly("clip"):
        alone = transformers.CLIPTextModelWithProjection.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        inputs = batch(network)
        with torch.no_grad():
            theirs = model.get_text_features(inputs.source).pooler_output
            assert distance(alone(inputs.source).text_embeds, theirs) <= 1e-12


def test_a_classification_head_on_a_dual_encoder(clip):
    """The text encoder and the projections are ignored as parts of CLIPModel; the classifier is newly initialized."""
    _, _, folder = clip
    network, report = load(folder, architecture="CLIPForImageClassification")
    assert sorted(report.newly_initialized) == ["head.output.bias", "head.output.weight"]
    assert all("CLIPModel" in line.reason for line in report.with_status(LoadStatus.IGNORED))
    assert network.head.output.weight.shape == (LABELS, CLIP_VISION["hidden_size"])


def test_a_dual_encoder_with_too_many_layers_is_refused(clip):
    _, _, folder = clip
    edit(folder, lambda values: values["text_config"].update(num_hidden_layers=2))
    with pytest.raises(CheckpointError, match=r"text_model.encoder.layers.2.*not used by"):
        load(folder)


def test_masked_image_modelling_from_a_file_without_a_mask_vector(tmp_path):
    case = Case("vit", "ViTForImageClassification", VIT)
    ours(case, oracle(case), tmp_path)
    _, report = load(tmp_path, architecture="ViTForMaskedImageModeling")
    assert sorted(report.newly_initialized) == [
        "embedding.tokens.mask_vector",
        "head.output.bias",
        "head.output.weight",
    ]


PUBLISHED = {
    "clip-vit-base-patch32": 151_277_313,
    "clip-vit-base-patch16": 149_620_737,
    "clip-vit-large-patch14": 427_616_513,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "vit-huge": 632_045_800,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_as_large_as_in_transformers(name):
    family = next(family for family in FAMILIES.values() if name in family.presets)
    values = dict(family.presets[name])
    model_class = getattr(transformers, values.pop("architectures")[0])
    with torch.device("meta"):
        model = model_class(model_class.config_class(**values))
    theirs = sum(value.numel() for value in model.parameters())
    assert count_parameters(preset(name)) == theirs == PUBLISHED[name]


def test_initialization_is_that_of_transformers():
    wide = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 3}
    values = {
        "text_config": {**wide, "vocab_size": 400, "initializer_factor": 0.7},
        "vision_config": {**wide, "image_size": 64, "patch_size": 8, "initializer_range": 0.05},
        "projection_dim": 128,
        "logit_scale_init_value": 1.5,
    }
    model = transformers.CLIPModel(transformers.CLIPConfig(**json.loads(json.dumps(values))))
    design, _ = FAMILIES["clip"].read_config(values, "CLIPModel")
    network = build(design, seed=3)
    assert network.scale.item() == 1.5
    theirs = dict(model.named_parameters())
    for mapping in pairs(Case("clip", "CLIPModel"), model, network):
        expected, actual = theirs[mapping.theirs], network.get_parameter(mapping.ours[0])
        if expected.ndim == 0 or mapping.theirs == "text_projection.weight":
            continue  # the text projection follows the factor of the text encoder here
        assert expected.std().item() == pytest.approx(actual.std().item(), rel=0.15, abs=1e-9), mapping.theirs


def test_configs_of_dual_encoders_survive_json():
    design = preset("clip-vit-base-patch32")
    assert from_json(json.loads(json.dumps(to_json(design)))) == design
    assert build_on_meta(replace(design, scale=0.0)).config.scale == 0
