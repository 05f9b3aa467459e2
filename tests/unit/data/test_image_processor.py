"""Pixel values equal those of transformers' processors, for all their options."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.data.image_samples import random_image

from regard.checkpoint.model_folder import CheckpointError
from regard.data.image_processor import (
    ImageProcessor,
    clip_processor,
    convert,
    processor_file,
    read_image_processor,
    vit_processor,
)

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")
SHAPES = [(64, 48), (33, 91), (224, 224), (301, 200)]
OPTIONS = [
    {},
    {"size": {"height": 31, "width": 57}},
    {"size": {"shortest_edge": 37}},
    {"size": {"shortest_edge": 37, "longest_edge": 40}},
    {"do_center_crop": True, "crop_size": {"height": 33, "width": 90}},
    {"do_center_crop": True, "crop_size": {"height": 300, "width": 31}},
    {"do_resize": False},
    {"do_rescale": False},
    {"rescale_factor": 1 / 127.5},
    {"do_normalize": False},
    {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    *({"resample": number} for number in range(6)),
]


def oracle(kind, options):
    import transformers

    return getattr(transformers, f"{kind}ImageProcessorPil")(**options)


def read(folder, values):
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return read_image_processor(folder)


@pytest.mark.parametrize("kind", ["ViT", "CLIP"])
@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_pixel_values_equal_those_of_transformers(tmp_path, kind, options):
    theirs = oracle(kind, options)
    ours = read(tmp_path, json.loads(theirs.to_json_string()))
    again = read(tmp_path, processor_file(ours))
    assert again == ours
    for shape in SHAPES:
        image = random_image(*shape)
        expected = np.array(theirs(image, return_tensors="np")["pixel_values"])[0]
        values = ours(image)
        assert values.dtype == np.float32
        assert values.shape == expected.shape
        assert np.abs(values - expected).max() <= 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_any_size_is_resized_and_cropped_as_transformers_does(height, width, edge, crop, resample):
    options = {"size": {"shortest_edge": edge}, "crop_size": {"height": crop, "width": crop}, "resample": resample}
    image = random_image(height, width)
    expected = np.array(oracle("CLIP", options)(image, return_tensors="np")["pixel_values"])[0]
    values = ImageProcessor(**vars(_parsed(options)))(image)
    assert np.abs(values - expected).max() <= 1e-6


def _parsed(options):
    from regard.data.image_processor import _parse

    return _parse({"image_processor_type": "CLIPImageProcessor", **options})


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "LA"])
def test_other_modes_are_converted_as_clip_does(tmp_path, mode):
    image = random_image(40, 30, 4).convert(mode)
    ours = read(tmp_path, processor_file(clip_processor(24)))
    theirs = oracle("CLIP", {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}})
    expected = np.array(theirs(image, return_tensors="np")["pixel_values"])[0]
    assert np.abs(ours(image) - expected).max() <= 1e-6


def test_transformers_reads_the_files_that_we_write(tmp_path):
    for processor in (clip_processor(24), vit_processor(20, 30)):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor_file(processor)))
        import transformers

        theirs = getattr(transformers, f"{processor.name}Pil").from_pretrained(tmp_path)
        image = random_image(50, 41)
        expected = np.array(theirs(image, return_tensors="np")["pixel_values"])[0]
        assert np.abs(processor(image) - expected).max() <= 1e-6


def test_old_files_have_one_number_and_another_name(tmp_path):
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 24, "crop_size": 24, "resample": 3}
    assert read(tmp_path, old | {"do_normalize": True}) == clip_processor(24)
    assert read(tmp_path, {"feature_extractor_type": "ViTFeatureExtractor", "size": 24}) == vit_processor(24, 24)


def test_a_combined_file_of_newer_releases_is_read(tmp_path):
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": processor_file(clip_processor(24))}))
    assert read_image_processor(tmp_path) == clip_processor(24)


def test_one_channel_is_grey():
    image = random_image(9, 7)
    values = vit_processor(9, 7, channels=1)(image)
    assert values.shape == (1, 9, 7)
    assert np.allclose(values[0], (np.asarray(convert(image, 1)) / 255 - 0.5) / 0.5, atol=1e-6)


BROKEN = {
    "another kind": ({"image_processor_type": "OwlViTThing"}, "expected ViTImageProcessor or CLIPImageProcessor"),
    "size": ({"image_processor_type": "ViTImageProcessor", "size": {"width": 3}}, "expected height and width"),
    "huge": ({"image_processor_type": "ViTImageProcessor", "size": 10**9}, "expected a number of pixels"),
    "filter": ({"image_processor_type": "ViTImageProcessor", "resample": 17}, "the number of a filter"),
    "mean": ({"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5]}, "one or three channels"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(tmp_path, name):
    values, message = BROKEN[name]
    with pytest.raises(CheckpointError, match=message) as error:
        read(tmp_path, values)
    assert "preprocessor_config.json" in str(error.value)
