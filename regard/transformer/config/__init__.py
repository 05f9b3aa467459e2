"""What a network is made of, said as data.

Every choice in which the published Transformers differ is a value here: a frozen dataclass or an enum. A network is
built from such a value (`network.build`), counted from it without allocating anything (`describe.count`), and written
to JSON and read back from it without loss (`config_json.py`).

    EncoderOnly     = Embedding -> Stack ----------------------------------> Head     BERT
    DecoderOnly     = Embedding -> Stack (causal) -------------------------> Head     GPT-2, Llama
    EncoderDecoder  = Embedding -> Stack -+
                      Embedding -> Stack (causal, attends to the encoder) -> Head     2017, BART, T5, Marian
    DualEncoder     = EncoderOnly of texts, EncoderOnly of images, their similarity   CLIP

Structure has no defaults: two networks that differ, differ in what is written down. Only rates of dropout, which are
no part of the structure, default to none.

This file is a table of names: `config.Attention` is found in one place, whatever file it is written in.
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
