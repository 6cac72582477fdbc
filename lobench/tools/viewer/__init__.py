"""`lobench view`: a store's pages, served."""
