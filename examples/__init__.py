"""Example programs; continuous integration runs each of them."""
