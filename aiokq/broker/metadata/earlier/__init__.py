"""Directories of earlier versions of aiokq: their metadata file, and its migration."""
