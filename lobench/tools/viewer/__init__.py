"""`lobench view`: a store's page, served and kept current."""
