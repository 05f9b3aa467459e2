"""Small models in folders: random networks with trained vocabularies. Their output is nonsense, but deterministic."""

import json

import torch
from unit.tasks import vocabularies

import regard
from regard import transformer_2017
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tokenization.tokenizer_loader import load_tokenizer as tokenizer_of
from regard.transformer.network import build

LLAMA = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=37,
    max_position_embeddings=48,
)  # fmt: skip
GPT2 = dict(n_embd=24, n_layer=2, n_head=4, n_positions=48)
BART = dict(
    d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=48,
)  # fmt: skip


def translating(folder, vocabulary=vocabularies.unigram, said=None, config=None, more=0):
    """The 2017 Transformer. `more`: number of embeddings beyond the vocabulary of the tokenizer."""
    folder.mkdir(exist_ok=True)
    vocabulary(folder)
    size = len(tokenizer_of(folder)) + more
    network = build(transformer_2017(vocabulary=size, layers=(1, 2), model_dim=24, heads=4), seed=1)
    return _saved(
        network, folder, {"eos_token_id": [3, *range(20, size, 4)], "decoder_start_token_id": 2}, said, config
    )


def with_positions(folder, vocabulary=vocabularies.unigram, said=None, config=None):
    """A small BART with 48 learned position embeddings."""
    folder.mkdir(exist_ok=True)
    vocabulary(folder)
    sizes = BART | dict(vocab_size=len(tokenizer_of(folder)))
    network = build(FAMILIES["bart"].read_config(sizes, "BartForConditionalGeneration")[0], seed=1)
    return _saved(network, folder, {"eos_token_id": 3, "decoder_start_token_id": 3}, said, config)


def continuing(folder, family="llama", vocabulary=vocabularies.llama, said=None, more=0):
    """A decoder-only model, by default a small Llama."""
    folder.mkdir(exist_ok=True)
    vocabulary(folder)
    size = len(tokenizer_of(folder)) + more
    sizes, name = {"llama": (LLAMA, "LlamaForCausalLM"), "gpt2": (GPT2, "GPT2LMHeadModel")}[family]
    network = build(FAMILIES[family].read_config(sizes | dict(vocab_size=size), name)[0], seed=1)
    return _saved(network, folder, {"eos_token_id": [2, *range(20, size, 23)]}, said, None)


def _saved(network, folder, generation_config, overrides, config):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in network.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            value.copy_(torch.randn(value.shape, generator=generator) * (0.8 if value.ndim > 1 else 0.2) + centre)
    save(network, folder)
    (folder / "generation_config.json").write_text(json.dumps(generation_config | (overrides or {})))
    if config:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def opened(folder):
    return regard.load(folder, precision="float64")


def comparable(result):
    """All fields, with rounded scores: the other inputs of a batch change their last digits."""
    values = result.as_json()
    scores = [round(values.pop("score"), 4), [round(score, 4) for score in values.pop("token_scores")]]
    return values | {"alternatives": [comparable(other) for other in result.alternatives], "scores": scores}
