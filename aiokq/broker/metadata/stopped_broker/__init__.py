"""Commands that change the metadata of a stopped broker."""
