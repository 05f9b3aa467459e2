"""Loading: any published naming and any sharding gives the same bits."""

import pytest
import torch
from safetensors.torch import save_file
from unit.checkpoint.folders import (
    change_config,
    equal_bits,
    network_of,
    same,
    says,
    weights,
    write_bytes,
    write_folder,
    write_raw,
    write_weights,
)

from regard.checkpoint.load import load
from regard.checkpoint.report import LoadStatus
from regard.checkpoint.save import save
from regard.checkpoint.tensor_files import write_tensors
from regard.transformer.config import Weights

ONE_BLOCK = dict(num_hidden_layers=1)


def parameters(network):
    return {name: value.detach() for name, value in network.named_parameters()}


def test_a_network_is_ready_for_use(tmp_path):
    network, report = load(write_folder(tmp_path))
    assert same(network, network_of("BertForMaskedLM"))
    assert not network.training
    assert all(value.is_leaf and value.requires_grad and not value.is_meta for value in network.parameters())
    assert not report.newly_initialized


def test_a_network_is_put_on_the_device(tmp_path):
    network, _ = load(str(write_folder(tmp_path, **ONE_BLOCK)), device="meta", dtype=torch.float16)
    assert all(value.is_meta and value.dtype == torch.float16 for value in network.parameters())


def test_shards(tmp_path):
    folder = write_folder(tmp_path)
    write_tensors(folder, weights(folder), max_shard_bytes=5000)
    assert not (folder / "model.safetensors").exists()
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 5
    assert same(load(folder)[0], network_of("BertForMaskedLM"))


def test_shards_too_small_for_any_tensor_hold_one_each(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    write_tensors(folder, weights(folder), max_shard_bytes=1)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) == 26
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(tmp_path, dtype):
    network, report = load(write_folder(tmp_path, dtype=dtype, **ONE_BLOCK))
    assert same(network, network_of("BertForMaskedLM", dtype=dtype, **ONE_BLOCK))
    assert not report.notes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_can_be_changed(tmp_path, dtype):
    network, _ = load(write_folder(tmp_path, "GPT2LMHeadModel", n_layer=1), dtype=dtype)
    assert same(network, network_of("GPT2LMHeadModel", n_layer=1).to(dtype))


def mixed(folder, *dtypes):
    tensors = weights(folder)
    write_weights(folder, {name: t.to(dtypes[i % len(dtypes)]) for i, (name, t) in enumerate(tensors.items())})
    return weights(folder)


def test_mixed_dtypes_are_converted_to_the_widest(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    theirs = mixed(folder, torch.float16, torch.float64, torch.float32, torch.bfloat16)
    network, report = load(folder)
    assert_same_numbers(network, report, theirs, torch.float64)
    assert says(report.summary(), "mixed dtypes", "float16", "bfloat16", "float32", "converted to torch.float64")


def test_float16_and_bfloat16_are_converted_to_float32(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    theirs = mixed(folder, torch.float16, torch.bfloat16)
    network, report = load(folder)
    assert_same_numbers(network, report, theirs, torch.float32)


def assert_same_numbers(network, report, theirs, dtype):
    ours = parameters(network)
    for line in report.with_status(LoadStatus.LOADED):
        assert torch.equal(ours[line.ours[0]].double(), theirs[line.theirs].double()), line.theirs
        assert ours[line.ours[0]].dtype == dtype


def test_tensors_that_are_not_aligned_in_the_file(tmp_path):
    """A byte tensor of odd size first: every float after it is at an odd address."""
    folder = write_folder(tmp_path, **ONE_BLOCK)
    header, data = {"bert.embeddings.position_ids": dict(dtype="U8", shape=[1, 19], data_offsets=[0, 19])}, bytes(19)
    for name, tensor in weights(folder).items():
        end = len(data) + tensor.nbytes
        header[name] = dict(dtype="F32", shape=list(tensor.shape), data_offsets=[len(data), end])
        data += tensor.numpy().tobytes()
    write_raw(folder, header, data)
    network, _ = load(folder)
    expected = network_of("BertForMaskedLM", **ONE_BLOCK)
    assert same(network, expected)
    tokens = torch.arange(7)[None]
    assert torch.allclose(network(tokens).logits, expected(tokens).logits)


def test_norms_under_the_names_of_tensorflow(tmp_path):
    folder = write_folder(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = weights(folder)
    for new, name in old.items():
        tensors = {key.replace(new, name): value for key, value in tensors.items()}
    assert sum("gamma" in name for name in tensors) == 6
    write_weights(folder, tensors)
    assert same(load(folder)[0], network_of("BertForMaskedLM"))


@pytest.mark.parametrize(
    ("bare", "headed"),
    [
        ("BertModel", "BertForTokenClassification"),
        ("BertModel", "BertForMaskedLM"),
        ("BertForMaskedLM", "BertForSequenceClassification"),
        ("GPT2Model", "GPT2ForTokenClassification"),
        ("GPT2LMHeadModel", "GPT2DoubleHeadsModel"),
        ("LlamaModel", "LlamaForCausalLM"),
        ("LlamaForCausalLM", "LlamaForQuestionAnswering"),
        ("T5Model", "T5ForSequenceClassification"),
        ("T5ForConditionalGeneration", "T5ForSequenceClassification"),
        ("BartModel", "BartForSequenceClassification"),
    ],
)
def test_a_head_missing_from_the_file_is_newly_initialized(tmp_path, bare, headed):
    network, report = load(write_folder(tmp_path, bare), architecture=headed)
    old, new = parameters(network_of(bare)), parameters(network)
    assert set(report.newly_initialized) == {name for name in new if name.startswith("head.")}
    assert all(equal_bits(new[name], old[name]) for name in new if not name.startswith("head."))
    assert says(
        report.summary(),
        "WARNING",
        f"{len(report.newly_initialized)} parameters",
        "newly initialized",
        *report.newly_initialized,
    )


@pytest.mark.parametrize("bare", ["BertModel", "BertForPreTraining", "BertForNextSentencePrediction"])
def test_a_stored_pooler_is_used_with_a_new_classifier(tmp_path, bare):
    network, report = load(
        write_folder(tmp_path, bare), architecture="BertForSequenceClassification", config_overrides={"num_labels": 5}
    )
    assert set(report.newly_initialized) == {"head.output.weight", "head.output.bias"}
    assert equal_bits(network.head.transform.dense.weight, weights(tmp_path)[pooler(bare)])


def pooler(architecture):
    return "pooler.dense.weight" if architecture == "BertModel" else "bert.pooler.dense.weight"


@pytest.mark.parametrize(
    ("headed", "bare", "ignored"),
    [
        ("BertForSequenceClassification", "BertModel", {"classifier.weight", "classifier.bias"}),
        ("GPT2ForTokenClassification", "GPT2Model", {"classifier.weight", "classifier.bias"}),
        ("LlamaForCausalLM", "LlamaModel", {"lm_head.weight"}),
        ("BartForQuestionAnswering", "BartModel", {"qa_outputs.weight", "qa_outputs.bias"}),
        ("T5ForQuestionAnswering", "T5Model", {"qa_outputs.weight", "qa_outputs.bias"}),
        ("BertForTokenClassification", "BertForMaskedLM", {"classifier.weight", "classifier.bias"}),
    ],
)
def test_a_head_that_is_not_requested_is_ignored_with_a_reason(tmp_path, headed, bare, ignored):
    network, report = load(write_folder(tmp_path, headed), architecture=bare)
    lines = report.with_status(LoadStatus.IGNORED)
    assert {line.theirs for line in lines} == ignored
    assert all(says(line.reason, "belongs to", bare) for line in lines)
    old, new = parameters(network_of(headed)), parameters(network)
    assert all(equal_bits(new[name], old[name]) for name in new if name not in report.newly_initialized)


def test_new_heads_follow_their_seed_and_leave_the_global_generator_alone(tmp_path):
    folder = write_folder(tmp_path, "BertForMaskedLM", **ONE_BLOCK)
    state = torch.get_rng_state()
    first, again, other = (load(folder, architecture="BertForTokenClassification", seed=s)[0] for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert same(first, again)
    assert not torch.equal(first.head.output.weight, other.head.output.weight)
    assert first.head.output.weight.std() > 0
    assert torch.equal(first.head.output.bias, torch.zeros(2))


def test_num_labels_can_be_changed(tmp_path):
    network, report = load(
        write_folder(tmp_path), architecture="BertForSequenceClassification", config_overrides={"num_labels": 5}
    )
    assert network.head.output.weight.shape == (5, 24)
    assert report.origin.architecture == "BertForSequenceClassification"
    assert report.origin.config["num_labels"] == 5


def test_num_labels_overrides_the_label_names_of_the_config(tmp_path):
    folder = write_folder(tmp_path)
    change_config(folder, id2label={"0": "bad", "1": "good", "2": "unclear"})
    network, _ = load(folder, architecture="BertForSequenceClassification", config_overrides={"num_labels": 5})
    assert network.config.head.labels == 5


def test_a_tensor_that_repeats_the_token_embedding_is_tied(tmp_path):
    folder = write_folder(tmp_path, "GPT2LMHeadModel")
    tensors = weights(folder)
    write_weights(folder, {**tensors, "lm_head.weight": tensors["transformer.wte.weight"]})
    network, report = load(folder)
    assert same(network, network_of("GPT2LMHeadModel"))
    (line,) = report.with_status(LoadStatus.TIED)
    assert line.theirs == "lm_head.weight"
    assert says(line.reason, "tied to transformer.wte.weight")


def test_all_names_of_a_shared_embedding_are_tied(tmp_path):
    folder = write_folder(tmp_path, "BartForConditionalGeneration")
    tensors = weights(folder)
    names = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"]
    write_weights(folder, tensors | {name: tensors["model.shared.weight"].clone() for name in names})
    network, report = load(folder)
    assert same(network, network_of("BartForConditionalGeneration"))
    assert [line.theirs for line in report.with_status(LoadStatus.TIED)] == names


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "GPT2DoubleHeadsModel", "T5ForConditionalGeneration"])
def test_an_output_projection_that_differs_is_untied_regardless_of_the_config(tmp_path, architecture):
    folder = write_folder(tmp_path / "first", architecture)
    write_weights(folder, {**weights(folder), "lm_head.weight": torch.randn(47, 24)})
    network, report = load(folder)
    words = network.head.words if architecture == "GPT2DoubleHeadsModel" else network.head
    design = network.config.head.words if architecture == "GPT2DoubleHeadsModel" else network.config.head
    assert design.weights is Weights.OWN
    assert equal_bits(words.output.weight, weights(folder)["lm_head.weight"])
    save(network, tmp_path / "again", origin=report.origin)
    assert same(load(tmp_path / "again")[0], network)


def test_a_bias_under_two_names(tmp_path):
    folder = write_folder(tmp_path)
    tensors = weights(folder)
    write_weights(folder, {**tensors, "cls.predictions.decoder.bias": tensors["cls.predictions.bias"]})
    network, report = load(folder)
    assert same(network, network_of("BertForMaskedLM"))
    assert [line.theirs for line in report.with_status(LoadStatus.TIED)] == ["cls.predictions.decoder.bias"]


@pytest.mark.parametrize(
    ("architecture", "name", "tensor", "reason"),
    [
        ("BertForMaskedLM", "bert.embeddings.position_ids", torch.arange(19)[None], "0, 1, 2"),
        ("GPT2LMHeadModel", "transformer.h.1.attn.bias", torch.ones(1, 1, 19, 19).tril().bool(), "causal mask"),
        ("GPT2LMHeadModel", "transformer.h.0.attn.masked_bias", torch.tensor(-1e4), "mask"),
        ("LlamaForCausalLM", "model.layers.1.self_attn.rotary_emb.inv_freq", torch.ones(3), "computed"),
        ("MarianMTModel", "model.encoder.embed_positions.weight", torch.ones(19, 24), "computed"),
        (
            "T5Model",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
            torch.ones(6, 4),
            "unused",
        ),
    ],
)
def test_tensors_that_are_known_and_not_needed_are_ignored_with_a_reason(tmp_path, architecture, name, tensor, reason):
    folder = write_folder(tmp_path, architecture)
    write_weights(folder, {**weights(folder), name: tensor})
    network, report = load(folder)
    assert same(network, network_of(architecture))
    (line,) = report.with_status(LoadStatus.IGNORED)
    assert line.theirs == name
    assert says(line.reason, reason)


def test_a_fixed_bias_that_is_not_stored_is_zero(tmp_path):
    folder = write_folder(tmp_path, "MarianMTModel")
    tensors = weights(folder)
    del tensors["final_logits_bias"]
    write_weights(folder, tensors)
    network, report = load(folder)
    assert torch.equal(network.head.bias, torch.zeros(47))
    assert not network.head.bias.requires_grad
    assert not report.newly_initialized


def test_training_does_not_write_to_the_file(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    before = (folder / "model.safetensors").read_bytes()
    network, _ = load(folder)
    with torch.no_grad():
        for value in network.parameters():
            value.add_(1)
    assert (folder / "model.safetensors").read_bytes() == before
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))


def test_a_loaded_network_survives_its_file(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    network, _ = load(folder)
    write_bytes(folder / "model.safetensors", b"gone")
    assert same(network, network_of("BertForMaskedLM", **ONE_BLOCK))


def test_nothing_is_half_loaded_when_the_last_shard_does_not_fit(tmp_path, monkeypatch):
    """All tensors are checked before the first is assigned."""
    folder = write_folder(tmp_path, **ONE_BLOCK)
    tensors = weights(folder)
    write_tensors(folder, {**tensors, "cls.predictions.bias": torch.ones(3)}, max_shard_bytes=4000)
    filled = []
    monkeypatch.setattr("regard.checkpoint.load._fill_parameters", lambda *_: filled.append(1))
    with pytest.raises(ValueError, match=r"cls\.predictions\.bias"):
        load(folder)
    assert not filled


def test_metadata_is_ignored(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    tensors = weights(folder)
    (folder / "model.safetensors").unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "np", "written by": "somebody"})
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))
