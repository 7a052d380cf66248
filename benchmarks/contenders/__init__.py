"""Programs that use one client in one way each; they print their measurements as JSON."""
