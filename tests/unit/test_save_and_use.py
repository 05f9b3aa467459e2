"""Load, save, load, use: a copy of a model holds everything that its use needs, for every family."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from unit.checkpoint.folders import equal_bits, random_network, small
from unit.tasks import vocabularies
from unit.tokenization.vocabularies import LAYOUTS
from unit.training.tiny_data import write_recipe

import regard
from regard.checkpoint.report import Origin
from regard.checkpoint.save import save
from regard.families.gpt3 import gpt3
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.network import DecoderOnly, EncoderDecoder
from regard.transformer.patches import Patches
from regard.transformer.two_stream import TwoStream

PIXELS = 15
VISION = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=PIXELS, patch_size=5
)  # fmt: skip
CLIP_TEXT = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, max_position_embeddings=19,
    projection_dim=13, eos_token_id=5,
)  # fmt: skip
XL = dict(cutoffs=[40, 80], d_model=12, d_embed=10, n_head=3, d_head=5, d_inner=17, div_val=2, n_layer=2, mem_len=6)
CASES = {
    "bert": ("BertForSequenceClassification", "bert", {}),
    "roberta": ("RobertaForMaskedLM", "roberta", {}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "roberta", {}),
    "distilbert": ("DistilBertForMaskedLM", "bert", {}),
    "albert": ("AlbertForMaskedLM", "albert", {}),
    "electra": ("ElectraForPreTraining", "bert", {}),
    "xlnet": ("XLNetLMHeadModel", "xlnet", dict(d_model=24, n_layer=2, n_head=4, d_inner=37)),
    "roformer": ("RoFormerForMaskedLM", None, {}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", "gpt", {}),
    "gpt2": ("GPT2LMHeadModel", "gpt2", {}),
    "ctrl": ("CTRLLMHeadModel", "ctrl", {}),
    "transfo-xl": ("TransfoXLLMHeadModel", None, XL),
    "llama": ("LlamaForCausalLM", "llama", {}),
    "bart": ("BartForConditionalGeneration", "roberta", {}),
    "mbart": ("MBartForConditionalGeneration", "mbart", {}),
    "t5": ("T5ForConditionalGeneration", "t5", {}),
    "marian": ("MarianMTModel", "marian", {}),
    "vit": ("ViTForImageClassification", None, VISION),
    "clip": ("CLIPModel", "clip", dict(text_config=CLIP_TEXT, vision_config=VISION, projection_dim=11)),
    "clip_text_model": ("CLIPTextModelWithProjection", "clip", CLIP_TEXT),
    "clip_vision_model": ("CLIPVisionModelWithProjection", None, VISION | dict(projection_dim=13)),
}
"""For each family: a class, the layout of its tokenizer files (None: those that regard writes), and sizes."""
INFO = {"task": "anything", "prompts": {"query": "query: "}, "key_of_another_program": [1, {"a": None}]}


def family_folder(name, folder):
    """A folder in the family's published layout."""
    (architecture, layout, sizes), family = CASES[name], FAMILIES[name]
    images, flat = "image_size" in sizes, "text_config" not in sizes
    if not images:
        (LAYOUTS[layout][0] if layout else vocabularies.unigram)(folder)
        (folder / "config.json").write_text(json.dumps({"model_type": name}))
        size = len(load_tokenizer(folder))
        sizes = sizes | ({"vocab_size": size} if flat else {"text_config": CLIP_TEXT | {"vocab_size": size}})
    sizes = (small(family) if flat and not images else {}) | sizes
    values = {"architectures": [architecture], "model_type": name, **sizes}
    values |= {key: 64 for key in ("max_position_embeddings", "n_positions") if key in values}
    network = random_network(family.read_config(values, architecture)[0])
    save(network, folder, origin=Origin(name, architecture, values))


def new_network_folder(design, vocabulary, folder):
    """A network that has no published folders, with a tokenizer as regard writes it."""
    vocabulary(folder)
    save(random_network(design(len(load_tokenizer(folder)))), folder)


def transformer(size):
    return transformer_2017(vocabulary=size, layers=(1, 2), model_dim=24, heads=4)


def small_gpt3(size):
    return gpt3(layers=2, model_dim=24, heads=4, head_dim=6, vocabulary=size, length=64, band=4)


NEW = {"transformer": (transformer, vocabularies.unigram), "gpt3": (small_gpt3, vocabularies.trained)}


@pytest.fixture(params=[*FAMILIES, *NEW])
def folder(request, tmp_path):
    """A model folder with a generation config and a regard.json."""
    path = tmp_path / "model"
    path.mkdir()
    if request.param in NEW:
        new_network_folder(*NEW[request.param], path)
    else:
        family_folder(request.param, path)
    generation = {"eos_token_id": [3, 50], "decoder_start_token_id": 2, "suppress_tokens": [*range(60, 80)]}
    if request.param not in ("vit", "clip_vision_model"):
        (path / "generation_config.json").write_text(json.dumps(generation | {"num_beams": 2}))
    labels = {"labels": ["good", "bad"]} if request.param == "bert" else {}
    (path / "regard.json").write_text(json.dumps(INFO | labels))
    return path


def forward(network):
    """The tensors of a forward pass on random input."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(6, 40, (2, 7), generator=generator)
    tokens[:, -1] = 5  # CLIP pools at its EOS token
    images = torch.randn(2, 3, PIXELS, PIXELS, generator=generator)
    with torch.no_grad():
        if isinstance(network, DualEncoder):
            output = network(tokens, images)
        elif isinstance(network, EncoderDecoder):
            output = network(tokens, tokens[:, :4])
        else:
            output = network(images if isinstance(network.embedding.tokens, Patches) else tokens)
    return [value for value in vars(output).values() if isinstance(value, Tensor)]


def texts(model):
    """The outputs of the network's task, where it has one."""
    inputs = ["the small dog runs", "big"]
    if isinstance(model.network, EncoderDecoder):
        languages = sorted(model.tokenizer.languages)
        options = dict(target_language=languages[0]) if languages else {}
        options |= dict(source_language="en_XX") if "en_XX" in languages else {}
        return model.translate(inputs, max_new_tokens=8, **options)
    if isinstance(model.network, DecoderOnly | TwoStream):
        return model.generate(inputs, max_new_tokens=8, control=next(iter(model.tokenizer.control_codes), None))
    return None


def files(folder, *without):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in without]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def check_copy(folder, copy):
    """Load, save, load: the same tensors, outputs, texts and files; saved once more, the same bytes."""
    model = regard.load(folder)
    model.save(copy)
    again = regard.load(copy)
    before, after = load_file(folder / "model.safetensors"), load_file(copy / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(equal_bits(before[name], after[name]) for name in before)
    outputs = forward(model.network)
    assert outputs
    assert all(map(torch.equal, outputs, forward(again.network)))
    rewritten = ("model.safetensors", "config.json", "regard.json", "run.json")
    assert files(copy, *rewritten) == files(folder, *rewritten)
    info = json.loads((copy / "regard.json").read_text())
    assert info == json.loads((folder / "regard.json").read_text()) | {"format_version": 1}
    results = texts(model)
    assert results == texts(again)
    again.save(copy.with_name("third"))
    assert files(copy.with_name("third")) == files(copy)
    return results


def test_a_copy_is_used_like_the_model(folder, tmp_path):
    results = check_copy(folder, tmp_path / "copy")
    assert results is None or any(result.text for result in results)


@pytest.mark.parametrize("shared", [True, False])
def test_a_copy_of_a_trained_transformer(shared, tmp_path):
    """With a BPE tokenizer, as in `regard demo`; and with one tokenizer for each language."""
    change = {"training.steps": 2, "tokenizer.kind": "bpe", "tokenizer.size": 300, "tokenizer.shared": shared}
    best = regard.train(write_recipe(tmp_path), change, output=tmp_path / "run")
    assert (best / "target").is_dir() is not shared
    check_copy(best, tmp_path / "copy")


def test_a_model_is_saved_into_its_own_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    family_folder("gpt2", folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    before = files(folder)
    regard.load(folder).save(folder)
    assert files(folder) == before


def test_a_model_whose_folder_is_gone_is_not_saved_without_its_tokenizer(tmp_path):
    (tmp_path / "model").mkdir()
    family_folder("gpt2", tmp_path / "model")
    model = regard.load(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"model no longer exists, so its tokenizer .* restore it, or save only"):
        model.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_copy_without_labels_for_a_new_head(tmp_path):
    (tmp_path / "model").mkdir()
    family_folder("bert", tmp_path / "model")
    info = {"task": "classify", "labels": ["good", "bad"], "temperature": 2.0}
    (tmp_path / "model" / "regard.json").write_text(json.dumps(info))
    regard.load(tmp_path / "model", architecture="BertForQuestionAnswering").save(tmp_path / "copy")
    assert "id2label" not in json.loads((tmp_path / "copy" / "config.json").read_text())
    assert json.loads((tmp_path / "copy" / "regard.json").read_text()) == {"format_version": 1, "task": "classify"}
