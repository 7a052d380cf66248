"""The publisher: makes a node follow the image, and owns the topics that requests see."""
