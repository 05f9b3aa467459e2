"""Downloads from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from regard.checkpoint.model_folder import CheckpointError

ALLOW_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm"]


def download(repo_id: str) -> Path:
    """Download a model, or find it in the cache, and return its folder. `.bin` weights only if there are no others."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise CheckpointError(
            f"{repo_id!r} is not a folder, and downloading needs an extra: pip install 'regard[hub]'"
        ) from None
    try:
        folder = Path(snapshot_download(repo_id, allow_patterns=ALLOW_PATTERNS))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(repo_id, allow_patterns=[*ALLOW_PATTERNS, "pytorch_model*.bin"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{repo_id!r} could not be downloaded: {reason}") from None
    return folder
