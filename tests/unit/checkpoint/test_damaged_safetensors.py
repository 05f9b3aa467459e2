"""Corrupt files: each is rejected with its name, and nothing is allocated on the word of a header."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.checkpoint.folders import network_of, refusal, same, says, write_bytes, write_folder, write_raw
from unit.checkpoint.limits import confined

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError

FILE = "FOLDER/model.safetensors"
COPY_AGAIN = "copy it again"


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A folder, its network, and the bytes of its weights."""
    options = dict(architecture="LlamaForTokenClassification", num_hidden_layers=1)
    folder = write_folder(tmp_path_factory.mktemp("intact"), **options)
    return folder, network_of(**options), (folder / "model.safetensors").read_bytes()


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path, num_hidden_layers=1)


def header_length(content):
    return 8 + struct.unpack("<Q", content[:8])[0]


def outcome(folder, content):
    """Return the network that these bytes give, or None if they are rejected with a proper error."""
    write_bytes(folder / "model.safetensors", content)
    try:
        network, report = load(folder)
    except CheckpointError as error:
        return None if str(folder) in str(error) else error
    return network if not report.newly_initialized else report


def test_a_file_cut_off_anywhere_is_refused(intact):
    folder, _, content = intact
    end = header_length(content)
    for cut in [*range(10), end - 1, end, end + 1, *range(10, len(content), 211), len(content) - 1]:
        write_bytes(folder / "model.safetensors", content[:cut])
        assert says(refusal(folder), FILE, "corrupt", COPY_AGAIN), cut


def test_a_file_with_trailing_bytes_is_refused(intact):
    folder, _, content = intact
    write_bytes(folder / "model.safetensors", content + b"\0")
    assert says(refusal(folder), FILE, "corrupt", COPY_AGAIN)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_in_the_header_is_refused_or_changes_nothing(intact, data):
    folder, network, content = intact
    index = data.draw(st.integers(0, header_length(content) - 1), label="byte")
    changed = bytearray(content)
    changed[index] ^= 1 << data.draw(st.integers(0, 7), label="bit")
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
    load(folder)  # what torch loads at the first call is not counted
    with confined():
        message = refused(folder, struct.pack("<Q", claim) + content[8:])
    assert says(message, FILE, "corrupt", COPY_AGAIN)


TOKENS = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    "entries",
    [
        {TOKENS: ("F32", [47, 24], [0, 4512]), "other": ("F32", [47, 24], [4, 4516])},
        {TOKENS: ("F32", [47, 24], [0, 4512]), "other": ("F32", [47, 24], [0, 4512])},
        {TOKENS: ("F32", [47, 24], [8, 4520])},
        {TOKENS: ("F32", [47, 24], [4512, 0])},
        {TOKENS: ("F32", [47, 24], [0, 10**15])},
        {TOKENS: ("F32", [47, 24], [0, 2**64])},
        {TOKENS: ("F32", [2**63, 2], [0, 4512])},
        {TOKENS: ("F32", [2**32, 2**32], [0, 4512])},
        {TOKENS: ("F32", [-47, -24], [0, 4512])},
        {TOKENS: ("F32", [47.0, 24], [0, 4512])},
        {TOKENS: ("F64", [47, 24], [0, 4512])},
        {TOKENS: ("F33", [47, 24], [0, 4512])},
        {TOKENS: ("F32", "47×24", [0, 4512])},
        {TOKENS: ("F32", None, None)},
    ],
    ids=lambda entries: "-".join(f"{shape}at{offsets}" for _, shape, offsets in entries.values()).replace(" ", ""),
)
def test_a_header_that_contradicts_itself_is_refused(folder, entries):
    header = {
        name: dict(dtype=dtype, shape=shape, data_offsets=offsets) for name, (dtype, shape, offsets) in entries.items()
    }
    load(folder)
    with confined():
        write_raw(folder, header, bytes(4516))
        message = refusal(folder)
    assert says(message, FILE, "corrupt", COPY_AGAIN)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x02}q\x00.", b"version https://git-lfs.github.com/spec/v1\n"])
def test_another_kind_of_file_is_refused(folder, content):
    assert says(refused(folder, content), FILE, "not a safetensors file", COPY_AGAIN)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(content=st.binary(max_size=200))
@example(content=struct.pack("<Q", 2) + b"{}")
def test_any_bytes_are_refused(intact, content):
    folder, *_ = intact
    assert outcome(folder, content) is None


def test_an_empty_header_is_missing_all_tensors(folder):
    write_raw(folder, {}, b"")
    assert says(refusal(folder), "FOLDER/config.json", "1 blocks", "only 0 tensors")
