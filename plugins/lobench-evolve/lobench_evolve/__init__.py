"""Meta-training by evolution: a population's members travel as seeds, and are trained many in one program."""
