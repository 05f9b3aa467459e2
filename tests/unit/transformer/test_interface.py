"""What networks read and predict, for every published class; compiled networks have the same interface."""

import pytest
import torch
from unit.generation.networks import KINDS, TRANSFORMER_XL, XLNET, design, translates
from unit.transformer.small_networks import made

from regard.engine import compile
from regard.families.registry import FAMILIES
from regard.transformer.decoder_state import DecoderState
from regard.transformer.interface import GenerativeNetwork, LengthLimits, NetworkInterface, Predicts, Reads
from regard.transformer.network import build, build_on_meta

MEMBERS = (
    "reads", "predicts", "model_dim", "limits", "max_length", "num_labels", "reads_segments", "alignment_address",
    "scores_in_one_pass",
)  # fmt: skip
PREDICTS = {
    "DoubleHeadsModel": {Predicts.NEXT_TOKEN, Predicts.LABEL},
    "XLNetLMHeadModel": {Predicts.NEXT_TOKEN, Predicts.MASKED_TOKEN},
    "ElectraForPreTraining": {Predicts.REPLACED},
    "ForPreTraining": {Predicts.MASKED_TOKEN, Predicts.LABEL},
    "XLNetForQuestionAnswering": {Predicts.SPAN, Predicts.LABEL},
    "CLIPModel": {Predicts.SIMILARITY},
    "LMHeadModel": {Predicts.NEXT_TOKEN},
    "ForCausalLM": {Predicts.NEXT_TOKEN},
    "ForMaskedLM": {Predicts.MASKED_TOKEN},
    "ForConditionalGeneration": {Predicts.NEXT_TOKEN},
    "MTModel": {Predicts.NEXT_TOKEN},
    "Classification": {Predicts.LABEL},
    "ForTokenClassification": {Predicts.TAGS},
    "ForMultipleChoice": {Predicts.LABEL},
    "ForNextSentencePrediction": {Predicts.LABEL},
    "ForQuestionAnswering": {Predicts.SPAN},
    "ForQuestionAnsweringSimple": {Predicts.SPAN},
    "ForMaskedImageModeling": {Predicts.PIXELS},
    "Model": {Predicts.VECTORS},
    "WithProjection": {Predicts.VECTORS},
}
"""By the ending of the class name; the longest ending counts."""
ENCODERS = ("Bert", "Roberta", "Electra", "RoFormer")
"""Without `is_decoder`, the causal classes of these are encoders."""
CLASSES = [(family, name) for family in FAMILIES for name in FAMILIES[family].architectures]


@pytest.mark.parametrize(("family", "name"), CLASSES)
def test_every_published_class_predicts_what_its_name_says(family, name):
    ending = max((end for end in PREDICTS if name.endswith(end)), key=len)
    expected = PREDICTS[ending]
    if ending in ("ForCausalLM", "LMHeadModel") and name.startswith(ENCODERS):
        expected = {Predicts.MASKED_TOKEN}
    assert FAMILIES[family].read_config({}, name)[0].predicts == expected


@pytest.mark.parametrize(
    ("family", "name", "reads"),
    [
        ("bert", "BertForMaskedLM", Reads.TOKENS),
        ("gpt2", "GPT2LMHeadModel", Reads.TOKENS),
        ("xlnet", "XLNetModel", Reads.TOKENS),
        ("bart", "BartForSequenceClassification", Reads.SOURCE_AND_TARGET),
        ("t5", "T5EncoderModel", Reads.TOKENS),
        ("vit", "ViTForImageClassification", Reads.IMAGE),
        ("clip", "CLIPModel", Reads.TEXT_AND_IMAGE),
    ],
)
def test_what_networks_read(family, name, reads):
    network = build_on_meta(FAMILIES[family].read_config({}, name)[0])
    assert network.reads is reads
    assert isinstance(network, NetworkInterface)
    assert isinstance(network, GenerativeNetwork) == (family in ("gpt2", "xlnet", "bart"))


def test_lengths_labels_and_segments():
    def published(family, name, **values):
        return build_on_meta(FAMILIES[family].read_config(values, name)[0])

    bert = published("bert", "BertForTokenClassification", num_labels=5, max_position_embeddings=33)
    assert (bert.max_length, bert.num_labels, bert.reads_segments, bert.model_dim) == (33, 5, True, 768)
    assert bert.limits == (None, LengthLimits(vocabulary=30522, max_positions=33, context_length=33))
    roformer = published("roformer", "RoFormerModel", max_position_embeddings=40)
    assert (roformer.max_length, roformer.limits[1].max_positions) == (40, None)
    llama = published("llama", "LlamaForCausalLM", max_position_embeddings=40, num_hidden_layers=1)
    assert (llama.max_length, llama.limits[1].context_length, llama.reads_segments) == (None, 40, False)
    xlnet = published("xlnet", "XLNetForSequenceClassification", num_labels=3, **XLNET)
    assert (xlnet.max_length, xlnet.num_labels, xlnet.reads_segments) == (None, 3, True)
    bart = published("bart", "BartForConditionalGeneration", max_position_embeddings=50)
    assert (bart.max_length, bart.alignment_address) == (50, "decoder.blocks.10.cross_attention")
    clip = published("clip", "CLIPModel")
    assert (clip.model_dim, clip.num_labels) == (512, 0)


def test_only_networks_whose_steps_are_one_pass_score_in_one_pass():
    one_pass = {kind: build_on_meta(design(kind)).scores_in_one_pass for kind in KINDS}
    assert [kind for kind in KINDS if not one_pass[kind]] == ["memory", "two streams"]
    endless = FAMILIES["transfo-xl"].read_config(TRANSFORMER_XL, "TransfoXLModel")[0]
    assert not build(endless).scores_in_one_pass


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_networks_have_the_same_interface(kind):
    original = made(design(kind)).float()
    compiled = compile(original)
    assert isinstance(compiled, GenerativeNetwork)
    assert {name: getattr(compiled, name) for name in MEMBERS} == {name: getattr(original, name) for name in MEMBERS}
    with torch.inference_mode():
        state = compiled.new_decoder_state([[5, 6]] if translates(kind) else None)
        assert isinstance(state, DecoderState)
        torch.testing.assert_close(
            state.step([[3, 4]]), original.new_decoder_state([[5, 6]]).step([[3, 4]]), rtol=1e-4, atol=1e-4
        )


def test_an_encoder_decoder_needs_sources():
    with pytest.raises(ValueError, match="pass the source tokens"):
        made(design("translating")).new_decoder_state(None)
