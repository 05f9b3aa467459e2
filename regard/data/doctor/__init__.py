"""The doctor: what is wrong with data, by line, before an hour of training is wasted on it."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Finding": "regard.data.doctor.finding",
        "Report": "regard.data.doctor.report",
        "Severity": "regard.data.doctor.finding",
        "Split": "regard.data.doctor.reading",
        "examine": "regard.data.doctor.examination",
        "quick": "regard.data.doctor.examination",
    },
)
