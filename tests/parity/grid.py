"""The grid of cases: every published class of every family, with all configs that change the network."""

import importlib

from parity.oracle import LABELS, Case, modeling

# All sizes differ, so that no two axes can be mistaken for each other; so do the dropout rates.
BERT = dict(
    vocab_size=47, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=37,
    max_position_embeddings=19, type_vocab_size=3, layer_norm_eps=1e-5, hidden_dropout_prob=0.11,
    attention_probs_dropout_prob=0.23, classifier_dropout=0.31, num_labels=LABELS,
)  # fmt: skip
PLAIN_BERT = {key: value for key, value in BERT.items() if key != "classifier_dropout"}
GPT2 = dict(
    vocab_size=47, n_embd=24, n_layer=3, n_head=4, n_inner=37, n_positions=19, resid_pdrop=0.11, embd_pdrop=0.17,
    attn_pdrop=0.23, summary_first_dropout=0.31, num_labels=LABELS,
)  # fmt: skip
BART = dict(
    vocab_size=47, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
    decoder_attention_heads=6, encoder_ffn_dim=37, decoder_ffn_dim=41, max_position_embeddings=19, dropout=0.11,
    attention_dropout=0.23, activation_dropout=0.17, decoder_start_token_id=2, num_labels=LABELS,
)  # fmt: skip
T5 = dict(
    vocab_size=47, d_model=24, d_kv=5, d_ff=37, num_layers=2, num_decoder_layers=3, num_heads=4,
    relative_attention_num_buckets=6, relative_attention_max_distance=5, dropout_rate=0.11, classifier_dropout=0.31,
    decoder_start_token_id=0, num_labels=LABELS,
)  # fmt: skip
LLAMA = dict(
    vocab_size=47, hidden_size=24, intermediate_size=37, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=19, attention_dropout=0.23, num_labels=LABELS,
)  # fmt: skip
VIT = dict(
    hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=37, image_size=15, patch_size=5,
    num_channels=2, encoder_stride=5, hidden_dropout_prob=0.11, attention_probs_dropout_prob=0.23, num_labels=LABELS,
)  # fmt: skip
CLIP_TEXT = dict(
    vocab_size=47, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=37,
    max_position_embeddings=19, attention_dropout=0.23, projection_dim=13, eos_token_id=5,
)  # fmt: skip
CLIP_VISION = dict(
    hidden_size=30, num_hidden_layers=2, num_attention_heads=5, intermediate_size=41, image_size=15, patch_size=5,
    num_channels=2, attention_dropout=0.31, projection_dim=13, layer_norm_eps=1e-4,
)  # fmt: skip
CLIP = dict(text_config=CLIP_TEXT, vision_config=CLIP_VISION, projection_dim=11, num_labels=LABELS)
GATED = T5 | dict(feed_forward_proj="gated-gelu")
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=24)  # fmt: skip

SIZES = {
    "bert": BERT,
    "gpt2": GPT2,
    "bart": BART | dict(classifier_dropout=0.31),
    "t5": T5,
    "marian": BART | dict(scale_embedding=True, activation_function="swish"),
    "llama": LLAMA,
    "roberta": BERT | dict(max_position_embeddings=21),
    "xlm-roberta": BERT | dict(max_position_embeddings=21),
    "distilbert": dict(
        vocab_size=47,
        dim=24,
        n_layers=3,
        n_heads=4,
        hidden_dim=37,
        max_position_embeddings=19,
        dropout=0.11,
        attention_dropout=0.23,
        qa_dropout=0.29,
        seq_classif_dropout=0.31,
        num_labels=LABELS,
    ),
    "albert": PLAIN_BERT
    | dict(embedding_size=10, num_hidden_groups=2, num_hidden_layers=5, classifier_dropout_prob=0.31),
    "electra": BERT | dict(embedding_size=10, summary_last_dropout=0.37),
    "roformer": PLAIN_BERT | dict(embedding_size=10),
    "xlnet": dict(
        vocab_size=47,
        d_model=24,
        n_layer=3,
        n_head=4,
        d_inner=37,
        dropout=0.11,
        mem_len=6,
        summary_last_dropout=0.31,
        num_labels=LABELS,
        start_n_top=2,
        end_n_top=3,
    ),
    "openai-gpt": {key: value for key, value in GPT2.items() if key != "n_inner"},
    "ctrl": dict(
        vocab_size=47,
        n_embd=24,
        n_layer=3,
        n_head=4,
        dff=37,
        n_positions=19,
        resid_pdrop=0.11,
        embd_pdrop=0.17,
        layer_norm_epsilon=1e-4,
        num_labels=LABELS,
    ),
    "vit": VIT,
    "clip": CLIP,
    "clip_text_model": CLIP_TEXT,
    "clip_vision_model": CLIP_VISION,
    "mbart": BART | dict(classifier_dropout=0.31, scale_embedding=True),
}

VARIANTS = [
    Case("bert", "BertLMHeadModel", BERT | dict(is_decoder=True), "decoder"),
    Case("bert", "BertForMaskedLM", BERT | dict(tie_word_embeddings=False, hidden_act="relu"), "untied"),
    Case("electra", "ElectraForMaskedLM", BERT | dict(embedding_size=24, tie_word_embeddings=False), "same-size"),
    Case("electra", "ElectraForCausalLM", BERT | dict(embedding_size=10, is_decoder=True), "decoder"),
    Case("roformer", "RoFormerForMaskedLM", PLAIN_BERT | dict(tie_word_embeddings=False), "same-size"),
    Case("roformer", "RoFormerForQuestionAnswering", PLAIN_BERT | dict(num_labels=5), "of-more-labels"),
    Case("roformer", "RoFormerForCausalLM", PLAIN_BERT | dict(embedding_size=10, is_decoder=True), "decoder"),
    Case("albert", "AlbertForMaskedLM", PLAIN_BERT
         | dict(embedding_size=24, num_hidden_groups=3, inner_group_num=2), "inner-groups"),
    Case("xlnet", "XLNetLMHeadModel", dict(vocab_size=47, d_model=24, n_layer=2, n_head=4, d_inner=37, dropout=0.11,
         attn_type="uni", clamp_len=3, ff_activation="relu"), "uni"),
    Case("roberta", "RobertaForCausalLM", BERT | dict(is_decoder=True), "decoder"),
    Case("xlm-roberta", "XLMRobertaForCausalLM", BERT | dict(is_decoder=True), "decoder"),
    Case("gpt2", "GPT2LMHeadModel", GPT2 | dict(scale_attn_by_inverse_layer_idx=True), "scaled-by-layer"),
    Case("gpt2", "GPT2LMHeadModel", GPT2 | dict(scale_attn_weights=False, n_inner=None), "unscaled"),
    Case("vit", "ViTForImageClassification", VIT | dict(image_size=[9, 16], patch_size=[4, 3]), "oblong"),
    Case("clip", "CLIPModel", CLIP, "old-config",
         edit=dict(text_config=CLIP_TEXT | dict(eos_token_id=2, hidden_act="gelu"), text_config_dict=CLIP_TEXT)),
    Case("clip_text_model", "CLIPTextModelWithProjection", CLIP_TEXT | dict(eos_token_id=2), "legacy-eos"),
    Case("vit", "ViTModel", VIT | dict(qkv_bias=False, head_dim=5, pooler_act="gelu", hidden_act="relu"), "unbiased"),
    Case("bart", "BartForConditionalGeneration", BART | dict(scale_embedding=True), "scaled"),
    Case("t5", "T5ForConditionalGeneration", GATED, "gated"),
    Case("t5", "T5ForConditionalGeneration", GATED | dict(tie_word_embeddings=False), "1.1-new-config",
         untied_output=True),
    Case("t5", "T5ForConditionalGeneration", GATED | dict(tie_word_embeddings=False), "1.1-old-config",
         untied_output=True, edit=dict(tie_word_embeddings=False, scale_decoder_outputs="remove")),
    Case("marian", "MarianMTModel",
         BART | dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=53), "untied-embeddings"),
    Case("llama", "LlamaForCausalLM", LLAMA | dict(attention_bias=True, mlp_bias=True, head_dim=10), "biased"),
    Case("llama", "LlamaForCausalLM", LLAMA | dict(tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE), "llama3"),
    Case("llama", "LlamaForCausalLM",
         LLAMA | dict(rope_parameters=dict(rope_type="linear", rope_theta=777.0, factor=3.0)), "linear"),
]  # fmt: skip

# Classes of transformers that are not in the grid, and why.
ABSENT = {
    "PretrainedBartModel": "an old alias of an abstract class",
    "BartPretrainedModel": "an old alias of an abstract class",
    "RoFormerForMultipleChoice": "it scores the last column, padding or not, so the result depends on the batch",
    "XLNetForQuestionAnswering": "its span search is tested in test_xlnet.py",
    "BertLayer": "one block, not a network",
    "RoFormerLayer": "one block, not a network",
    "GPT2Block": "one block, not a network",
}


def published(family):
    """Return the classes that transformers publishes for a family."""
    module = importlib.import_module(modeling(family))
    return [
        name for name in module.__all__ if not name.endswith("PreTrainedModel") and _belongs_to(family, module, name)
    ]


def _belongs_to(family, module, name):
    """Whether a class belongs to the family; some modules of transformers contain several families."""
    config = getattr(getattr(module, name), "config_class", None)
    return config is None or config.model_type == family


def _settings(family, name):
    sizes = SIZES[family]
    return sizes | dict(num_labels=2) if "QuestionAnswering" in name else sizes


GRID = [
    Case(family, name, _settings(family, name)) for family in SIZES for name in published(family) if name not in ABSENT
] + VARIANTS
