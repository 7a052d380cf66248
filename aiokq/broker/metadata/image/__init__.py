"""Encodes, decodes and replays metadata records; the metadata image is the resulting state."""
