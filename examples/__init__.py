"""Programs to read and to run; continuous integration runs each of them."""
