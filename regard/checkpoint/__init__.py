"""Other people's files: read into a network, written back, with a report of every tensor."""
