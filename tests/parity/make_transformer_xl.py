"""Store the outputs of transformers 4.35.2 for small random Transformer-XLs, which the current release lacks.

Run in a separate environment, and commit the files that it writes:

    python -m venv old && old/bin/pip install torch==2.13.0 transformers==4.35.2 'numpy<2'
    old/bin/python tests/parity/make_transformer_xl.py

For each class: the config, the weights (float64, every parameter random), and for two segments of random text, in eval
and in train mode (dropout replaced by multiplication with 1 - p): hidden states, logits, memory, loss, the gradient of
every parameter, and every parameter after one AdamW step.
"""

import json
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

warnings.simplefilter("ignore")
import transformers  # noqa: E402

FOLDER = Path(__file__).parent / "transformer_xl"
SIZES = dict(
    vocab_size=29, cutoffs=[11, 19], d_model=12, d_embed=10, n_head=3, d_head=5, d_inner=17, div_val=2, n_layer=2,
    mem_len=6, clamp_len=7, same_length=True, dropout=0.11, dropatt=0.23, num_labels=4, pad_token_id=28,
)  # fmt: skip
CASES = {
    "TransfoXLModel": ("TransfoXLModel", {}),
    "TransfoXLLMHeadModel": ("TransfoXLLMHeadModel", {}),
    "TransfoXLForSequenceClassification": ("TransfoXLForSequenceClassification", dict(d_embed=12)),
    "TransfoXLLMHeadModel-other": (
        "TransfoXLLMHeadModel",
        dict(same_length=False, clamp_len=-1, tie_word_embeddings=False, proj_share_all_but_first=False, div_val=3),
    ),
}


def randomise(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            centre = 1.0 if "layer_norm.weight" in name else 0.0
            value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.4 + centre)
        for module in model.modules():
            if hasattr(module, "inv_freq"):  # the inverse frequencies in full precision
                size = 2 * len(module.inv_freq)
                module.inv_freq.copy_(10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size))


def logits_of(output):
    for name in ("prediction_scores", "logits", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)
    raise AssertionError


def loss(logits, labels):
    """Return minus the mean logit of the labels; for log-probabilities this is the cross-entropy."""
    return -logits.flatten(0, -2).gather(1, labels.flatten()[: logits.flatten(0, -2).shape[0], None]).mean()


def write(name, architecture, changes):
    torch.manual_seed(0)
    model_class = getattr(transformers, architecture)
    model = model_class(transformers.TransfoXLConfig(**{**SIZES, **changes})).double()
    randomise(model)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 28, (2, 10), generator=generator)
    answers = torch.randint(0, 4, (2, 10), generator=generator)
    expected = {"tokens": tokens, "answers": answers}
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    values = {**model.config.to_diff_dict(), "architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps(values, indent=1) + "\n")
    model.eval()
    memory = None
    for part, segment in enumerate([tokens[:, :4], tokens[:, 4:]]):
        with torch.no_grad():
            output = model(segment, mems=memory, output_hidden_states=True)
        memory = output.mems
        expected[f"scores.{part}"] = logits_of(output).clone()
        for layer, state in enumerate(output.hidden_states):
            expected[f"hidden.{part}.{layer}"] = state.clone()
        for layer, state in enumerate(memory):
            expected[f"memory.{part}.{layer}"] = state.transpose(0, 1).contiguous()
    real = functional.dropout
    functional.dropout = lambda x, p=0.5, training=True, inplace=False: x * (1 - p) if training else x
    model.train()
    memory = model(tokens[:, :4]).mems
    total = loss(logits_of(model(tokens[:, 4:], mems=memory)), answers)
    total.backward()
    functional.dropout = real
    expected["loss"] = total.detach()
    for key, value in model.named_parameters():
        if value.grad is not None:
            expected[f"gradient.{key}"] = value.grad.clone()
    torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4).step()
    for key, value in model.named_parameters():
        expected[f"after.{key}"] = value.detach().clone()
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    print(name, f"{total.item():.6f}", sum(value.numel() for value in weights.values()))


if __name__ == "__main__":
    torch.Tensor.float = torch.Tensor.double  # it masks attention scores in float32: compute in float64 instead
    assert transformers.__version__ == "4.35.2", transformers.__version__
    for name, (architecture, changes) in CASES.items():
        write(name, architecture, changes)
