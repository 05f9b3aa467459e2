"""Decoding: from a network to generated tokens.

Suggested reading order: sequence, logits_processors, stopping_criteria, topk, search, beam, result, inputs,
decoding_options, running_batch, scheduler, scoring.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "BatchSize": "regard.generation.scheduler",
        "BeamSearch": "regard.generation.beam",
        "DecodingOptions": "regard.generation.decoding_options",
        "DecodingResult": "regard.generation.result",
        "EarlyStopping": "regard.generation.beam",
        "EosToken": "regard.generation.stopping_criteria",
        "ForcedEos": "regard.generation.logits_processors",
        "ForcedPrefix": "regard.generation.logits_processors",
        "GreedySearch": "regard.generation.search",
        "Hypothesis": "regard.generation.result",
        "Inputs": "regard.generation.inputs",
        "MinNewTokens": "regard.generation.logits_processors",
        "MinP": "regard.generation.logits_processors",
        "NoRepeatNgram": "regard.generation.logits_processors",
        "OverlongInput": "regard.generation.inputs",
        "RandomSampling": "regard.generation.search",
        "Repetition": "regard.generation.stopping_criteria",
        "RepetitionPenalty": "regard.generation.logits_processors",
        "StopReason": "regard.generation.stopping_criteria",
        "StopString": "regard.generation.stopping_criteria",
        "StreamEvent": "regard.generation.running_batch",
        "SuppressSequences": "regard.generation.logits_processors",
        "Temperature": "regard.generation.logits_processors",
        "TopK": "regard.generation.logits_processors",
        "TopP": "regard.generation.logits_processors",
        "generate": "regard.generation.scheduler",
        "score": "regard.generation.scoring",
        "stream": "regard.generation.scheduler",
    },
)
