"""The publisher: applies the image to a node, and owns the topics that requests see."""
