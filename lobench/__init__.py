"""lobench: pytest for learned optimizers."""
