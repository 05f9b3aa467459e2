"""Images are opened safely; folders and tables of images are read with clear errors."""

import numpy as np
import PIL.Image
import pytest
from unit.data.image_samples import bomb, random_image

from regard.data.image_files import ImageError, list_images, open_image, read_image_texts
from regard.tokenization.text_files import DataError


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "gif", "tiff", "webp", "jpg"])
def test_formats(tmp_path, suffix):
    image = random_image(13, 9)
    image.save(tmp_path / f"a.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    opened = open_image(tmp_path / f"a.{suffix}")
    assert opened.size == (9, 13)
    if suffix not in ("jpg", "gif"):
        assert np.array_equal(np.asarray(opened.convert("RGB")), np.asarray(image))


def test_an_image_is_turned_upright(tmp_path):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    random_image(8, 16).save(tmp_path / "a.jpg", exif=exif)
    assert open_image(tmp_path / "a.jpg").size == (8, 16)


def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path):
    for side in (11_000, 60_000):  # Pillow itself warns of the first and refuses the second
        with pytest.raises(ImageError, match="expected at most 100,000,000"):
            open_image(bomb(tmp_path / "bomb.png", side))


def damaged(tmp_path):
    path = tmp_path / "damaged.png"
    random_image(200, 200).save(path)
    path.write_bytes(path.read_bytes()[:5000])
    return path


def text_file(tmp_path):
    path = tmp_path / "text.png"
    path.write_text("not an image")
    return path


def postscript(tmp_path):
    path = tmp_path / "program.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    return path


def empty(tmp_path):
    path = tmp_path / "empty.png"
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (damaged, "is damaged"), (text_file, "is not an image"), (postscript, "is not an image"),
        (empty, "is not an image"), (lambda path: path / "gone.png", "file not found"),
        (lambda path: path, "is a folder"),
    ],
)  # fmt: skip
def test_files_that_are_no_images(tmp_path, make, message):
    path = make(tmp_path)
    with pytest.raises(ImageError, match=message) as error:
        open_image(path)
    assert str(path) in str(error.value)


def test_a_folder_has_a_subfolder_for_each_label(tmp_path):
    for name in ("cat/2.png", "dog/deep/1.png", "cat/1.PNG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        random_image(2, 2).save(tmp_path / name)
    (tmp_path / "cat/notes.txt").write_text("")
    rows = list(read_image_texts([tmp_path]))
    found = [(row.image.relative_to(tmp_path).as_posix(), row.text) for row in rows]
    assert found == [("cat/1.PNG", "cat"), ("cat/2.png", "cat"), ("dog/deep/1.png", "dog")]
    random_image(2, 2).save(tmp_path / "stray.png")
    with pytest.raises(DataError, match="expected a subfolder"):
        list(read_image_texts([tmp_path]))


def test_a_table_names_images_relative_to_itself(tmp_path):
    (tmp_path / "train").mkdir()
    random_image(2, 2).save(tmp_path / "train/a.png")
    table = tmp_path / "captions.tsv"
    table.write_text("train/a.png\ta dog runs\ntrain/a.png\ta dog\n")
    rows = list(read_image_texts([table]))
    assert [(row.image, row.text, row.line) for row in rows] == [
        (tmp_path / "train/a.png", "a dog runs", 1),
        (tmp_path / "train/a.png", "a dog", 2),
    ]
    table.write_text("train/a.png\ta\ntrain/b.png\tb\n")
    with pytest.raises(DataError, match=r"line 2: image not found"):
        list(read_image_texts([table]))
    table.write_text("train/a.png a dog\n")
    with pytest.raises(DataError, match=r"line 1: expected an image file, a tab"):
        list(read_image_texts([table]))


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no images"):
        list_images(tmp_path)
