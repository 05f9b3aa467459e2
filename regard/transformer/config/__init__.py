"""The architecture of a network as data: frozen dataclasses and enums.

Every choice in which the published Transformers differ is a field here. A config can be built (`network.build`), its
parameters counted without allocating them (`summary.count_parameters`), and it converts to JSON and back without
loss (`config_json.py`).

    EncoderOnly     = Embedding -> Stack ----------------------------------> Head     BERT
    DecoderOnly     = Embedding -> Stack (causal) -------------------------> Head     GPT-2, Llama
    EncoderDecoder  = Embedding -> Stack -+
                      Embedding -> Stack (causal, attends to the encoder) -> Head     2017, BART, T5, Marian
    DualEncoder     = EncoderOnly of texts, EncoderOnly of images, their similarity   CLIP

Fields of the structure have no defaults, so that a difference between two networks is always explicit. Only dropout
probabilities, which are not part of the structure, default to 0.

This file re-exports all config classes: use `config.Attention`, whichever file defines it.
"""

from regard.transformer.config.common import (
    Activation,
    LayerNorm,
    Layout,
    Norm,
    NormOrder,
    OutputBias,
    RMSNorm,
    Weights,
)
from regard.transformer.config.embedding import AdaptiveTokens, Embedding, Patches, Projection, SourceTokens, Tokens
from regard.transformer.config.head import (
    AdaptiveLanguageModel,
    AnswerSearch,
    AtToken,
    Classification,
    Features,
    Head,
    HighestToken,
    LanguageModel,
    PatchClassification,
    Pixels,
    Pooler,
    Pooling,
    ReplacedTokens,
    Span,
    Tagging,
    TokenScores,
    Transform,
    TwoHeads,
)
from regard.transformer.config.initialization import ByWidth, FanIn, Glorot, Initialization, Normal, ScaledNormal
from regard.transformer.config.network import (
    DecoderOnly,
    DualEncoder,
    EncoderDecoder,
    EncoderOnly,
    Network,
    SingleNetwork,
    TwoStream,
)
from regard.transformer.config.position import (
    ALiBi,
    Learned,
    LinearStretch,
    LlamaStretch,
    Relative,
    RelativeAndSegment,
    RelativeBuckets,
    RelativeWaves,
    Rotary,
    Sinusoidal,
)
from regard.transformer.config.stack import Apart, Attention, Begin, Block, Dense, Gated, Groups, Recurrence, Stack
