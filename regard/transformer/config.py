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
"""

import enum
from dataclasses import dataclass

from regard.transformer.mask import Band, Causal, Everything, Window


class Activation(enum.Enum):
    """The non-linearity of a feed-forward layer or a head."""

    RELU = "relu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    TANH = "tanh"
    QUICK_GELU = "quick_gelu"


class NormOrder(enum.Enum):
    """Where the norm stands relative to the residual connection."""

    POST = "post"
    """norm(x + sublayer(x)): the 2017 paper, BERT, BART."""
    PRE = "pre"
    """x + sublayer(norm(x)): GPT-2, T5, Llama."""
    BOTH = "both"
    """x + norm(sublayer(norm(x))): a norm on either side of the sublayer."""


class Layout(enum.Enum):
    """How sines and cosines share a vector."""

    INTERLEAVED = "interleaved"
    """sin, cos, sin, cos, …: as the paper writes it."""
    HALVES = "halves"
    """All sines, then all cosines: as the paper's own code, and Marian, computed it."""


class Weights(enum.Enum):
    """Whether a matrix is its own or borrowed."""

    OWN = "own"
    TIED = "tied"


class OutputBias(enum.Enum):
    """The bias that a language-modelling head adds to its logits."""

    NONE = "none"
    LEARNT = "learnt"
    FIXED = "fixed"
    """Part of the model, not trained: BART's and Marian's `final_logits_bias`."""


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al. 2016)."""

    epsilon: float
    """Added to the variance, so that a constant vector does not divide by zero."""


@dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """Divide by the root of the mean square, and scale (Zhang and Sennrich 2019)."""

    epsilon: float
    """Added to the mean square."""


Norm = LayerNorm | RMSNorm


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed waves added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    layout: Layout
    """How sines and cosines share the vector."""
    length: int
    """The longest row that the network is meant for. The formula itself knows no end."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One trained vector for each position, added to the embeddings."""

    length: int
    """The longest row: there is no vector for a later position."""
    offset: int
    """How many unused vectors precede that of the first position (BART: 2)."""


@dataclass(frozen=True, kw_only=True)
class LinearStretch:
    """Rotary frequencies divided by a factor, for longer rows than were trained on."""

    factor: float
    """How many times longer."""


@dataclass(frozen=True, kw_only=True)
class LlamaStretch:
    """Llama 3.1's stretch: slow waves are slowed down, fast ones kept, those between blended."""

    factor: float
    """How much the slowest waves are slowed down."""
    low_frequency: float
    """Waves that turn fewer times than this within `original_length` are slowed down in full."""
    high_frequency: float
    """Waves that turn more often than this are kept."""
    original_length: int
    """The length of the rows of the first training."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Query and key turned by an angle that grows with the position (Su et al. 2021)."""

    base: float
    """The waves' lengths run from 2π to nearly 2π·base."""
    length: int
    """The longest row that the network is meant for."""
    stretch: LinearStretch | LlamaStretch | None
    """A change of the frequencies for longer rows, if there is one."""


@dataclass(frozen=True, kw_only=True)
class RelativeBuckets:
    """A trained number for each head and bucket of distances, added to the scores (Raffel et al. 2019)."""

    buckets: int
    """How many buckets; half of them for the tokens after, where the stack looks both ways."""
    distance: int
    """From this distance on, everything falls in the last bucket."""


@dataclass(frozen=True, kw_only=True)
class RelativeWaves:
    """Waves of the distance between query and key; each block makes scores of them (Dai et al. 2019)."""

    farthest: int | None
    """Larger distances count as this one, if it is given."""
    dropout: float = 0.0
    """Dropout of the waves."""


@dataclass(frozen=True, kw_only=True)
class Relative:
    """Scores of content and of distance: (query + u)·key + (query + v)·(waves of the distance)."""


@dataclass(frozen=True, kw_only=True)
class RelativeAndSegment:
    """The same, and a score of whether query and key are of the same segment (Yang et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class ALiBi:
    """A penalty that grows in proportion to the distance, with a slope for each head (Press et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A table with one trained vector for each token of the vocabulary."""

    vocabulary: int
    """How many tokens there are."""
    padding: int | None
    """The id that fills up short rows, if the family has one. It is never computed; training never reads its vector."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveTokens:
    """Tables in steps: rare tokens have smaller vectors, and a projection brings all to the model's size."""

    vocabulary: int
    """How many tokens there are, the frequent ones first."""
    cutoffs: tuple[int, ...]
    """Where the vectors become smaller: the first ids of the second table, the third and so on."""
    dim: int
    """The size of the first table's vectors."""
    divisor: int
    """Each next table's are smaller by this factor."""
    padding: int | None
    """The id that fills up short rows, if the family has one."""


@dataclass(frozen=True, kw_only=True)
class SourceTokens:
    """The token table of the encoder, used again by the decoder."""


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into patches, each made a vector by one layer, and a trained class vector put before them."""

    image: tuple[int, ...]
    """Height and width of the images, in pixels."""
    patch: tuple[int, ...]
    """Height and width of a patch. What is left over at the lower and right edge is not read."""
    channels: int
    """How many numbers a pixel has (3: red, green, blue)."""
    bias: bool
    """Whether the layer has a bias."""
    mask_vector: bool
    """Whether there is a vector that stands for patches that are hidden (masked image modelling)."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A layer from the size of the embedding to that of the model (factorised embeddings)."""

    bias: bool
    """Whether it has a bias."""


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """From token ids to vectors: tokens · scale + segments + positions, then norm, dropout and projection."""

    tokens: Tokens | AdaptiveTokens | SourceTokens | Patches
    """The token table, or how images are cut."""
    dim: int
    """The size of its vectors: the model's, unless a projection follows."""
    scale: float
    """What token vectors are multiplied by (2017: the root of the model's size)."""
    segments: int
    """How many kinds of segment there are (BERT: 2), 0 where segments are unknown."""
    position: Sinusoidal | Learned | None
    """What is added for the position."""
    norm: Norm | None
    """The norm of the sum."""
    projection: Projection | None
    """What brings the sum to the model's size, where tables are smaller (ALBERT, ELECTRA)."""
    dropout: float = 0.0
    """Dropout of the sum."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Multi-head attention, to oneself or across."""

    heads: int
    """How many heads ask (queries)."""
    key_value_heads: int
    """How many heads answer (keys and values): each serves heads / key_value_heads queries."""
    head_dim: int
    """The size of one head's query, key and value."""
    scale: float
    """What query·key is multiplied by: 1/√head_dim in the paper, 1 in T5."""
    bias: bool
    """Whether the projections of query, key and value have a bias."""
    output_bias: bool
    """Whether the output projection has a bias."""
    position: Relative | RelativeAndSegment | None
    """What the block itself makes of the positions that its stack gives (`Stack.position`)."""
    dropout: float = 0.0
    """Dropout of the attention weights."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Dense:
    """down(activation(up(x)))."""

    dim: int
    """The inner size."""
    activation: Activation
    """What stands between the two layers."""
    bias: bool
    """Whether the layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner values."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Gated:
    """down(activation(gate(x)) · up(x)) (Shazeer 2020)."""

    dim: int
    """The inner size."""
    activation: Activation
    """What the gate goes through."""
    bias: bool
    """Whether the layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner values."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a stack: attention, cross-attention where there is an encoder to look at, feed-forward."""

    attention: Attention
    """Attention of the row to itself."""
    cross_attention: Attention | None
    """Attention to the encoder's output."""
    feedforward: Dense | Gated
    """The layer that treats each position alone."""
    norm: Norm
    """The norm of every sublayer."""
    order: NormOrder
    """Where that norm stands."""
    mask: Everything | Window | Band
    """A narrowing of the stack's mask for this block alone (GPT-3's local bands)."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Every layer has a block of its own."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Layers that follow each other use the same blocks again (ALBERT; with one group, a Universal Transformer)."""

    groups: int
    """How many groups of layers there are: those of a group share all parameters."""
    inner: int
    """How many blocks one turn of a group has."""


class Begin(enum.Enum):
    """What a network with memory remembers before the first segment of a text."""

    EMPTY = "empty"
    ZEROS = "zeros"
    """Vectors of zeros, which are attended to like any others (Transformer-XL)."""


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Blocks also attend to what they read in the segment before (Dai et al. 2019)."""

    length: int | None
    """How many tokens are remembered; all of them, if it is left open."""
    begin: Begin
    """What is remembered at first."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks in a row."""

    layers: int
    """How many blocks the vectors pass through."""
    sharing: Apart | Groups
    """Which of them are one and the same."""
    blocks: tuple[Block, ...]
    """The kinds of block, repeated in turn until there are enough. Most networks have one kind."""
    mask: Everything | Causal
    """Who may look at whom: everything for an encoder, causal for a decoder."""
    position: Rotary | RelativeBuckets | RelativeWaves | ALiBi | None
    """Positions that enter in every block, shared by all of them."""
    memory: Recurrence | None
    """What is remembered from one segment of a long text to the next."""
    final_norm: Norm | None
    """A norm after the last block, usual where the norms stand before their sublayers."""
    final_dropout: float = 0.0
    """Dropout after the final norm."""
    layer_dropout: float = 0.0
    """The chance that a whole block is skipped in training (Fan et al. 2019)."""


class Pooling(enum.Enum):
    """How a row becomes one vector."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    MEAN_AFTER_FIRST = "mean_after_first"
    """The mean of all but the first: of an image's patches, without the class vector."""


@dataclass(frozen=True, kw_only=True)
class AtToken:
    """A row's vector is the one at the first place where this token stands (CLIP: the end of the text)."""

    token: int
    """The token's id."""


@dataclass(frozen=True, kw_only=True)
class HighestToken:
    """A row's vector is the one at its highest id, the first if there are several: in CLIP the end of the text."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A layer, an activation and perhaps a norm between the stack and the last layer of a head."""

    activation: Activation
    """The activation."""
    norm: Norm | None
    """The norm after it (BERT's masked-language-modelling head)."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A score for each token of the vocabulary at each position: causal and masked language modelling alike."""

    vocabulary: int
    """How many tokens there are."""
    transform: Transform | None
    """What comes before the last layer."""
    scale: float
    """What the vectors are multiplied by first (T5 1.0: 1/√model_dim)."""
    weights: Weights
    """The last layer's own matrix, or the token table's."""
    bias: OutputBias
    """What is added to the scores."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveLanguageModel:
    """Log-probabilities of all tokens, in the steps of `AdaptiveTokens`: first which step, then which token of it."""

    tables: Weights
    """The matrices' own, or the token tables'."""
    projections: tuple[Weights, ...]
    """The same of the projections, step by step."""


@dataclass(frozen=True, kw_only=True)
class Classification:
    """One score for each label from one vector for each row."""

    labels: int
    """How many labels: 1 for regression and for multiple choice (one score for each choice)."""
    pooling: Pooling
    """How the row becomes one vector."""
    transform: Transform | None
    """What comes before the last layer."""
    bias: bool
    """Whether the last layer has a bias."""
    input_dropout: float = 0.0
    """Dropout of the pooled vector."""
    dropout: float = 0.0
    """Dropout before the last layer."""


@dataclass(frozen=True, kw_only=True)
class Pooler:
    """One vector for each row, for use as features."""

    pooling: Pooling
    """How the row becomes one vector."""
    transform: Transform
    """What the vector goes through."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """One vector for each row, made to be compared with others: pooled, normed, projected (CLIP)."""

    pooling: Pooling | AtToken | HighestToken
    """How the row becomes one vector."""
    norm: Norm | None
    """The norm of that vector."""
    projection: int | None
    """The size to which a layer without bias brings it."""


@dataclass(frozen=True, kw_only=True)
class PatchClassification:
    """One score for each label from the mean of an image's patches (CLIP).

    Its network was trained with `Features`, whose norm stays with it, though nothing reads it any more: published
    files have it.
    """

    labels: int
    """How many labels."""
    pooling: Pooling
    """How the row becomes one vector."""
    unused_norm: Norm
    """The norm that stays."""


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """The pixels of each patch, guessed from its vector (masked image modelling). `Patches.picture` joins them."""

    count: int
    """How many numbers a patch has: channels · height · width."""


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """One score for each label at each position."""

    labels: int
    """How many labels: 1 for ELECTRA's question whether the token was replaced."""
    transform: Transform | None
    """What comes before the last layer."""
    bias: bool
    """Whether the layer has a bias."""
    dropout: float = 0.0
    """Dropout before the layer."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Two scores at each position: that the answer starts here, that it ends here."""

    labels: int
    """How many scores the layer gives: 2."""
    dropout: float = 0.0
    """Dropout before the layer."""


@dataclass(frozen=True, kw_only=True)
class AnswerSearch:
    """Answer spans found by search: the best starts, for each of them the best ends, and whether there is an answer."""

    starts: int
    """How many starts are tried."""
    ends: int
    """How many ends for each of them."""
    norm: Norm
    """The norm before an end is scored."""


@dataclass(frozen=True, kw_only=True)
class TwoHeads:
    """A head over the tokens and one over the whole row: BERT's pretraining, GPT-2's double head."""

    words: LanguageModel
    """Scores the tokens."""
    sentence: Classification
    """Scores the row: next sentence, multiple choice."""


Head = (
    LanguageModel
    | AdaptiveLanguageModel
    | Classification
    | Pooler
    | Features
    | PatchClassification
    | Pixels
    | Tagging
    | Span
    | AnswerSearch
    | TwoHeads
)


@dataclass(frozen=True, kw_only=True)
class Normal:
    """All matrices from a normal distribution, biases zero, norms one (BERT, BART, Llama)."""

    deviation: float
    """The standard deviation."""


@dataclass(frozen=True, kw_only=True)
class ScaledNormal:
    """As Normal, with what is added to the residual stream made smaller by √(2·layers) (GPT-2)."""

    deviation: float
    """The standard deviation."""


@dataclass(frozen=True, kw_only=True)
class FanIn:
    """Deviations that follow from the size of the input, so that scores need no scale (T5)."""

    factor: float
    """A factor on all of them."""


@dataclass(frozen=True, kw_only=True)
class Glorot:
    """Uniform, with a width that keeps the variance forward and backward (Glorot and Bengio 2010; 2017's own)."""


@dataclass(frozen=True, kw_only=True)
class ByWidth:
    """Normal, with deviations that follow from the width and the depth of the stack (CLIP).

    As transformers has it: query, key and value get the factor 1/√(2·layers). OpenAI's own code gave it to the
    attention's output instead.
    """

    deviation: float
    """The deviation of tables and of the patches' layer."""
    factor: float
    """A factor on all deviations."""


Initialization = Normal | ScaledNormal | FanIn | Glorot | ByWidth


@dataclass(frozen=True, kw_only=True)
class EncoderOnly:
    """Every position sees every other: BERT, the vision Transformer. (CLIP's text encoder has a causal mask.)"""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    encoder: Stack
    """The blocks."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class DecoderOnly:
    """Every position sees those before it: GPT-2, Llama."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    decoder: Stack
    """The blocks."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder:
    """An encoder reads the source; a decoder writes the target and attends to it: 2017, BART, T5, Marian."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    source: Embedding
    """From source tokens to vectors."""
    target: Embedding
    """From target tokens to vectors."""
    encoder: Stack
    """The blocks that read."""
    decoder: Stack
    """The blocks that write."""
    head: Head | None
    """What the decoder's vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class TwoStream:
    """An encoder that guesses tokens in any order: a second stream asks for a token without seeing it (XLNet)."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    encoder: Stack
    """The blocks, through which both streams pass."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class DualEncoder:
    """Two encoders, of texts and of images, whose features can be compared: CLIP (Radford et al. 2021)."""

    text: EncoderOnly
    """Makes a vector of a text."""
    vision: EncoderOnly
    """Makes a vector of an image, of the same size."""
    scale: float
    """What similarities are multiplied by when training starts, as a logarithm: it is trained like any parameter."""


SingleNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream
Network = SingleNetwork | DualEncoder
