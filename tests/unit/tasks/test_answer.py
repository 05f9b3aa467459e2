"""answer: spans by their definition on transformers' logits, windows, no answer, and generated answers."""

import math

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from unit.tasks import encoders, models
from unit.tokenization import vocabularies

from regard.data.question_template import QuestionTemplate
from regard.tasks.answer import ANSWER
from regard.tasks.span_table import SpanTable

BERT = "BertForQuestionAnswering"
CONTEXT = "the small dog runs along the beach, and Anna (42) sees the red house in New York."
QUESTION = "who sees it?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoders.encoder(tmp_path_factory.mktemp("bert"), BERT, max_position_embeddings=64)


@pytest.fixture(scope="module")
def model(folder):
    return encoders.opened(folder)


def comparable(answer):
    margin = None if answer.no_answer_margin is None else round(answer.no_answer_margin, 6)
    return answer.text, answer.start, answer.end, round(answer.score, 6), margin, len(answer.alternatives)


@pytest.mark.parametrize(
    ("architecture", "vocabulary"),
    [
        (BERT, vocabularies.bert),
        ("RobertaForQuestionAnswering", vocabularies.roberta),
        ("AlbertForQuestionAnswering", vocabularies.albert),
        ("XLNetForQuestionAnsweringSimple", vocabularies.xlnet),
    ],
)
def test_spans_of_the_logits_of_transformers(tmp_path, architecture, vocabulary):
    lengths = {} if architecture.startswith("XLNet") else dict(max_position_embeddings=128)
    folder = encoders.encoder(tmp_path, architecture, vocabulary, **lengths)
    model = encoders.opened(folder)
    dtype = torch.float32 if architecture.startswith("XLNet") else torch.float64  # theirs has no other positions
    tolerance = 1e-3 if dtype == torch.float32 else 1e-6
    theirs = getattr(transformers, architecture).from_pretrained(folder, dtype=dtype).eval()
    encoding = model.tokenizer.encode(QUESTION, CONTEXT)
    segments = {} if architecture.startswith("Roberta") else {"token_type_ids": torch.tensor([encoding.segments])}
    with torch.no_grad():
        output = theirs(torch.tensor([encoding.ids]), **segments)
    start, end = output.start_logits[0], output.end_logits[0]
    inside = [position for position, side in enumerate(encoding.sequence_ids) if side == 1]
    scores = {(i, j): float(start[i] + end[j]) for i in inside for j in inside if i <= j < i + 30}
    total = math.log(sum(map(math.exp, scores.values())))
    ranked = sorted(scores, key=scores.get, reverse=True)[:4]
    answer = model.answer((QUESTION, CONTEXT), n_best=4)
    for span, found in zip(ranked, [answer, *answer.alternatives], strict=True):
        text = CONTEXT[encoding.offsets[span[0]][0] : encoding.offsets[span[1]][1]]
        assert found.text == text.strip() == CONTEXT[found.start : found.end]
        assert found.score == pytest.approx(math.exp(scores[span] - total), rel=tolerance)
    cls = encoding.ids.index(
        model.tokenizer.special_ids.cls if architecture != "RobertaForQuestionAnswering" else encoding.ids[0]
    )
    assert answer.no_answer_margin == pytest.approx(float(start[cls] + end[cls]) - scores[ranked[0]], rel=tolerance)


def test_span_search_of_xlnet(tmp_path):
    folder = encoders.encoder(tmp_path, "XLNetForQuestionAnswering", vocabularies.xlnet)
    model = encoders.opened(folder)
    theirs = transformers.XLNetForQuestionAnswering.from_pretrained(folder).eval()
    encoding = model.tokenizer.encode(QUESTION, CONTEXT)
    with torch.no_grad():
        output = theirs(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.segments]))
    inside = [position for position, side in enumerate(encoding.sequence_ids) if side == 1]
    spans = {}
    for row, (p_start, first) in enumerate(zip(output.start_top_log_probs[0], output.start_top_index[0], strict=True)):
        for column in range(theirs.end_n_top):
            place = column * theirs.start_n_top + row
            last, p_end = int(output.end_top_index[0, place]), float(output.end_top_log_probs[0, place])
            if int(first) in inside and last in inside and first <= last < first + 30:
                spans[int(first), last] = float(p_start) * p_end
    answer = model.answer((QUESTION, CONTEXT))
    if not spans:
        assert answer.text == ""
        return
    first, last = max(spans, key=spans.get)
    assert answer.text == CONTEXT[encoding.offsets[first][0] : encoding.offsets[last][1]].strip()


@given(st.data())
def test_the_table_by_trying_all_spans(data):
    length, longest = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    table, best = SpanTable(length, longest), {}
    for first in data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=3)):
        start, end = torch.randn(2, length - first, generator=draw, dtype=torch.float64)
        table.add_window(first, start, end, 0.0)
        for i in range(length - first):
            for j in range(i, min(length - first, i + longest)):
                span = first + i, first + j
                best[span] = max(best.get(span, -math.inf), float(start[i] + end[j]))
    ranked = sorted(best.items(), key=lambda pair: -pair[1])
    assert [(score, *span) for span, score in ranked] == table.best_spans(1000)
    assert table.log_partition(False) == pytest.approx(math.log(sum(map(math.exp, best.values()))))
    assert table.log_partition(True) == pytest.approx(math.log(1 + sum(map(math.exp, best.values()))))


def test_no_answer_above_the_threshold(tmp_path, model):
    plain = model.answer((QUESTION, CONTEXT))
    assert plain.text
    margin = plain.no_answer_margin
    assert model.answer((QUESTION, CONTEXT), no_answer_threshold=margin + 1e-6).text == plain.text
    none = model.answer((QUESTION, CONTEXT), no_answer_threshold=margin - 1e-6, n_best=2)
    assert (none.text, none.start, none.end) == ("", None, None)
    assert none.alternatives[0].text == plain.text
    assert none.score + none.alternatives[0].score < 1
    stored = encoders.encoder(tmp_path, BERT, info={"no_answer_threshold": margin - 1e-6}, max_position_embeddings=64)
    assert encoders.opened(stored).answer((QUESTION, CONTEXT)).text == ""
    assert encoders.opened(stored).answer((QUESTION, CONTEXT), no_answer_threshold=1e9).text == plain.text


@pytest.mark.parametrize("batch_tokens", [1, 100, 4096])
def test_a_batch_gives_what_each_question_gives(model, batch_tokens):
    inputs = [(QUESTION, CONTEXT), ("a", "b"), (QUESTION, CONTEXT * 4), ("", CONTEXT), (QUESTION, "")]
    expected = [comparable(model.answer(pair, n_best=3)) for pair in inputs]
    found = model.answer(inputs, n_best=3, batch_tokens=batch_tokens)
    assert [comparable(answer) for answer in found] == expected
    assert (found[-1].text, found[-1].start) == ("", None)
    assert found[2].windows > 1


def test_the_best_span_of_all_windows(model):
    context = CONTEXT * 4
    answer = model.answer((QUESTION, context))
    assert answer.text == context[answer.start : answer.end]
    encoding = model.tokenizer.encode(QUESTION, context)
    inside = [position for position, side in enumerate(encoding.sequence_ids) if side == 1]
    others = len(encoding) - len(inside)
    capacity = 64 - others
    best = -math.inf
    for begin in range(0, len(inside), capacity - capacity // 2):
        window = inside[begin : begin + capacity]
        kept = [p for p in range(len(encoding)) if p in window or encoding.sequence_ids[p] != 1]
        ids, segments = ([values[p] for p in kept] for values in (encoding.ids, encoding.segments))
        with torch.no_grad():
            logits = model.network(torch.tensor([ids]), segments=torch.tensor([segments])).logits[0]
        places = [kept.index(position) for position in window]
        for i in places:
            for j in places:
                if i <= j < i + 30 and float(logits[i, 0] + logits[j, 1]) > best:
                    best = float(logits[i, 0] + logits[j, 1])
                    span = encoding.offsets[kept[i]][0], encoding.offsets[kept[j]][1]
        if begin + capacity >= len(inside):
            break
    assert (answer.start, answer.end) == span


def test_int8_is_close(folder, model):
    exact = model.answer((QUESTION, CONTEXT))
    int8 = encoders.opened(folder, precision="int8").answer((QUESTION, CONTEXT), n_best=20)
    near = [answer for answer in (int8, *int8.alternatives) if answer.text == exact.text]
    assert near
    assert near[0].score == pytest.approx(exact.score, abs=0.1)


def test_a_question_that_fills_the_network(model):
    with pytest.raises(ValueError, match="the network reads at most 64 tokens"):
        model.answer(("the dog " * 60, CONTEXT))
    with pytest.raises(ValueError, match="separated by a tab"):
        ANSWER.input.parse("no tab")


# generated answers


def test_generated_answers_are_the_text_of_the_format(tmp_path):
    model = models.opened(models.translating(tmp_path))
    result = model.answer((QUESTION, "the dog runs"), n_best=2, max_answer_length=9)
    source = f"question: {QUESTION} context: the dog runs"
    expected = model.translate(source, prefix="", n_best=2, max_new_tokens=9)
    assert result.text == expected.text.strip()
    assert result.score == pytest.approx(math.exp(sum(expected.token_scores)))
    assert (result.start, len(result.alternatives)) == (None, 1)
    other = model.answer((QUESTION, "the dog runs"), format="{context}? {question}", max_answer_length=9)
    assert other.text == model.translate(f"the dog runs? {QUESTION}", prefix="", max_new_tokens=9).text.strip()


def test_a_decoder_continues_the_format(tmp_path):
    model = models.opened(models.continuing(tmp_path))
    form = "{context} {question}"
    result = model.answer(("who?", "the dog"), format=form, max_answer_length=6)
    expected = model.generate("the dog who?", max_new_tokens=6, stop=("\n",))
    assert result.text == expected.text.strip()


def test_a_long_context_is_read_in_windows_of_sentences(tmp_path):
    model = models.opened(models.with_positions(tmp_path))
    context = "the man sees the dog. a horse runs along the beach. " * 6
    result = model.answer(("who runs?", context), max_answer_length=5)
    assert result.windows > 1
    assert result.truncated == 0
    both = model.answer([("who runs?", context), ("a?", "b")], max_answer_length=5)
    assert [answer.windows for answer in both] == [result.windows, 1]
    assert both[0].text == result.text


@pytest.mark.parametrize("form", ["{question}", "{context} {context} {question}", ""])
def test_a_wrong_format(tmp_path, form):
    model = models.opened(models.translating(tmp_path))
    with pytest.raises(ValueError, match=r"expected \{(question|context)\} once in the format"):
        model.answer(("a", "b"), format=form)
    with pytest.raises(ValueError, match="for networks that extract answers"):
        model.answer(("a", "b"), no_answer_threshold=1.0)


@pytest.mark.parametrize("form", ["q: {question} c: {context}", "{context}{x}\n{question}"])
def test_texts_with_braces(form):
    expected = (
        form.replace("{question}", "QQ")
        .replace("{context}", "CC")
        .replace("QQ", "{context}?")
        .replace("CC", "{question}")
    )
    assert QuestionTemplate(form).source("{context}?", "{question}") == expected
