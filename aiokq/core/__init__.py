"""The base layer: modules that every other layer imports and that import no other layer."""
