"""A recurrent encoder-decoder without any module of the package: search, training and capture see its interface."""

import copy
import functools
from itertools import pairwise

import pytest
import torch
from torch import nn
from unit.training.tiny_data import random_rows
from unit.training.tiny_loop import Fixed, Quiet

from regard.generation import BatchSize, BeamSearch, DecodingOptions, GreedySearch, Inputs, RandomSampling, generate
from regard.generation.scoring import score
from regard.training.objectives.translate import Seq2SeqLM
from regard.training.optim.optimizer import AdamWConfig
from regard.training.optim.schedule import ConstantSchedule
from regard.training.recipe.training_section import TrainingSection
from regard.training.run.loop import TrainingLoop
from regard.training.run.run_dir import RunDir, read_metrics
from regard.transformer.activation_capture import capture, capture_addresses
from regard.transformer.decoder_state import DecoderState
from regard.transformer.interface import GenerativeNetwork, LengthLimits, Predicts, Reads
from regard.transformer.network_base import Output

VOCABULARY, DIM, START, EOS = 13, 24, 1, 2


class GruDecoder(nn.GRU):
    capture_sites = ("hidden",)

    def capture_hooks(self, activations):
        yield self.register_forward_hook(lambda _, args, output: activations["hidden"].append(output[0].detach()))


class GruTranslator(nn.Module):
    reads, predicts = Reads.SOURCE_AND_TARGET, frozenset({Predicts.NEXT_TOKEN})
    limits = (LengthLimits(vocabulary=VOCABULARY, max_positions=None, context_length=None),) * 2
    model_dim, max_length, num_labels, reads_segments = DIM, None, 0, False
    alignment_address, scores_in_one_pass = None, True

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.encoder, self.decoder, self.output = nn.GRU(DIM, DIM), GruDecoder(DIM, DIM), nn.Linear(DIM, VOCABULARY)

    def encode(self, tokens):
        return self.encoder(self.embedding(tokens))[1]

    def decode(self, tokens, hidden):
        """Logits after each token, and the last hidden state."""
        states, last = self.decoder(self.embedding(tokens), hidden)
        return self.output(states), last

    def forward(self, source, target, *, layout, target_layout):
        pairs = zip(source.split(list(layout.lengths)), target.split(list(target_layout.lengths)), strict=True)
        return Output(target[:, None].float(), torch.cat([self.decode(y, self.encode(x))[0] for x, y in pairs]))

    def new_decoder_state(self, sources):
        return GruState(self, [self.encode(torch.tensor(list(source))) for source in sources])


class GruState:
    """One hidden state for each sequence."""

    def __init__(self, network, hidden):
        self.network, self.hidden = network, hidden

    def step(self, new_tokens):
        pairs = zip(new_tokens, self.hidden, strict=True)
        outputs = [self.network.decode(torch.tensor(list(tokens)), hidden) for tokens, hidden in pairs]
        self.hidden = [hidden for _, hidden in outputs]
        return torch.stack([logits[-1] for logits, _ in outputs])

    def reorder(self, order):
        self.hidden = [self.hidden[index] for index in order]

    def select(self, indices):
        return GruState(self.network, [self.hidden[index] for index in indices])

    def repeat_interleave(self, repeats):
        self.hidden = [hidden for hidden in self.hidden for _ in range(repeats)]

    def append(self, other, indices, repeats):
        new = other.select(indices)
        new.repeat_interleave(repeats)
        self.hidden += new.hidden


class RereadingState(GruState):
    """Every step encodes the source and reads all tokens again."""

    def __init__(self, network, rows):
        super().__init__(network, rows)  # a row: the source and the tokens that were read

    def step(self, new_tokens):
        self.hidden = [(source, [*old, *new]) for (source, old), new in zip(self.hidden, new_tokens, strict=True)]
        return torch.stack([next_logits(self.network, *row) for row in self.hidden])

    def select(self, indices):
        return RereadingState(self.network, [self.hidden[index] for index in indices])


class RereadingTranslator(GruTranslator):
    def new_decoder_state(self, sources):
        return RereadingState(self, [(list(source), []) for source in sources])


def next_logits(network, source, target):
    return network.decode(torch.tensor(target), network.encode(torch.tensor(source)))[0][-1]


@functools.cache
def network():
    torch.manual_seed(4)
    made = GruTranslator().double().eval()
    for value in made.parameters():
        nn.init.normal_(value, std=0.5)
    return made


def rereading():
    made = RereadingTranslator().double().eval()
    made.load_state_dict(network().state_dict())
    return made


SOURCES = random_rows([3, 1, 5, 2, 7, 4], VOCABULARY)
INPUTS = [Inputs([START, *random_rows([number % 3], VOCABULARY, number)[0]], x) for number, x in enumerate(SOURCES)]


def options(search):
    return DecodingOptions(search=search, eos_token_ids=[EOS], max_new_tokens=9)


def test_it_has_the_interface():
    assert isinstance(network(), GenerativeNetwork)
    assert isinstance(network().new_decoder_state([[5]]), DecoderState)


def test_greedy_search_is_a_loop_over_the_most_probable_token():
    results = list(generate(network(), INPUTS, options(GreedySearch()), batch_size=BatchSize(sequences=4)))
    assert len({len(result.tokens) for result in results}) > 1
    for inputs, result in zip(INPUTS, results, strict=True):
        tokens = list(inputs.prompt)
        while len(tokens) < len(inputs.prompt) + 9 and tokens[-1] != EOS:
            tokens.append(int(next_logits(network(), inputs.source, tokens).argmax()))
        assert list(result.tokens) == tokens[len(inputs.prompt) :]


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(beam=3), RandomSampling(seed=5, num_samples=2)])
@pytest.mark.parametrize("sequences", [1, 6])
def test_states_and_batches_change_nothing(search, sequences):
    """The scheduler with six sequences, where requests join and leave, against rereading everything, one by one."""
    expected = [next(generate(rereading(), [inputs], options(search))) for inputs in INPUTS]
    size = BatchSize(sequences=max(sequences, search.beam))
    for result, other in zip(generate(network(), INPUTS, options(search), batch_size=size), expected, strict=True):
        assert len(result.hypotheses) == len(other.hypotheses)
        for one, reread in zip(result.hypotheses, other.hypotheses, strict=True):
            assert one.tokens == reread.tokens
            assert one.token_scores == pytest.approx(reread.token_scores, abs=1e-9)


@pytest.mark.parametrize("one_pass", [True, False])
def test_scores_are_those_of_the_search(one_pass):
    scored_by = copy.copy(network())
    scored_by.scores_in_one_pass = one_pass
    results = list(generate(network(), INPUTS, options(BeamSearch(beam=2))))
    pairs = [(inputs, result.tokens) for inputs, result in zip(INPUTS, results, strict=True)]
    for scored, result in zip(score(scored_by, pairs), results, strict=True):
        assert scored.token_scores == pytest.approx(result.token_scores, abs=1e-9)


def test_its_hidden_state_can_be_captured():
    assert capture_addresses(network()) == ["decoder.hidden"]
    state = network().new_decoder_state(SOURCES[:2])
    with torch.no_grad(), capture(network(), "decoder.*") as activations:
        state.step([[START, 5], [START]])
    first, second = activations["decoder.hidden"]
    assert (first.shape, second.shape) == ((2, DIM), (1, DIM))
    assert torch.equal(first[-1:], state.hidden[0])
    with capture(network()) as outside:
        pass
    assert outside == {"decoder": []}
    with pytest.raises(ValueError, match=r"this network has decoder, each with the sites hidden"):
        capture(network(), "encoder.hidden").__enter__()


def test_it_learns_to_copy(tmp_path):
    """The real objective and the real loop: after a hundred steps it copies most sequences, also new ones."""
    torch.manual_seed(0)
    made, place = GruTranslator(), RunDir(tmp_path)
    place.open()
    rows = random_rows([1 + number % 3 for number in range(400)], VOCABULARY, low=5)
    batches = [rows[start:end] for start, end in pairwise(range(0, 401, 40))]
    TrainingLoop(
        network=made,
        objective=Seq2SeqLM(decoder_start=START),
        batches=Fixed(*[(batch, [[*row, EOS] for row in batch]) for batch in batches]),
        settings=TrainingSection(
            steps=100, schedule=ConstantSchedule(), optimizer=AdamWConfig(lr=2e-2), log_every=10, save_every=100
        ),
        run_dir=place,
        seed=1,
        model_dim=made.model_dim,
        save_model=lambda folder: None,
        evaluate=None,
        reporter=Quiet(None),
    ).run()
    losses = [line["loss"] for line in read_metrics(place.metrics)]
    assert losses[0] > 1.5
    assert losses[-1] < 0.3
    new = random_rows([1 + number % 3 for number in range(60)], VOCABULARY, seed=9, low=5)
    results = generate(made.eval(), [Inputs([START], row) for row in new], options(GreedySearch()))
    correct = sum(list(result.tokens) == [*row, EOS] for result, row in zip(results, new, strict=True))
    assert correct > 30, f"{correct} of 60"
