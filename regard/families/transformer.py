"""The Transformer (Vaswani et al. 2017), with the sizes of the paper's table 3.

It is saved as Marian's, which it is: post-norm, sinusoidal positions in halves (as the paper's own code had them),
ReLU, embeddings scaled by the root of the model's size and shared by source, target and output.
"""

from dataclasses import replace

from regard.families.family import Story
from regard.families.marian import FAMILY as MARIAN
from regard.transformer.config import EncoderDecoder, Glorot

STORY = Story(
    title="Transformer",
    year=2017,
    paper="Vaswani et al., Attention Is All You Need",
    objective="translate",
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
    """A 2017 Transformer of any size; what is left out is as in the paper's base model.

    Where the target has a vocabulary of its own, it has vectors of its own, which the output shares.
    `layers` are those of the encoder and of the decoder, `inner_dim` the size inside the feed-forward layers (four
    times `model_dim` if left out), `length` the longest row that it is meant for.
    """
    inner = inner_dim or 4 * model_dim
    keys = {
        "vocab_size": vocabulary,
        "decoder_vocab_size": target_vocabulary,
        "share_encoder_decoder_embeddings": target_vocabulary is None,
        "d_model": model_dim,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "dropout": dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": length,
        "pad_token_id": padding,
    }
    design, _ = MARIAN.read(keys, "MarianMTModel")
    assert isinstance(design, EncoderDecoder)
    return replace(design, initialization=Glorot())


def preset(name: str) -> EncoderDecoder:
    """A size of the paper's, with its shared vocabulary of about 37,000 (English and German)."""
    size = PRESETS[name]
    return transformer_2017(
        vocabulary=37000,
        model_dim=int(size["d_model"]),
        heads=int(size["heads"]),
        inner_dim=int(size["inner"]),
        dropout=size["dropout"],
    )
