"""Tables as values, before anything renders them; pandas frames for notebooks."""
