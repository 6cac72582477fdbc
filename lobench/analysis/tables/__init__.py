"""Tables as values, before anything draws them."""
