"""XLM-RoBERTa (Conneau et al. 2019): RoBERTa for a hundred languages. The network is the same."""

from dataclasses import replace

from regard.families import roberta
from regard.families.family import FamilyInfo

FAMILY = replace(
    roberta.FAMILY,
    name="xlm-roberta",
    info=FamilyInfo(
        title="XLM-RoBERTa",
        year=2019,
        paper="Conneau et al., Unsupervised Cross-lingual Representation Learning at Scale",
        objective="masked language modelling",
        parent="RoBERTa",
    ),
    keys={**roberta.KEYS, "vocab_size": 30522},
    architectures={f"XLM{name}": architecture for name, architecture in roberta.FAMILY.architectures.items()},
    presets={
        name.replace("roberta", "xlm-roberta"): {
            **sizes,
            "architectures": ["XLMRobertaForMaskedLM"],
            "vocab_size": 250002,
        }
        for name, sizes in roberta.FAMILY.presets.items()
    },
)
