"""Every objective's loss against transformers on the same batch, or against its definition."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from unit.training.tiny_data import batch, ids, random_rows

from regard.checkpoint.load import load
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.training.objectives.causal import CausalLM, next_token_labels
from regard.training.objectives.classify import SequenceClassification
from regard.training.objectives.distillation import Distillation
from regard.training.objectives.masked import MaskedLM
from regard.training.objectives.rdrop_objective import RDrop
from regard.training.objectives.span import QuestionAnswering
from regard.training.objectives.tag import TokenClassification
from regard.training.objectives.translate import Seq2SeqLM, shift_right
from regard.transformer.network import build

LENGTHS = (3, 6, 1, 4)
BERT = dict(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, num_labels=5
)
MARIAN = dict(
    vocab_size=30,
    d_model=8,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=12,
    decoder_ffn_dim=12,
    pad_token_id=0,
    decoder_start_token_id=2,
    eos_token_id=1,
)


def pair_of_networks(tmp_path, kind, config):
    """A network of transformers with random parameters, and ours, in float64, without dropout."""
    torch.manual_seed(3)
    theirs = kind(config).double().eval()
    with torch.no_grad():
        for name, value in theirs.named_parameters():
            if "embed_positions" not in name:  # which are computed, not learned
                value.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path)
    ours, _ = load(tmp_path)
    return ours.eval(), theirs


def gpt(vocabulary, layers, dropout=0.0):
    """A small decoder."""
    sizes = dict(vocab_size=vocabulary, n_embd=8, n_layer=layers, n_head=2)
    rates = dict(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    return build(FAMILIES["gpt2"].read_config({**sizes, **rates}, "GPT2LMHeadModel")[0])


def padded(rows, fill):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


def mask(rows):
    return padded([[1] * len(row) for row in rows], 0)


def close(ours, mean, count, relative=1e-9):
    assert ours.count == count
    torch.testing.assert_close(ours.sum / ours.count, mean.double(), rtol=relative, atol=1e-12)


def cross_entropy(logits, label, smoothing):
    """Label-smoothed cross-entropy by its definition."""
    said = torch.log(torch.exp(logits) / torch.exp(logits).sum())
    truth = torch.full_like(said, smoothing / len(said))
    truth[label] += 1 - smoothing
    return -(truth * said).sum()


def test_translate_against_transformers(tmp_path):
    config = transformers.MarianConfig(**MARIAN)
    ours, theirs = pair_of_networks(tmp_path, transformers.MarianMTModel, config)
    source, target = random_rows(LENGTHS, 30), random_rows((2, 5, 4, 3), 30, seed=1)
    labels = padded(target, -100)
    expected = theirs(input_ids=padded(source, 0), attention_mask=mask(source), labels=labels).loss
    found = Seq2SeqLM(decoder_start=2, label_smoothing=0.1).loss(ours, batch(source=ids(*source), target=ids(*target)))
    close(found, expected.detach(), sum(map(len, target)))  # evaluated without label smoothing


def test_label_smoothing_is_its_definition():
    network = build(transformer_2017(vocabulary=12, layers=(1, 1), model_dim=8, heads=2, dropout=0.0)).double()
    source, target = ids([3, 4, 1], [5, 1]), ids([6, 7, 8, 1], [9, 1])
    given = batch(source=source, target=target)
    network.train()
    found = Seq2SeqLM(decoder_start=2, label_smoothing=0.2).loss(network, given)
    logits = network(
        source.values, torch.tensor([2, 6, 7, 8, 2, 9]), layout=source.layout, target_layout=target.layout
    ).logits
    expected = sum(cross_entropy(row, label, 0.2) for row, label in zip(logits, target.values, strict=True))
    torch.testing.assert_close(found.sum, expected, rtol=1e-10, atol=0)


def test_what_a_decoder_reads():
    assert shift_right(ids([6, 7, 1], [9, 1], [1]), 2).tolist() == [2, 6, 7, 2, 9, 2]


def test_causal_against_transformers(tmp_path):
    config = transformers.GPT2Config(vocab_size=30, n_embd=8, n_layer=2, n_head=2, n_positions=16)
    ours, theirs = pair_of_networks(tmp_path, transformers.GPT2LMHeadModel, config)
    rows = random_rows((3, 6, 2, 4), 30)
    expected = theirs(input_ids=padded(rows, 0), attention_mask=mask(rows), labels=padded(rows, -100)).loss
    found = CausalLM().loss(ours, batch(tokens=ids(*rows)))
    close(found, expected.detach(), 2 + 5 + 1 + 3, relative=1e-6)  # transformers computes this one in float32


def test_a_row_does_not_predict_the_next_row():
    assert next_token_labels(ids([6, 7, 1], [9, 1])).tolist() == [7, 1, IGNORE_INDEX, 1, IGNORE_INDEX]


def test_masked_against_transformers(tmp_path):
    ours, theirs = pair_of_networks(tmp_path, transformers.BertForMaskedLM, transformers.BertConfig(**BERT))
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30, mask_probability=0.5)
    rows = random_rows((9, 6, 7), 30)
    torch.manual_seed(5)
    given, labels = objective.mask_tokens(ids(*rows))
    torch.manual_seed(5)
    found = objective.loss(ours, batch(tokens=ids(*rows)))
    split = [list(part) for part in given.split((9, 6, 7))]
    wanted = [list(part) for part in labels.split((9, 6, 7))]
    expected = theirs(input_ids=padded(split, 0), attention_mask=mask(split), labels=padded(wanted, -100)).loss
    close(found, expected.detach(), int((labels != IGNORE_INDEX).sum()))


def test_masked_loss_is_the_divergence_from_the_true_tokens(tmp_path):
    """KL(one-hot ‖ prediction) at masked positions, computed by torch's kl_div; other positions have no part in it."""
    ours, _ = pair_of_networks(tmp_path, transformers.BertForMaskedLM, transformers.BertConfig(**BERT))
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30, mask_probability=0.5)
    rows = random_rows((9, 6, 7), 30)
    torch.manual_seed(5)
    masked, labels = objective.mask_tokens(ids(*rows))
    torch.manual_seed(5)
    found = objective.loss(ours.eval(), batch(tokens=ids(*rows)))
    chosen = labels != IGNORE_INDEX
    original = torch.tensor([token for row in rows for token in row])
    assert torch.equal(labels[chosen], original[chosen])
    predictions = ours(masked, layout=ids(*rows).layout).logits.double().log_softmax(dim=-1)
    truth = torch.nn.functional.one_hot(original, 30).double()
    divergence = torch.nn.functional.kl_div(predictions, truth, reduction="none").sum(dim=-1)
    torch.testing.assert_close(found.sum.double(), divergence[chosen].sum(), rtol=1e-5, atol=1e-6)
    assert found.count == int(chosen.sum())
    shares = predictions.topk(5, dim=-1).indices == original[:, None]
    assert found.correct == {
        "accuracy": int(shares[chosen, 0].sum()),
        "top5_accuracy": int(shares[chosen].any(dim=-1).sum()),
    }


def test_a_seventh_is_chosen_of_which_eight_tenths_are_masked():
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=1000, mask_probability=0.15)
    rows = [[2, *row, 3] for row in random_rows((500,) * 100, 1000)]
    tokens = ids(*rows)
    torch.manual_seed(0)
    given, labels = objective.mask_tokens(tokens)
    chosen = labels != IGNORE_INDEX
    special = tokens.values < 5
    assert not bool((chosen & special).any())
    assert torch.equal(labels[chosen], tokens.values[chosen])
    assert torch.equal(given[~chosen], tokens.values[~chosen])
    count = int(chosen.sum())
    assert abs(count / 50000 - 0.15) < 4 * math.sqrt(0.15 * 0.85 / 50000)
    masked = given[chosen] == 4
    stayed = given[chosen] == tokens.values[chosen]
    replaced = ~masked & ~stayed
    for share, found in ((0.8, masked), (0.1, stayed), (0.1, replaced)):
        assert abs(int(found.sum()) / count - share) < 4 * math.sqrt(share * (1 - share) / count) + 1e-3
    assert int(given[chosen][replaced].min()) >= 5


def test_whole_words_are_chosen_together():
    continues = torch.zeros(30, dtype=torch.bool)
    continues[20:] = True
    objective = MaskedLM(
        mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30, mask_probability=0.3, continuation_mask=continues
    )
    rows = [[2, *row, 3] for row in random_rows((40,) * 50, 30)]
    torch.manual_seed(0)
    _, labels = objective.mask_tokens(ids(*rows))
    parts = 0
    for row, chosen in zip(rows, (labels != IGNORE_INDEX).split([len(row) for row in rows]), strict=True):
        for place in range(1, len(row)):
            if row[place] >= 20 and row[place - 1] >= 5:  # it continues the word before it
                parts += 1
                assert chosen[place] == chosen[place - 1]
    assert parts > 300
    assert 0.2 < float((labels != IGNORE_INDEX).double().mean()) < 0.4


@pytest.mark.parametrize("pairs", [False, True])
def test_classify_against_transformers(tmp_path, pairs):
    config = transformers.BertConfig(**BERT)
    ours, theirs = pair_of_networks(tmp_path, transformers.BertForSequenceClassification, config)
    rows, labels = random_rows(LENGTHS, 30), torch.tensor([4, 0, 2, 1])
    segments = [[0] * (len(row) // 2) + [1] * (len(row) - len(row) // 2) for row in rows]
    columns = {"tokens": ids(*rows), "label": ids(*[[int(label)] for label in labels])}
    beside = {}
    if pairs:
        columns["segments"] = ids(*segments)
        beside = {"token_type_ids": padded(segments, 0)}
    said = theirs(input_ids=padded(rows, 0), attention_mask=mask(rows), labels=labels, **beside)
    found = SequenceClassification().loss(ours, batch(**columns))
    close(found, said.loss.detach(), 4)
    assert found.correct["accuracy"] == int((said.logits.argmax(-1) == labels).sum())


def test_tag_against_transformers(tmp_path):
    config = transformers.BertConfig(**BERT)
    ours, theirs = pair_of_networks(tmp_path, transformers.BertForTokenClassification, config)
    rows = random_rows(LENGTHS, 30)
    tags = [[0, 4, IGNORE_INDEX], [IGNORE_INDEX, 1, 2, 3, IGNORE_INDEX, 0], [1], [IGNORE_INDEX, 2, 2, IGNORE_INDEX]]
    said = theirs(input_ids=padded(rows, 0), attention_mask=mask(rows), labels=padded(tags, -100))
    found = TokenClassification().loss(ours, batch(tokens=ids(*rows), tags=ids(*tags)))
    close(found, said.loss.detach(), 9)
    labelled = padded(tags, -100) != IGNORE_INDEX
    assert found.correct["accuracy"] == int((said.logits.argmax(-1) == padded(tags, -100))[labelled].sum())


def test_span_against_transformers(tmp_path):
    """transformers includes padding in the softmax, so its sequences are passed one by one."""
    config = transformers.BertConfig(**{**BERT, "num_labels": 2})
    ours, theirs = pair_of_networks(tmp_path, transformers.BertForQuestionAnswering, config)
    rows, answers = random_rows(LENGTHS, 30), [[0, 2], [4, 5], [0, 0], [1, 1]]
    expected = sum(
        theirs(
            input_ids=torch.tensor([row]), start_positions=torch.tensor([begin]), end_positions=torch.tensor([end])
        ).loss
        for row, (begin, end) in zip(rows, answers, strict=True)
    )
    found = QuestionAnswering().loss(ours, batch(tokens=ids(*rows), answer=ids(*answers)))
    close(found, expected.detach() / 4, 4)
    assert found.correct["accuracy"] >= 1  # the sequence of one token is always correct


def test_distillation_is_its_definition():
    student, teacher = gpt(12, 1).double(), gpt(12, 2).double()
    rows = random_rows((4, 3), 12)
    given = batch(tokens=ids(*rows))
    objective = Distillation(objective=CausalLM(), teacher=teacher, temperature=3.0, alpha=0.7)
    found = objective.loss(student.train(), given)
    labels = [IGNORE_INDEX if label == IGNORE_INDEX else label for label in next_token_labels(ids(*rows)).tolist()]
    said = student(given["tokens"].values, layout=given["tokens"].layout).logits
    truth = teacher(given["tokens"].values, layout=given["tokens"].layout).logits
    expected, count = 0.0, 0
    for one, other, label in zip(said, truth, labels, strict=True):
        if label == IGNORE_INDEX:
            continue
        p, q = (other / 3).softmax(-1), (one / 3).softmax(-1)
        expected = expected + 0.7 * 9 * (p * (p / q).log()).sum() + 0.3 * cross_entropy(one, label, 0.0)
        count += 1
    torch.testing.assert_close(found.sum, expected, rtol=1e-10, atol=0)
    assert found.count == count == 5


def test_a_teacher_that_is_its_own_student_has_no_divergence_and_gets_no_gradient():
    network = gpt(12, 1)
    teacher = build(network.config).double()
    teacher.load_state_dict(network.double().state_dict())
    objective = Distillation(objective=CausalLM(), teacher=teacher, temperature=2.0, alpha=1.0)
    found = objective.loss(network.train(), batch(tokens=ids([3, 4, 5])))
    found.sum.backward()
    assert float(found.sum.detach()) == pytest.approx(0, abs=1e-12)
    assert all(value.grad is None for value in teacher.parameters())


def test_teachers_with_other_labels_are_refused():
    networks = [gpt(12, 1), gpt(13, 1)]
    objective = Distillation(objective=CausalLM(), teacher=networks[1])
    with pytest.raises(ValueError, match="the teacher has 13 labels and the student 12"):
        objective.loss(networks[0].train(), batch(tokens=ids([3, 4, 5])))


@pytest.mark.parametrize("objective", [CausalLM(label_smoothing=0.1), TokenClassification(label_smoothing=0.1)])
def test_agreement_is_the_mean_of_two_readings_and_how_far_they_are_apart(objective):
    tagger = build(
        FAMILIES["bert"].read_config(
            {**BERT, "num_labels": 12, "classifier_dropout": 0.0}, "BertForTokenClassification"
        )[0]
    )
    network = (gpt(12, 1, dropout=0.3) if isinstance(objective, CausalLM) else tagger).double()
    rows = random_rows((4, 3), 12)
    given = batch(tokens=ids(*rows), tags=ids(*rows))
    torch.manual_seed(5)
    found = RDrop(objective=objective, alpha=3.0).loss(network.train(), given)
    torch.manual_seed(5)
    asked = objective.label_batch(batch(tokens=ids(*rows, *rows), tags=ids(*rows, *rows)))
    readings = asked.forward(network, asked.batch).logits[asked.labels != IGNORE_INDEX].chunk(2)
    labels = asked.labels[asked.labels != IGNORE_INDEX].chunk(2)[0]
    assert not torch.equal(*readings)
    p, q = (scores.softmax(-1) for scores in readings)
    apart = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    lost = sum(
        cross_entropy(one, int(label), 0.1) for scores in readings for one, label in zip(scores, labels, strict=True)
    )
    torch.testing.assert_close(found.sum, (lost + 3.0 * apart) / 2, rtol=1e-10, atol=0)
    assert found.count == len(labels)
    network.eval()
    plain = type(objective)(label_smoothing=0.1).loss(network, given)
    torch.testing.assert_close(RDrop(objective=objective).loss(network, given).sum, plain.sum, rtol=0, atol=0)


def test_layers_are_left_out_anew_for_the_second_reading():
    """All sequences of a batch share layer dropout: in one batch, the two passes would always agree."""
    dropped = dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), 0.5)
    sizes = dict(vocab_size=12, d_model=8, encoder_layers=2, decoder_layers=2, max_position_embeddings=9)
    others = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    values = dict(**sizes, **others, **dropped, encoder_ffn_dim=9, decoder_ffn_dim=9, dropout=0.0)
    network = build(FAMILIES["bart"].read_config(values, "BartForConditionalGeneration")[0]).double().train()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_()
    given = batch(source=ids([3, 4, 5]), target=ids([6, 7, 2]))
    apart = 0.0
    for seed in range(5):
        losses = []
        for weight in (0.0, 1.0):
            torch.manual_seed(seed)
            losses.append(RDrop(objective=Seq2SeqLM(decoder_start=2), alpha=weight).loss(network, given).sum.item())
        apart += losses[1] - losses[0]
    assert apart > 1e-3


def test_both_readings_have_the_same_words_hidden():
    network = build(FAMILIES["bert"].read_config(BERT, "BertForMaskedLM")[0]).train()
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30, mask_probability=0.3)
    seen = []
    handle = network.embedding.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    torch.manual_seed(1)
    given = batch(tokens=ids(*random_rows((30, 20), 30)))
    found = RDrop(objective=objective).loss(network, given)
    handle.remove()
    first, second = seen[0].chunk(2)
    assert torch.equal(first, second)
    assert not torch.equal(first, given["tokens"].values)
    torch.manual_seed(1)
    assert found.count == int((objective.label_batch(given).labels != IGNORE_INDEX).sum())


def test_an_agreement_may_begin_later():
    network = gpt(12, 1, dropout=0.3).double().train()
    rows = ids(*random_rows((4, 3), 12))
    late, always = RDrop(objective=CausalLM(), start_epoch=2), RDrop(objective=CausalLM())
    for epoch, same in ((0, CausalLM()), (1, CausalLM()), (2, always), (3, always)):
        losses = []
        for objective in (late, same):
            torch.manual_seed(5)
            losses.append(objective.loss(network, replace(batch(tokens=rows), epoch=epoch)).sum)
        assert torch.equal(*losses)


def test_places_without_a_label_are_not_scored_and_the_head_is_put_back():
    network = build(FAMILIES["bert"].read_config(BERT, "BertForMaskedLM")[0])
    head = network.head
    scored = []
    handle = head.transform.register_forward_hook(lambda module, given, output: scored.append(len(given[0])))
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30, mask_probability=0.3)
    torch.manual_seed(1)
    found = objective.loss(network.train(), batch(tokens=ids(*random_rows((30, 20), 30))))
    handle.remove()
    assert scored == [found.count]
    assert 0 < found.count < 30
    assert network.head is head


def test_a_batch_in_which_nothing_is_hidden_has_no_loss():
    network = build(FAMILIES["bert"].read_config(BERT, "BertForMaskedLM")[0])
    objective = MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=30)
    found = objective.loss(network.train(), batch(tokens=ids([2, 3])))
    found.sum.backward()
    assert (float(found.sum.detach()), found.count) == (0.0, 0)
