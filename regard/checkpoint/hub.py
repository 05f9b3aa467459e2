"""The Hugging Face hub, for those who ask for it."""

from __future__ import annotations

from pathlib import Path

from regard.checkpoint.files import CheckpointError

WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm"]


def fetch(name: str) -> Path:
    """The folder of a model of this name, downloaded if it is not there yet. Old `.bin` weights only if need be."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise CheckpointError(
            f"{name!r} is no folder, and downloading needs the hub extra: pip install 'regard[hub]'"
        ) from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*WANTED, "pytorch_model*.bin"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{name!r} could not be downloaded: {reason}") from None
    return folder
