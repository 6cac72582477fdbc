"""optuna's samplers as searches of lobench: `Method.search = @optuna()`, `optuna.sampler = "tpe"`."""
