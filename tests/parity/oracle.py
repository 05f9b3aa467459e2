"""The oracle: models of transformers with random parameters, computing in float64.

Some families of transformers compute a part in float32 regardless of the model's dtype (norms, softmax, angles).
`exactly()` makes them compute in float64, so that one tolerance, 1e-9, holds for every family.
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

from regard.checkpoint.load import CheckpointLayout, _expand_entries, _key_prefix, _rename_gamma_beta, load
from regard.families.registry import FAMILIES
from regard.families.weight_map import TensorMapping
from regard.transformer.block import Block
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.network import EncoderDecoder, EncoderOnly
from regard.transformer.patches import MaskedImages, Patches
from regard.transformer.two_stream import TwoStream

BATCH_SIZE, LENGTH, TARGET_LENGTH, LABELS = 3, 7, 5, 4
PAD, END = 1, 2
LAST_BEFORE_NORM = {"vit", "clip", "clip_text_model", "clip_vision_model"}
"""Families whose last hidden state is the output of the last block; elsewhere it is that of the final norm."""
FIRST_WORD = 3
"""Smaller ids are special tokens; random text does not contain them, so nothing depends on their meaning."""


def modeling(family):
    """Return the name of the transformers module with the classes of a family."""
    folders = {"openai-gpt": "openai", "clip_text_model": "clip", "clip_vision_model": "clip"}
    folder = folders.get(family, family.replace("-", "_"))
    return f"transformers.models.{folder}.modeling_{folder}"


@dataclass(frozen=True)
class Case:
    """One published class with one config."""

    family: str
    architecture: str
    sizes: dict = field(default_factory=dict)
    variant: str = ""
    untied_output: bool = False
    """Whether the output projection differs from the token embedding, although the class would tie them."""
    edit: dict = field(default_factory=dict)
    """Changes to config.json after saving, as older releases wrote it."""

    def __str__(self):
        return f"{self.architecture}{'-' if self.variant else ''}{self.variant}"


class _Float64(types.ModuleType):
    """The module torch with float64 in place of float32."""

    def __init__(self):
        super().__init__("torch")
        self.float32 = self.float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def exactly(family, dtype=torch.float64):
    """Make the code of a family in transformers compute in float64 throughout."""
    if dtype is not torch.float64:
        yield
        return
    names = [modeling(family), "transformers.modeling_rope_utils"]
    modules = [sys.modules[name] for name in names if name in sys.modules]
    as_float = Tensor.float
    try:
        for module in modules:
            module.torch = _Float64()
        if family == "xlnet":  # it computes its sinusoids with .float(); T5 its buckets, which must stay float32
            Tensor.float = Tensor.double
        yield
    finally:
        Tensor.float = as_float
        for module in modules:
            module.torch = torch


@contextlib.contextmanager
def dropout_as_factor():
    """Replace dropout by multiplication with 1 - p in training, so that any other site or rate changes the results."""
    real = functional.dropout

    def factor(x, p=0.5, training=True, inplace=False):
        return x * (1 - p) if training else x

    functional.dropout = factor
    try:
        yield
    finally:
        functional.dropout = real


def oracle(case, dtype=torch.float64, seed=0):
    """Return a model of transformers with random parameters and buffers."""
    model_class = getattr(transformers, case.architecture)
    settings = {"attn_implementation": "eager", "pad_token_id": PAD, "eos_token_id": END, **case.sizes}
    with exactly(case.family, dtype):
        model = model_class(model_class.config_class(**settings)).to(dtype)
    model.config.dtype = dtype
    if case.untied_output:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    generator = torch.Generator().manual_seed(seed)
    sinusoids = {id(module.weight) for module in model.modules() if hasattr(module, "create_weight")}
    with torch.no_grad():
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) not in sinusoids:
                spread = 0.3 if value.ndim > 1 else 0.5
                centre = 1.0 if "norm" in name.lower() or "ln_" in name else 0.0
                value.copy_(torch.randn(value.shape, generator=generator) * spread + centre * (name.endswith("weight")))
        for module in model.modules():
            if hasattr(module, "create_weight"):  # Marian's sinusoidal positions, in full precision
                module.weight.copy_(_sinusoids(*module.weight.shape))
    return model.eval()


def _sinusoids(length, dim):
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(0, dim, 2, dtype=torch.float64) / dim
    )
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def ours(case, model, folder: Path, dtype=torch.float64):
    """Save the model with transformers and load it with regard."""
    model.save_pretrained(folder)
    if case.edit:
        path = folder / "config.json"
        values = {**json.loads(path.read_text()), **case.edit}
        path.write_text(json.dumps({key: value for key, value in values.items() if value != "remove"}))
    network, report = load(folder, dtype=dtype)
    assert not report.newly_initialized
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
        """Return one sequence of the batch, with all its images."""

        def cut(x):
            return None if x is None else x[index : index + 1, start:stop]

        return replace(self, source=cut(self.source), target=cut(self.target), segments=cut(self.segments))


def batch(network, seed=1):
    """Return random inputs for a network."""
    if isinstance(network, DualEncoder):
        return replace(batch(network.text, seed), images=batch(network.vision, seed).images)
    generator = torch.Generator().manual_seed(seed)
    design = network.config
    if reads_images(network):
        return image_batch(network.embedding.tokens, generator)
    embedding = design.source if isinstance(network, EncoderDecoder) else design.embedding
    vocabulary = embedding.tokens.vocabulary

    def text(length, size=vocabulary, low=FIRST_WORD):
        return torch.randint(low, size, (BATCH_SIZE, length), generator=generator)

    source = text(LENGTH)
    target = None
    if isinstance(network, EncoderDecoder):
        classifies = type(design.head).__name__ == "Classification"
        target_size = getattr(design.target.tokens, "vocabulary", vocabulary)
        target = text(LENGTH if classifies else TARGET_LENGTH, target_size)
        source[:, -1] = END
    if token := getattr(getattr(design.head, "pooling", None), "token", None):
        source[:, LENGTH // 2] = source[:, LENGTH - 2] = token  # one remains when sequences are cut on either side
    num_segments = 3 if isinstance(network, TwoStream) else embedding.segments
    segments = text(LENGTH, num_segments, 0) if num_segments else None
    return Batch(source, target, segments)


def reads_images(network):
    return isinstance(network, EncoderOnly) and isinstance(network.embedding.tokens, Patches)


def image_batch(patches, generator):
    shape = (BATCH_SIZE, patches.design.channels, *patches.design.image)
    images = torch.randn(shape, generator=generator, dtype=torch.float64)
    masked = torch.rand((BATCH_SIZE, patches.num_patches), generator=generator) < 0.4
    return Batch(None, images=images, masked=masked if patches.design.mask_vector else None)


def run_theirs(case, model, inputs: Batch):
    """Run transformers; return (hidden states of each block, per-token logits, sequence logits)."""
    arguments = {"input_ids": inputs.source, "pixel_values": inputs.images, "bool_masked_pos": inputs.masked}
    kwargs = {name: value for name, value in arguments.items() if value is not None}
    if inputs.segments is not None:
        kwargs["token_type_ids"] = inputs.segments
    if inputs.target is not None:
        kwargs["decoder_input_ids"] = inputs.target
    if "MultipleChoice" in case.architecture:
        kwargs = {name: value[None] for name, value in kwargs.items()}
    with exactly(case.family, model.dtype):
        options = {"use_mems": False} if case.family == "xlnet" else {"use_cache": False}
        output = model(**kwargs, output_hidden_states=True, **options)
    return _hidden(output), *_logits(output)


def _hidden(output):
    if "logits_per_text" in output:
        return [*output.text_model_output.hidden_states, *output.vision_model_output.hidden_states]
    if "decoder_hidden_states" in output:
        return [*(output.encoder_hidden_states or ()), *(output.decoder_hidden_states or ())]
    return list(output.hidden_states)


def _logits(output):
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
            return logits[..., None], None  # one logit per token
        if logits.shape == (1, BATCH_SIZE):
            return None, logits.T  # multiple choice: the batch is the choices of one question
        return (logits, None) if logits.ndim == 3 else (None, logits)
    pooled = [output[name] for name in ("pooler_output", "text_embeds", "image_embeds") if name in output]
    return output.last_hidden_state, pooled[0] if pooled else None


def run_ours(network, inputs: Batch, mask=None, **kwargs):
    """Run our network; return (output of each block, per-token logits, sequence logits)."""
    block_outputs = []
    handles = [
        module.feedforward_residual.register_forward_hook(lambda _, __, x: block_outputs.append(x))
        for module in network.modules()
        if isinstance(module, Block)
    ]
    try:
        output = call(network, inputs, mask, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return block_outputs, *logits_of(network, output)


def call(network, inputs: Batch, mask=None, **kwargs):
    if inputs.source is None:
        return network(inputs.images if inputs.masked is None else MaskedImages(inputs.images, inputs.masked))
    if inputs.images is not None:
        return network(inputs.source, inputs.images, mask, **kwargs)
    if inputs.target is not None:
        return network(inputs.source, inputs.target, mask, **kwargs)
    if inputs.segments is not None:
        return network(inputs.source, mask, segments=inputs.segments, **kwargs)
    return network(inputs.source, mask, **kwargs)


def logits_of(network, output):
    """Return per-token logits and sequence logits, either of which may be None."""
    if isinstance(network, DualEncoder):
        return None, output.logits_per_text
    head = type(network.config.head).__name__
    if head in ("NoneType", "Pooler", "Features"):
        assert output.logits is None, "there is no head that scores"
        return output.hidden, output.pooled
    if head in ("Classification", "PatchClassification"):
        return None, output.logits
    if head == "Pixels":
        return network.embedding.tokens.unpatchify(output.logits), None
    return output.logits, output.sequence_logits


def loss(token_logits, sequence_logits, seed=2):
    """Return torch's cross-entropy (squared error for a single label) against random labels."""
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for logits in (token_logits, sequence_logits):
        if logits is None:
            continue
        flat = logits.reshape(-1, logits.shape[-1])
        labels = torch.randint(0, flat.shape[1], (flat.shape[0],), generator=generator)
        total = total + (functional.cross_entropy(flat, labels) if flat.shape[1] > 1 else (flat - 1).square().mean())
    return total


def pairs(case, model, network) -> list[TensorMapping]:
    """Return the mapping between the parameters of transformers and ours."""
    stored = _rename_gamma_beta(_lazy_tensors(model), Path())
    layout = CheckpointLayout(
        FAMILIES[case.family], case.architecture, _key_prefix(FAMILIES[case.family], case.architecture, stored)
    )
    theirs = parameters(model)
    mappings = {}
    for mapping in _expand_entries(network, layout):
        if mapping.theirs in theirs:
            mappings.setdefault(mapping.ours, mapping)
    return list(mappings.values())


def _lazy_tensors(model):
    from regard.checkpoint.tensor_files import LazyTensor

    return {name: LazyTensor(name, tuple(v.shape), v.dtype, lambda v=v: v) for name, v in parameters(model).items()}


def parameters(model):
    """Return the parameters under their names in a file; some classes use other names in memory."""
    return revert_weight_conversion(model, dict(model.named_parameters()))


def distance(left, right):
    """Return the largest difference, relative to the largest value."""
    left, right = left.detach(), right.detach()
    assert left.shape == right.shape, f"{tuple(left.shape)} and {tuple(right.shape)}"
    size = max(left.abs().max().item(), right.abs().max().item(), 1e-30)
    return (left - right).abs().max().item() / size
