"""Files that are not what they were: each is refused by name, and nothing is allocated by what a header claims."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.checkpoint.folders import network_of, refusal, same, says, write_bytes, write_folder, write_raw
from unit.checkpoint.limits import confined

from regard.checkpoint.files import CheckpointError
from regard.checkpoint.load import load

FILE = "FOLDER/model.safetensors"
COPY_AGAIN = "copy it again"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder, its network, and the bytes of its weights."""
    kind = dict(architecture="LlamaForTokenClassification", num_hidden_layers=1)
    folder = write_folder(tmp_path_factory.mktemp("whole"), **kind)
    return folder, network_of(**kind), (folder / "model.safetensors").read_bytes()


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path, num_hidden_layers=1)


def header_length(content):
    return 8 + struct.unpack("<Q", content[:8])[0]


def outcome(folder, content):
    """The network that these bytes give, or None where they are refused as they should be."""
    write_bytes(folder / "model.safetensors", content)
    try:
        network, report = load(folder)
    except CheckpointError as error:
        return None if str(folder) in str(error) else error
    return network if not report.new else report


def test_a_file_cut_off_anywhere_is_refused(whole):
    folder, _, content = whole
    end = header_length(content)
    for cut in [*range(10), end - 1, end, end + 1, *range(10, len(content), 211), len(content) - 1]:
        write_bytes(folder / "model.safetensors", content[:cut])
        assert says(refusal(folder), FILE, "damaged", COPY_AGAIN), cut


def test_a_file_with_something_behind_its_end_is_refused(whole):
    folder, _, content = whole
    write_bytes(folder / "model.safetensors", content + b"\0")
    assert says(refusal(folder), FILE, "damaged", COPY_AGAIN)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_in_the_header_is_refused_or_changes_nothing(whole, data):
    folder, network, content = whole
    place = data.draw(st.integers(0, header_length(content) - 1), label="byte")
    changed = bytearray(content)
    changed[place] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    loaded = outcome(folder, bytes(changed))
    assert loaded is None or same(loaded, network)


def test_a_flipped_bit_in_the_name_of_a_head_is_refused(tmp_path):
    folder = write_folder(tmp_path, "GPT2ForSequenceClassification")
    content = (folder / "model.safetensors").read_bytes()
    assert says(refused(folder, content.replace(b"score.weight", b"score.weighu")), "score.weighu")


def refused(folder, content):
    write_bytes(folder / "model.safetensors", content)
    return refusal(folder)


@pytest.mark.parametrize("claim", [2**20, 2**40, 2**63, 2**64 - 1])
def test_a_header_that_claims_to_be_huge_takes_no_memory(folder, claim):
    content = (folder / "model.safetensors").read_bytes()
    load(folder)  # whatever torch loads at the first call is not ours to count
    with confined():
        message = refused(folder, struct.pack("<Q", claim) + content[8:])
    assert says(message, FILE, "damaged", COPY_AGAIN)


WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    "entries",
    [
        {WORDS: ("F32", [47, 24], [0, 4512]), "other": ("F32", [47, 24], [4, 4516])},
        {WORDS: ("F32", [47, 24], [0, 4512]), "other": ("F32", [47, 24], [0, 4512])},
        {WORDS: ("F32", [47, 24], [8, 4520])},
        {WORDS: ("F32", [47, 24], [4512, 0])},
        {WORDS: ("F32", [47, 24], [0, 10**15])},
        {WORDS: ("F32", [47, 24], [0, 2**64])},
        {WORDS: ("F32", [2**63, 2], [0, 4512])},
        {WORDS: ("F32", [2**32, 2**32], [0, 4512])},
        {WORDS: ("F32", [-47, -24], [0, 4512])},
        {WORDS: ("F32", [47.0, 24], [0, 4512])},
        {WORDS: ("F64", [47, 24], [0, 4512])},
        {WORDS: ("F33", [47, 24], [0, 4512])},
        {WORDS: ("F32", "47×24", [0, 4512])},
        {WORDS: ("F32", None, None)},
    ],
    ids=lambda entries: "-".join(f"{shape}at{place}" for _, shape, place in entries.values()).replace(" ", ""),
)
def test_a_header_that_contradicts_itself_is_refused(folder, entries):
    header = {name: dict(dtype=kind, shape=shape, data_offsets=at) for name, (kind, shape, at) in entries.items()}
    load(folder)
    with confined():
        write_raw(folder, header, bytes(4516))
        message = refusal(folder)
    assert says(message, FILE, "damaged", COPY_AGAIN)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x02}q\x00.", b"version https://git-lfs.github.com/spec/v1\n"])
def test_another_kind_of_file_is_refused(folder, content):
    assert says(refused(folder, content), FILE, "no safetensors file", COPY_AGAIN)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(content=st.binary(max_size=200))
@example(content=struct.pack("<Q", 2) + b"{}")
def test_any_bytes_are_refused(whole, content):
    folder, *_ = whole
    assert outcome(folder, content) is None


def test_an_empty_header_is_missing_all_tensors(folder):
    write_raw(folder, {}, b"")
    assert says(refusal(folder), "FOLDER/config.json", "1 blocks", "only 0 tensors")
