"""Meta-training by evolution. Members of a population are sent as seeds, and many are trained in one program."""
