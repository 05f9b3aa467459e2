"""From a network to tokens. Read it in this order: row, rules, stop, search, beam, result, reading, given, settings,
batch, run, scoring.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "AtOnce": "regard.generation.run",
        "Beam": "regard.generation.beam",
        "Begin": "regard.generation.rules",
        "End": "regard.generation.stop",
        "EndAtLimit": "regard.generation.rules",
        "Forbid": "regard.generation.rules",
        "Given": "regard.generation.given",
        "Greedy": "regard.generation.search",
        "Hypothesis": "regard.generation.result",
        "MinLength": "regard.generation.rules",
        "MinP": "regard.generation.rules",
        "NoRepeat": "regard.generation.rules",
        "Repeat": "regard.generation.stop",
        "RepetitionPenalty": "regard.generation.rules",
        "Result": "regard.generation.result",
        "Sample": "regard.generation.search",
        "Settings": "regard.generation.settings",
        "Stopped": "regard.generation.stop",
        "Temperature": "regard.generation.rules",
        "Text": "regard.generation.stop",
        "TooLong": "regard.generation.given",
        "TopK": "regard.generation.rules",
        "TopP": "regard.generation.rules",
        "Until": "regard.generation.beam",
        "Wrote": "regard.generation.batch",
        "generate": "regard.generation.run",
        "score": "regard.generation.scoring",
        "stream": "regard.generation.run",
    },
)
