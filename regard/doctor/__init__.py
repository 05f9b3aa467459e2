"""The doctor: finds problems in training data, by file and line, before training starts."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Finding": "regard.doctor.finding",
        "DoctorReport": "regard.doctor.doctor_report",
        "Severity": "regard.doctor.finding",
        "Split": "regard.doctor.split_reader",
        "examine": "regard.doctor.examination",
        "examine_quick": "regard.doctor.examination",
    },
)
