"""Hypothesis strategies for random configs of any family, chosen by the names of its keys."""

from hypothesis import strategies as st

from regard.families.family import ACTIVATIONS, OptionalKey

MODEL_DIMS = {"hidden_size", "n_embd", "d_model", "dim"}
HEADS = {"num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"}
FIXED_KEYS = {
    *["normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits", "rope_scaling"],
    *["static_position_embeddings", "position_embedding_type", "summary_type", "summary_use_proj"],
    *["summary_activation", "rotary_value"],
}
"""Keys with a single valid value, and older names of other keys."""

DROPOUT = st.floats(0, 0.9)
CHOICES = {
    "activation_function": st.sampled_from(sorted(ACTIVATIONS)),
    "hidden_act": st.sampled_from(sorted(ACTIVATIONS)),
    "activation": st.sampled_from(["gelu", "relu"]),
    "afn": st.sampled_from(["gelu", "relu", "silu"]),
    "feed_forward_proj": st.sampled_from(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu"]),
    "num_key_value_heads": st.sampled_from([None, 1]),
    "head_dim": st.none() | st.integers(1, 9),
    "n_inner": st.none() | st.integers(1, 99),
    "num_decoder_layers": st.none() | st.integers(1, 3),
    "decoder_vocab_size": st.none() | st.integers(5, 60),
    "scale_decoder_outputs": st.none() | st.booleans(),
    "pad_token_id": st.integers(0, 4),
    "max_position_embeddings": st.integers(8, 40),
    "num_labels": st.integers(1, 7),
    "rope_parameters": st.sampled_from(
        [
            None,
            {"rope_theta": 77.0, "rope_type": "default"},
            {"rope_theta": 77.0, "rope_type": "linear", "factor": 3.0},
            dict(rope_theta=77.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=24),
        ]
    ),
}  # fmt: skip


def value(key, default):
    """Return a strategy for the values of a key."""
    if key in CHOICES:
        return CHOICES[key]
    if key in MODEL_DIMS:
        return st.sampled_from([24, 48, 72])
    if key in HEADS:
        return st.sampled_from([1, 2, 3, 4, 6])
    if "drop" in key:
        return DROPOUT if default is not None else st.none() | DROPOUT
    if isinstance(default, OptionalKey) and default.type is int:
        return st.none() | st.integers(1, 60)
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(1, 60)
    return st.floats(1e-9, 10.0)


def configs(family):
    """Return a strategy for configs of a family, with some of its keys."""
    keys = {key: value(key, default) for key, default in family.keys.items() if key not in FIXED_KEYS}
    sizes = {key: keys.pop(key) for key in list(keys) if key in MODEL_DIMS | HEADS}
    return st.fixed_dictionaries(sizes, optional={**keys, "num_labels": CHOICES["num_labels"]})
