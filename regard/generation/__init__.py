"""From a network to tokens. Read it in this order: row, rules, stop, search, beam, result, reading, given, settings,
batch, run, scoring.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "AtOnce": "regard.generation.scheduler",
        "Beam": "regard.generation.beam",
        "Begin": "regard.generation.logits_processors",
        "End": "regard.generation.stopping_criteria",
        "EndAtLimit": "regard.generation.logits_processors",
        "Forbid": "regard.generation.logits_processors",
        "Given": "regard.generation.inputs",
        "Greedy": "regard.generation.search",
        "Hypothesis": "regard.generation.result",
        "MinLength": "regard.generation.logits_processors",
        "MinP": "regard.generation.logits_processors",
        "NoRepeat": "regard.generation.logits_processors",
        "Repeat": "regard.generation.stopping_criteria",
        "RepetitionPenalty": "regard.generation.logits_processors",
        "Result": "regard.generation.result",
        "Sample": "regard.generation.search",
        "Settings": "regard.generation.decoding_options",
        "Stopped": "regard.generation.stopping_criteria",
        "Temperature": "regard.generation.logits_processors",
        "Text": "regard.generation.stopping_criteria",
        "TooLong": "regard.generation.inputs",
        "TopK": "regard.generation.logits_processors",
        "TopP": "regard.generation.logits_processors",
        "Until": "regard.generation.beam",
        "Wrote": "regard.generation.running_batch",
        "generate": "regard.generation.scheduler",
        "score": "regard.generation.scoring",
        "stream": "regard.generation.scheduler",
    },
)
