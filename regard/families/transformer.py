"""The Transformer (Vaswani et al. 2017), with the sizes of the paper's table 3.

It is saved in Marian's layout, which is the same architecture: post-norm, sinusoidal positions in halves (as in the
paper's code), ReLU, embeddings scaled by the square root of the model size and shared by source, target and output.
"""

from dataclasses import replace

from regard.families.family import FamilyInfo
from regard.families.marian import FAMILY as MARIAN
from regard.transformer.config import EncoderDecoder, Glorot

INFO = FamilyInfo(
    title="Transformer",
    year=2017,
    paper="Vaswani et al., Attention Is All You Need",
    objective="translation",
    parent=None,
)

PRESETS = {
    "transformer-base": {"d_model": 512, "heads": 8, "inner": 2048, "dropout": 0.1},
    "transformer-big": {"d_model": 1024, "heads": 16, "inner": 4096, "dropout": 0.3},
}


def transformer_2017(
    *,
    vocabulary: int,
    target_vocabulary: int | None = None,
    layers: tuple[int, int] = (6, 6),
    model_dim: int = 512,
    heads: int = 8,
    inner_dim: int | None = None,
    dropout: float = 0.1,
    length: int = 1024,
    padding: int = 0,
) -> EncoderDecoder:
    """Return the config of a 2017 Transformer of any size. The defaults are those of the paper's base model.

    With a separate `target_vocabulary` the target has its own token embedding, tied to the output projection.
    `layers` are the numbers of encoder and decoder blocks, `inner_dim` is the size of the feed-forward layers (default:
    four times `model_dim`), `length` the maximum sequence length.
    """
    feedforward_dim = inner_dim or 4 * model_dim
    keys = {
        "vocab_size": vocabulary,
        "decoder_vocab_size": target_vocabulary,
        "share_encoder_decoder_embeddings": target_vocabulary is None,
        "d_model": model_dim,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": feedforward_dim,
        "decoder_ffn_dim": feedforward_dim,
        "dropout": dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": length,
        "pad_token_id": padding,
    }
    design, _ = MARIAN.read_config(keys, "MarianMTModel")
    assert isinstance(design, EncoderDecoder)
    return replace(design, initialization=Glorot())


def preset(name: str) -> EncoderDecoder:
    """Return the network config of a size of the paper, with its shared vocabulary of about 37,000 (English-German)."""
    size = PRESETS[name]
    return transformer_2017(
        vocabulary=37000,
        model_dim=int(size["d_model"]),
        heads=int(size["heads"]),
        inner_dim=int(size["inner"]),
        dropout=size["dropout"],
    )
