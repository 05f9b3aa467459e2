"""Training objectives, one file each."""
