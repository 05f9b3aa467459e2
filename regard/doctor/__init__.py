"""The doctor: what is wrong with data, by line, before an hour of training is wasted on it."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Finding": "regard.doctor.finding",
        "Report": "regard.doctor.doctor_report",
        "Severity": "regard.doctor.finding",
        "Split": "regard.doctor.tolerant_reader",
        "examine": "regard.doctor.examination",
        "quick": "regard.doctor.examination",
    },
)
