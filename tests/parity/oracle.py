"""The oracle: transformers, made exact, with every parameter random.

Some of its families compute a part in float32 whatever the model's type (norms, softmax, angles). `exactly()` lets
them compute in float64 there, so that one tolerance, 1e-9, holds for every family.
"""

import contextlib
import json
import sys
import types
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers.core_model_loading import revert_weight_conversion

from regard.checkpoint.load import Table, _base, _modern_names, _spelt_out, load
from regard.families.registry import FAMILIES
from regard.families.weight_map import Place
from regard.transformer.batch_layout import Rows
from regard.transformer.block import Block
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.network import EncoderDecoder, EncoderOnly
from regard.transformer.patches import MaskedImages, Patches
from regard.transformer.two_stream import TwoStream

ROWS, LENGTH, TARGET_LENGTH, LABELS = 3, 7, 5, 4
PAD, END = 1, 2
LAST_BEFORE_NORM = {"vit", "clip", "clip_text_model", "clip_vision_model"}
"""Families whose last hidden state is what the last block gave; elsewhere it is what the final norm made of it."""
FIRST_WORD = 3
"""Ids below are special: they never stand in random text, so that nothing depends on what they mean."""


def modeling(family):
    """The module of transformers that has the classes of a family."""
    folder = {"openai-gpt": "openai", "clip_text_model": "clip", "clip_vision_model": "clip"}.get(family, family)
    return f"transformers.models.{folder}.modeling_{folder}"


@dataclass(frozen=True)
class Case:
    """One published class with one config."""

    family: str
    architecture: str
    sizes: dict = field(default_factory=dict)
    variant: str = ""
    own_last_layer: bool = False
    """Whether the last layer differs from the token table, though the class would tie them."""
    edit: dict = field(default_factory=dict)
    """Changes of config.json after saving: what older releases wrote there."""

    def __str__(self):
        return f"{self.architecture}{'-' if self.variant else ''}{self.variant}"

    @property
    def pair(self):
        return FAMILIES[self.family].architectures[self.architecture]


class _Float64(types.ModuleType):
    """torch, with float64 under the name of float32."""

    def __init__(self):
        super().__init__("torch")
        self.float32 = self.float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def exactly(family, dtype=torch.float64):
    """The family's code of transformers, computing in float64 throughout."""
    if dtype is not torch.float64:
        yield
        return
    names = [modeling(family), "transformers.modeling_rope_utils"]
    modules = [sys.modules[name] for name in names if name in sys.modules]
    as_float = Tensor.float
    try:
        for module in modules:
            module.torch = _Float64()
        if family == "xlnet":  # it makes its waves by .float(); T5 its buckets, which must stay as they are
            Tensor.float = Tensor.double
        yield
    finally:
        Tensor.float = as_float
        for module in modules:
            module.torch = torch


@contextlib.contextmanager
def dropout_as_factor():
    """Dropout as multiplication by 1 - p in training: any site or rate that differs shows in the numbers."""
    real = functional.dropout

    def factor(x, p=0.5, training=True, inplace=False):
        return x * (1 - p) if training else x

    functional.dropout = factor
    try:
        yield
    finally:
        functional.dropout = real


def oracle(case, dtype=torch.float64, seed=0):
    """A model of transformers with every parameter and buffer of the model random."""
    kind = getattr(transformers, case.architecture)
    settings = {"attn_implementation": "eager", "pad_token_id": PAD, "eos_token_id": END, **case.sizes}
    with exactly(case.family, dtype):
        model = kind(kind.config_class(**settings)).to(dtype)
    model.config.dtype = dtype
    if case.own_last_layer:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    generator = torch.Generator().manual_seed(seed)
    sines = {id(module.weight) for module in model.modules() if hasattr(module, "create_weight")}
    with torch.no_grad():
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) not in sines:
                spread = 0.3 if value.ndim > 1 else 0.5
                centre = 1.0 if "norm" in name.lower() or "ln_" in name else 0.0
                value.copy_(torch.randn(value.shape, generator=generator) * spread + centre * (name.endswith("weight")))
        for module in model.modules():
            if hasattr(module, "create_weight"):  # Marian's sines, in full precision
                module.weight.copy_(_sines(*module.weight.shape))
    return model.eval()


def _sines(length, dim):
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(0, dim, 2, dtype=torch.float64) / dim
    )
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def ours(case, model, folder: Path, dtype=torch.float64):
    """The same model in our hands: saved by transformers, loaded by us."""
    model.save_pretrained(folder)
    if case.edit:
        path = folder / "config.json"
        values = {**json.loads(path.read_text()), **case.edit}
        path.write_text(json.dumps({key: value for key, value in values.items() if value != "remove"}))
    network, report = load(folder, dtype=dtype)
    assert not report.new
    return network, report


@dataclass
class Batch:
    """Random text, random images, or both."""

    source: Tensor | None
    target: Tensor | None = None
    segments: Tensor | None = None
    images: Tensor | None = None
    masked: Tensor | None = None

    def row(self, index, start=0, stop=None):
        """One text, with all images that there are."""

        def cut(x):
            return None if x is None else x[index : index + 1, start:stop]

        return replace(self, source=cut(self.source), target=cut(self.target), segments=cut(self.segments))


def batch(network, seed=1):
    if isinstance(network, DualEncoder):
        return replace(batch(network.text, seed), images=batch(network.vision, seed).images)
    generator = torch.Generator().manual_seed(seed)
    design = network.config
    if reads_images(network):
        return pictures(network.embedding.tokens, generator)
    embedding = design.source if isinstance(network, EncoderDecoder) else design.embedding
    vocabulary = embedding.tokens.vocabulary

    def text(length, size=vocabulary, low=FIRST_WORD):
        return torch.randint(low, size, (ROWS, length), generator=generator)

    source = text(LENGTH)
    target = None
    if isinstance(network, EncoderDecoder):
        whole_row = type(design.head).__name__ == "Classification"
        target_size = getattr(design.target.tokens, "vocabulary", vocabulary)
        target = text(LENGTH if whole_row else TARGET_LENGTH, target_size)
        source[:, -1] = END
    if token := getattr(getattr(design.head, "pooling", None), "token", None):
        source[:, LENGTH // 2] = source[:, LENGTH - 2] = token  # the first stays where rows are cut on either side
    kinds = 3 if isinstance(network, TwoStream) else embedding.segments
    segments = text(LENGTH, kinds, 0) if kinds else None
    return Batch(source, target, segments)


def reads_images(network):
    return isinstance(network, EncoderOnly) and isinstance(network.embedding.tokens, Patches)


def pictures(patches, generator):
    shape = (ROWS, patches.design.channels, *patches.design.image)
    images = torch.randn(shape, generator=generator, dtype=torch.float64)
    masked = torch.rand((ROWS, patches.patches), generator=generator) < 0.4
    return Batch(None, images=images, masked=masked if patches.design.mask_vector else None)


def run_theirs(case, model, given: Batch):
    """What transformers says: (hidden states of each block, words, sentence)."""
    named = {"input_ids": given.source, "pixel_values": given.images, "bool_masked_pos": given.masked}
    inputs = {name: value for name, value in named.items() if value is not None}
    if given.segments is not None:
        inputs["token_type_ids"] = given.segments
    if given.target is not None:
        inputs["decoder_input_ids"] = given.target
    if "MultipleChoice" in case.architecture:
        inputs = {name: value[None] for name, value in inputs.items()}
    with exactly(case.family, model.dtype):
        once = {"use_mems": False} if case.family == "xlnet" else {"use_cache": False}
        output = model(**inputs, output_hidden_states=True, **once)
    return _hidden(output), *_scores(output)


def _hidden(output):
    if "logits_per_text" in output:
        return [*output.text_model_output.hidden_states, *output.vision_model_output.hidden_states]
    if "decoder_hidden_states" in output:
        return [*(output.encoder_hidden_states or ()), *(output.decoder_hidden_states or ())]
    return list(output.hidden_states)


def _scores(output):
    if "logits_per_text" in output:
        return None, output.logits_per_text
    if "reconstruction" in output:
        return output.reconstruction, None
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1), None
    if "mc_logits" in output:
        return output.logits, output.mc_logits[:, None]
    if "prediction_logits" in output:
        return output.prediction_logits, output.get("seq_relationship_logits", output.get("sop_logits"))
    if "logits" in output:
        logits = output.logits
        if "Electra" in type(output).__name__:
            return logits[..., None], None  # one score a token
        if logits.shape == (1, ROWS):
            return None, logits.T  # multiple choice: one text with as many choices as there are rows
        return (logits, None) if logits.ndim == 3 else (None, logits)
    pooled = [output[name] for name in ("pooler_output", "text_embeds", "image_embeds") if name in output]
    return output.last_hidden_state, pooled[0] if pooled else None


def run_ours(network, given: Batch, mask=None, **kwargs):
    """What we say: (what each block gives, words, sentence)."""
    seen = []
    handles = [
        module.feedforward_residual.register_forward_hook(lambda _, __, x: seen.append(x))
        for module in network.modules()
        if isinstance(module, Block)
    ]
    try:
        output = call(network, given, mask, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return seen, *scores(network, output)


def call(network, given: Batch, mask=None, **kwargs):
    if given.source is None:
        return network(given.images if given.masked is None else MaskedImages(given.images, given.masked))
    if given.images is not None:
        return network(given.source, given.images, mask, **kwargs)
    if given.target is not None:
        return network(given.source, given.target, mask, **kwargs)
    if given.segments is not None:
        return network(given.source, mask, segments=given.segments, **kwargs)
    return network(given.source, mask, **kwargs)


def scores(network, output):
    if isinstance(network, DualEncoder):
        return None, output.by_text
    head = type(network.config.head).__name__
    if head in ("NoneType", "Pooler", "Features"):
        return output.hidden, output.logits
    if head in ("Classification", "PatchClassification"):
        return None, output.logits
    if head == "Pixels":
        return network.embedding.tokens.picture(output.logits), None
    return output.logits, output.sentence


def loss(words, sentence, seed=2):
    """torch's cross-entropy (squares, where there is one label or none) against random answers."""
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for logits in (words, sentence):
        if logits is None:
            continue
        flat = logits.reshape(-1, logits.shape[-1])
        answers = torch.randint(0, flat.shape[1], (flat.shape[0],), generator=generator)
        total = total + (functional.cross_entropy(flat, answers) if flat.shape[1] > 1 else (flat - 1).square().mean())
    return total


def pairs(case, model, network) -> list[Place]:
    """Which parameter of theirs is which of ours."""
    stored = _modern_names(_fake(model), Path())
    table = Table(FAMILIES[case.family], case.architecture, _base(FAMILIES[case.family], case.architecture, stored))
    theirs = parameters(model)
    found = {}
    for place in _spelt_out(network, table):
        if place.theirs in theirs:
            found.setdefault(place.ours, place)
    return list(found.values())


def _fake(model):
    from regard.checkpoint.files import Stored

    return {name: Stored(name, tuple(v.shape), v.dtype, lambda v=v: v) for name, v in parameters(model).items()}


def parameters(model):
    """The parameters of a model under the names that they have in a file: some classes have others in memory."""
    return revert_weight_conversion(model, dict(model.named_parameters()))


def distance(one, other):
    """The largest difference, relative to the largest value."""
    one, other = one.detach(), other.detach()
    assert one.shape == other.shape, f"{tuple(one.shape)} and {tuple(other.shape)}"
    size = max(one.abs().max().item(), other.abs().max().item(), 1e-30)
    return (one - other).abs().max().item() / size


def rows_of(given: Batch):
    lengths = (given.source.shape[1],) * len(given.source)
    return Rows.of(lengths)
