"""SLURM executor: a job per worker."""
