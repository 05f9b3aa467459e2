"""fill: the proposals of transformers for masked models, XLNet, BART and T5's sentinels; windows, pseudo-perplexity."""

import math

import pytest
import torch
import transformers
from unit.tasks import encoders, models
from unit.tokenization import vocabularies

from regard.tasks.fill import FILL
from regard.tasks.mask_filler import replace_masks

TEXT = "the small [MASK] runs along the [MASK] beach."
CASES = {
    "BertForMaskedLM": vocabularies.bert,
    "RobertaForMaskedLM": vocabularies.roberta,
    "DistilBertForMaskedLM": vocabularies.bert,
    "AlbertForMaskedLM": vocabularies.albert,
    "ElectraForMaskedLM": vocabularies.bert,
    "BertForPreTraining": vocabularies.bert,
}


def filler(tmp_path, architecture="BertForMaskedLM", vocabulary=vocabularies.bert, **config):
    return encoders.opened(encoders.encoder(tmp_path, architecture, vocabulary, max_position_embeddings=64, **config))


def ids_of(model, text):
    spelled = text.replace("[MASK]", model.tokenizer.id_to_token(model.tokenizer.special_ids.mask))
    return model.tokenizer.encode(spelled, parse_special_tokens=True).ids


@pytest.mark.parametrize("architecture", list(CASES))
def test_proposals_of_transformers(tmp_path, architecture):
    model = filler(tmp_path, architecture, CASES[architecture])
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path, dtype=torch.float64).eval()
    ids = ids_of(model, TEXT)
    with torch.no_grad():
        output = theirs(torch.tensor([ids]))
    logits = output.logits if "logits" in output else output.prediction_logits
    masks = [place for place, token in enumerate(ids) if token == model.tokenizer.special_ids.mask]
    result = model.fill(TEXT, top_k=3)
    assert len(result.proposals) == len(masks) == 2
    for proposals, place in zip(result.proposals, masks, strict=True):
        scores, best = logits[0, place].softmax(-1).topk(3)
        words = [model.tokenizer.decode([token], skip_special_tokens=False).strip() for token in best.tolist()]
        assert [word for word, _ in proposals] == words
        assert [score for _, score in proposals] == pytest.approx(scores.tolist(), rel=1e-6)
    first, second = (proposals[0][0] for proposals in result.proposals)
    assert result.text == f"the small {first} runs along the {second} beach."


def test_the_pipeline_of_transformers(tmp_path):
    model = filler(tmp_path)
    pipeline = transformers.pipeline(
        "fill-mask",
        model=transformers.BertForMaskedLM.from_pretrained(tmp_path),
        tokenizer=transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")),
    )
    (proposals,) = model.fill("the [MASK] runs").proposals
    expected = pipeline("the [MASK] runs")
    assert [word for word, _ in proposals] == [each["token_str"] for each in expected]
    assert [score for _, score in proposals] == pytest.approx([each["score"] for each in expected], abs=1e-4)


def test_xlnet_sees_no_masked_token(tmp_path):
    model = encoders.opened(encoders.encoder(tmp_path, "XLNetLMHeadModel", vocabularies.xlnet))
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).eval()
    encoding = model.tokenizer.encode(TEXT.replace("[MASK]", "<mask>"), parse_special_tokens=True)
    masks = [place for place, token in enumerate(encoding.ids) if token == model.tokenizer.special_ids.mask]
    hidden = torch.zeros(1, len(encoding), len(encoding))
    hidden[:, :, masks] = 1  # no token attends to a masked one
    targets = torch.zeros(1, len(masks), len(encoding))
    for row, place in enumerate(masks):
        targets[0, row, place] = 1
    with torch.no_grad():
        logits = theirs(
            torch.tensor([encoding.ids]), perm_mask=hidden, target_mapping=targets,
            token_type_ids=torch.tensor([encoding.segments]),
        ).logits[0]  # fmt: skip
    for proposals, row in zip(model.fill(TEXT).proposals, logits.softmax(-1), strict=True):
        scores, best = row.topk(5)
        assert [score for _, score in proposals] == pytest.approx(scores.tolist(), rel=1e-3)
        assert [word for word, _ in proposals] == [model.tokenizer.decode([token]).strip() for token in best.tolist()]


def test_bart_predicts_the_text_from_the_masked_one(tmp_path):
    folder = encoders.encoder(
        tmp_path, "BartForConditionalGeneration", vocabularies.roberta, max_position_embeddings=64,
        decoder_attention_heads=4, pad_token_id=0, decoder_start_token_id=2, eos_token_id=2,
    )  # fmt: skip
    model = encoders.opened(folder)
    theirs = transformers.BartForConditionalGeneration.from_pretrained(folder, dtype=torch.float64).eval()
    ids = ids_of(model, TEXT)
    with torch.no_grad():
        logits = theirs(torch.tensor([ids]), decoder_input_ids=torch.tensor([[2, *ids[:-1]]])).logits[0]
    masks = [place for place, token in enumerate(ids) if token == model.tokenizer.special_ids.mask]
    for proposals, place in zip(model.fill(TEXT).proposals, masks, strict=True):
        assert [score for _, score in proposals] == pytest.approx(
            logits[place].softmax(-1).topk(5)[0].tolist(), rel=1e-6
        )


@pytest.mark.parametrize("batch_tokens", [1, 60, 4096])
def test_a_batch_gives_what_each_text_gives(tmp_path, batch_tokens):
    model = filler(tmp_path)
    texts = [TEXT, "no mask", "[MASK]", "", "the dog <mask> " * 30, "a <extra_id_0>!"]
    for text, result in zip(texts, model.fill(texts, batch_tokens=batch_tokens), strict=True):
        single = model.fill(text)
        assert result.text == single.text
        for left, right in zip(result.proposals, single.proposals, strict=True):
            assert dict(left) == pytest.approx(dict(right), rel=1e-6)


def test_a_text_without_a_mask_stays_and_is_remarked(tmp_path):
    result = filler(tmp_path).fill("no mask")
    assert (result.text, result.proposals) == ("no mask", ())
    assert "write [MASK]" in result.remarks[0]


def test_each_mask_of_a_long_text_is_filled_where_it_has_most_context(tmp_path):
    model = filler(tmp_path)
    text = " ".join(f"the dog runs along the beach {'[MASK]' if number % 3 == 0 else 'and'}" for number in range(24))
    result = model.fill(text)
    assert len(result.proposals) == 8
    assert result.windows > 1
    ids = ids_of(model, text)
    mask, inner, best = model.tokenizer.special_ids.mask, ids[1:-1], {}
    for start in range(0, len(inner), 31):
        row = [ids[0], *inner[start : start + 62], ids[-1]]
        with torch.no_grad():
            logits = model.network(torch.tensor([row])).logits[0].softmax(-1)
        for place in (place for place, token in enumerate(row) if token == mask):
            margin = min(place, len(row) - 1 - place)
            if margin > best.get(start + place, (-1, None))[0]:
                best[start + place] = margin, float(logits[place].max())
        if start + 62 >= len(inner):
            break
    assert [proposals[0][1] for proposals in result.proposals] == pytest.approx([best[key][1] for key in sorted(best)])


def test_pseudo_perplexity_by_its_definition(tmp_path):
    model = filler(tmp_path)
    ids = model.tokenizer.encode("the small dog runs").ids
    total = 0.0
    for place in range(1, len(ids) - 1):
        row = [*ids[:place], model.tokenizer.special_ids.mask, *ids[place + 1 :]]
        with torch.no_grad():
            total += float(model.network(torch.tensor([row])).logits[0, place].log_softmax(-1)[ids[place]])
    expected = math.exp(-total / (len(ids) - 2))
    assert model.fill("the small dog runs", pseudo_perplexity=True).pseudo_perplexity == pytest.approx(expected)
    assert model.fill("", pseudo_perplexity=True).pseudo_perplexity is None


def t5(tmp_path, sentinels=3):
    def vocabulary(folder):
        from unit.tasks.vocabularies import sentences

        from regard.tokenization.algorithms import Unigram
        from regard.tokenization.tokenizer_trainer import train_tokenizer

        names = [f"<extra_id_{number}>" for number in range(sentinels)]
        tokenizer = train_tokenizer(Unigram(size=160), sentences(100))
        backend = tokenizer._backend
        backend.add_special_tokens(names)
        tokenizer.save(folder)

    return models.opened(models.translating(tmp_path, vocabulary))


def test_sentinels_are_filled_with_what_is_generated(tmp_path):
    model = t5(tmp_path)
    runner = model.prepare("fill", top_k=2)
    first, second, third = runner.sentinels
    words = model.tokenizer.encode("the dog", add_special_tokens=False).ids
    assert runner._spans([first, *words, second, third], 2) == ["the dog", ""]
    assert runner._spans([second, *words], 2) == ["", "the dog"]
    source = runner._encode("a <mask> b [MASK]")
    assert [token for token in source if token in runner.sentinels] == [first, second]
    result = model.fill(["a <extra_id_0> b", "no mask", "[MASK] x [MASK]"], top_k=2)
    assert [len(each.proposals) for each in result] == [1, 0, 2]
    assert result[1].text == "no mask"
    for each in result:
        assert all(0 < score <= 1 for proposals in each.proposals for _, score in proposals)
    with pytest.raises(ValueError, match="4 masks; the vocabulary has sentinels for 3"):
        model.fill("[MASK] " * 4)


def test_networks_that_cannot_fill(tmp_path):
    with pytest.raises(ValueError, match="predicts the next token: use `generate`"):
        models.opened(models.continuing(tmp_path / "llama")).fill("a [MASK]")
    with pytest.raises(ValueError, match="no mask token and no sentinels"):
        models.opened(models.translating(tmp_path / "marian")).fill("a [MASK]")


def test_masks_in_a_text():
    assert replace_masks("[MASK] a <mask>", [(("x", 0.5),), (("y", 0.5),)]) == "x a y"
    assert replace_masks("[MASK] a <mask>", [(("x", 0.5),)]) == "x a <mask>"
    assert FILL.input.parse("a [MASK]") == "a [MASK]"
