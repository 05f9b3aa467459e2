"""Images: patches against an explicit loop, pooling, dual encoders, and error messages."""

import json
from dataclasses import replace

import pytest
import torch

from regard.families.registry import FAMILIES
from regard.transformer import config
from regard.transformer.activation_capture import capture
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config_json import from_json, to_json
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.network import build, build_on_meta
from regard.transformer.patches import MaskedImages, Patches
from regard.transformer.pooling import pool, token_index
from regard.transformer.summary import count_parameters

# Every size differs. Below and right of the 2 × 3 patches some pixels are left over.
DESIGN = config.Patches(image=(9, 16), patch=(4, 5), channels=2, bias=True, mask_vector=True)
DIM, BATCH, END = 7, 3, 5
TEXT = dict(
    vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=17,
    max_position_embeddings=11, eos_token_id=END, projection_dim=9,
)  # fmt: skip
VISION = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=19, image_size=12, patch_size=4,
    projection_dim=9,
)  # fmt: skip


def random(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.4)
    return module.double().eval()


def drawn(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def patches():
    return random(Patches(DESIGN, DIM))


@pytest.fixture(scope="module")
def clip():
    design, _ = FAMILIES["clip"].read_config(
        {"text_config": TEXT, "vision_config": VISION, "projection_dim": 9}, "CLIPModel"
    )
    return random(build(design))


TEXTS = torch.tensor([[3, 8, END, 2, 9], [7, END, 4, END, 1], [28, 3, 6, 11, END]])


def test_patches_are_what_a_loop_cuts(patches):
    images = drawn(BATCH, 2, 9, 16)
    expected = []
    for image in images:
        expected.append(patches.class_vector)
        for top in (0, 4):
            for left in (0, 5, 10):
                pixels = image[:, top : top + 4, left : left + 5].flatten()
                expected.append(patches.project.weight @ pixels + patches.project.bias)
    assert torch.allclose(patches(images), torch.stack(expected), rtol=0, atol=1e-12)


def test_patches_are_a_convolution(patches):
    images = drawn(BATCH, 2, 9, 16)
    kernel = patches.project.weight.view(DIM, 2, 4, 5)
    expected = torch.nn.functional.conv2d(images, kernel, patches.project.bias, stride=(4, 5))
    found = patches(images).view(BATCH, 7, DIM)[:, 1:]
    assert torch.allclose(found, expected.flatten(2).transpose(1, 2), rtol=0, atol=1e-12)


def test_hidden_patches_are_not_seen(patches):
    images, masked = drawn(BATCH, 2, 9, 16), torch.rand(BATCH, 6) < 0.5
    found = patches(MaskedImages(images, masked)).view(BATCH, 7, DIM)[:, 1:]
    plain = patches(images).view(BATCH, 7, DIM)[:, 1:]
    assert torch.equal(found[masked], patches.mask_vector.expand(int(masked.sum()), DIM))
    assert torch.equal(found[~masked], plain[~masked])


def test_picture_undoes_cut(patches):
    images = drawn(BATCH, 2, 9, 16)
    pixels = patches.patchify(images)
    somewhere = torch.cat([drawn(BATCH, 1, pixels.shape[2]), pixels], dim=1)
    assert torch.equal(patches.unpatchify(somewhere), images[:, :, :8, :15])


def test_images_of_another_type_are_converted(patches):
    images = drawn(BATCH, 2, 9, 16).float()
    assert torch.equal(patches(images), patches(images.double()))


@pytest.mark.parametrize("shape", [(BATCH, 2, 16, 9), (BATCH, 3, 9, 16), (BATCH, 2, 9, 17)])
def test_a_wrong_size_is_an_error_that_says_which_is_right(patches, shape):
    with pytest.raises(ValueError, match="batch × 2×9×16") as error:
        patches.check(torch.zeros(shape))
    assert "×".join(map(str, shape)) in str(error.value)


def test_what_is_hidden_must_fit(patches):
    images = drawn(BATCH, 2, 9, 16)
    with pytest.raises(ValueError, match=r"must be 3×6 .* found 3×7"):
        patches.check(MaskedImages(images, torch.zeros(BATCH, 7, dtype=torch.bool)))
    plain = Patches(config.Patches(image=(9, 16), patch=(4, 5), channels=2, bias=False, mask_vector=False), DIM)
    with pytest.raises(ValueError, match="no mask vector: pass the images without `masked`"):
        plain.check(MaskedImages(images, torch.zeros(BATCH, 6, dtype=torch.bool)))


def test_a_patch_larger_than_the_image_is_an_error():
    with pytest.raises(ValueError, match="an image of 9×16 is smaller than one patch of 10×5"):
        Patches(config.Patches(image=(9, 16), patch=(10, 5), channels=2, bias=False, mask_vector=False), DIM)


ROWS = BatchLayout.of((4, 2, 5))


def test_mean_after_first():
    x = drawn(11, DIM)
    expected = torch.stack([x[1:4].mean(0), x[5:6].mean(0), x[7:11].mean(0)])
    assert torch.allclose(pool(config.Pooling.MEAN_AFTER_FIRST, x, ROWS), expected, rtol=0, atol=1e-12)


def test_the_first_place_of_a_token():
    tokens = torch.tensor([1, 9, 5, 5, 5, 0, 7, 3, 5, 2, 5])
    assert token_index(config.AtToken(token=5), tokens, ROWS).tolist() == [2, 4, 8]


def test_the_first_place_of_the_highest_token():
    tokens = torch.tensor([1, 9, 5, 9, 0, 0, 7, 3, 8, 8, 5])
    assert token_index(config.HighestToken(), tokens, ROWS).tolist() == [1, 4, 8]


def test_a_row_without_the_token_is_an_error():
    with pytest.raises(ValueError, match=r"sequence 1 does not contain the token that AtToken\(token=5\) pools at"):
        token_index(config.AtToken(token=5), torch.tensor([1, 9, 5, 5, 4, 0, 7, 3, 5, 2, 5]), ROWS)


def test_similarity_is_what_the_definition_says(clip):
    images = drawn(4, 3, 12, 12)
    found = clip(TEXTS, images)
    text, picture = clip.text(TEXTS).pooled, clip.vision(images).pooled
    for row in range(3):
        for column in range(4):
            one, other = text[row], picture[column]
            cosine = (one @ other) / (one @ one).sqrt() / (other @ other).sqrt()
            assert found.logits_per_text[row, column].item() == pytest.approx(
                (cosine * clip.scale.exp()).item(), rel=1e-12
            )
    assert torch.equal(found.logits_per_image, found.logits_per_text.T)
    assert torch.allclose(found.text_embeddings.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert torch.allclose(found.image_embeddings.norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_an_image_is_classified_by_the_words_for_its_labels(clip):
    """Zero-shot classification: each label is a text; an image gets the label of the most similar text."""
    labels = clip.embed_text(TEXTS)  # "a photo of a cat", "a photo of a dog", "a photo of a bird": tokens, and the end
    images = clip.embed_images(drawn(2, 3, 12, 12))
    chance = clip.compare(labels, images).logits_per_image.softmax(dim=-1)
    assert chance.shape == (2, 3)
    assert torch.allclose(chance.sum(dim=1), torch.ones(2, dtype=torch.float64))
    one_by_one = [clip.compare(labels, image[None]).logits_per_image.softmax(dim=-1)[0] for image in images]
    assert torch.allclose(chance, torch.stack(one_by_one))


def test_a_text_is_what_stands_before_its_end(clip):
    """The mask is causal, so tokens after the end token, padding or not, do not affect the result."""
    other = TEXTS.clone()
    other[0, 3:], other[1, 2:] = 8, 13
    assert torch.allclose(clip.embed_text(TEXTS), clip.embed_text(other), rtol=0, atol=1e-12)
    real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    assert torch.allclose(clip.embed_text(TEXTS), clip.embed_text(TEXTS, real), rtol=0, atol=1e-12)
    packed = clip.embed_text(TEXTS[real], layout=BatchLayout.of((3, 2, 5)))
    assert torch.allclose(clip.embed_text(TEXTS), packed, rtol=0, atol=1e-12)


def test_the_parts_of_a_pair_can_be_watched_counted_and_recomputed(clip):
    with capture(clip, "vision.encoder.blocks.1.attention") as captured:
        clip(TEXTS, drawn(2, 3, 12, 12))
    assert [weights.shape for weights in captured["vision.encoder.blocks.1.attention"]] == [(2, 10, 10)] * 2
    assert count_parameters(clip.config) == sum(value.numel() for value in clip.parameters())
    clip.set_gradient_checkpointing()
    assert clip.vision.encoder.gradient_checkpointing
    clip.set_gradient_checkpointing(False)


def test_a_pair_is_drawn_from_its_seed(clip):
    assert isinstance(build_on_meta(clip.config), DualEncoder)
    one, same, other = (build(clip.config, seed=seed) for seed in (4, 4, 5))
    for (name, value), again, different in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(value, again)
        assert torch.equal(value, different) == (name == "scale" or "norm" in name or name.endswith("bias")), name
    assert one.scale.item() == pytest.approx(2.6592)


def test_sides_that_cannot_be_compared_are_an_error(clip):
    narrow = replace(clip.config.text, head=replace(clip.config.text.head, projection=8))
    with pytest.raises(ValueError, match="text features have size 8, image features 9"):
        build(replace(clip.config, text=narrow))
    with pytest.raises(ValueError, match="needs the head Features, found None"):
        build(replace(clip.config, vision=replace(clip.config.vision, head=None)))


def test_configs_survive_json(clip):
    assert from_json(json.loads(json.dumps(to_json(clip.config)))) == clip.config


def test_images_and_words_are_not_confused(clip):
    images = drawn(2, 3, 12, 12)
    with pytest.raises(ValueError, match="do not pass `layout` or a padding mask"):
        clip.vision(images, layout=BatchLayout.of((10, 10)))
    with pytest.raises(ValueError, match="do not pass `layout` or a padding mask"):
        clip.vision(images, torch.ones(2, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match="expects token ids, found images"):
        clip.text(images)
    with pytest.raises(ValueError, match="has no segment embeddings"):
        clip.vision(images, segments=torch.zeros(2, 10, dtype=torch.long))
    with pytest.raises(ValueError, match="expected images of batch × 3×12×12"):
        clip.vision(images[:, :, :-1])


@pytest.mark.parametrize(
    "head",
    [
        config.LanguageModel(
            vocabulary=9, transform=None, scale=1.0, weights=config.Weights.TIED, bias=config.OutputBias.NONE
        ),
        config.Features(pooling=config.AtToken(token=3), norm=None, projection=None),
        config.Features(pooling=config.HighestToken(), norm=None, projection=None),
    ],
)
def test_a_head_for_words_on_images_is_an_error(clip, head):
    with pytest.raises(ValueError, match="needs token embeddings, but the network embeds image patches"):
        build(replace(clip.config.vision, head=head))
