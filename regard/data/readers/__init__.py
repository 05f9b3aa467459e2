"""Readers, one file for each format. Each goes through its files once, in order, and holds one record at a time."""
