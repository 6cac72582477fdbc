"""Search strategies: spaces, trials and who proposes them."""
