"""Evaluates a checkpoint with a seed. Replace `evaluated` by yours; any framework will do."""

import argparse
import json
import random
from pathlib import Path


def evaluated(checkpoint: Path, noise: float) -> dict[str, float]:
    weights = json.loads((checkpoint / "weights.json").read_text())
    return {"valid/loss": weights["w"] ** 2 + noise * random.random()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--noise", type=float, default=0.0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    (arguments.out / "metrics.json").write_text(json.dumps(evaluated(arguments.checkpoint, arguments.noise)))
