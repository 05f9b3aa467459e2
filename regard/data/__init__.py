"""Data pipeline: from files to batches.

Reading order: example, formats, reader (and readers/), source, encoders/, encoding, corpus, epoch_plan, batches,
document_packing, length_policy.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Batches": "regard.data.batches",
        "LengthBatching": "regard.data.batches",
        "Corpus": "regard.data.corpus",
        "PackedBatching": "regard.data.batches",
        "DataSource": "regard.data.source",
        "encode": "regard.data.encoding",
        "read": "regard.data.reader",
    },
)
