"""The start of a node's metadata, and what is found in its log directories at that time."""
