"""From files to batches. Read it in this order: example, formats, reading (and readers), source, encoders, encoding,
corpus, plan, batches, packing, windows.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Batches": "regard.data.batches",
        "ByLength": "regard.data.batches",
        "Corpus": "regard.data.corpus",
        "Packed": "regard.data.batches",
        "Source": "regard.data.source",
        "encode": "regard.data.encoding",
        "read": "regard.data.reader",
    },
)
