"""The data that the demo makes."""
