"""A case that was lost, measured again: what the test of such a case calls."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lobench.analysis.scores.score_scale import SCORE_VERSION, ScaleKind, ScoreScale, check_score_versions, scores
from lobench.core.errors import LobenchError
from lobench.core.metric import Direction
from lobench.core.wording import headline
from lobench.evaluation.result import Result

__all__ = ["MeasuredLoss", "measured_loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoss:
    """What was measured on a case.

    Attributes:
      against: The optimizer, with its setting.
      margin: It loses where its score is lower by more.
      behind: By how much it was lower.
      scale: 0 is untrained, 1 the optimizer on the seeds that it was tuned on.
      scores: The optimizer's, by seed.
    """

    against: str
    metric: str
    margin: float
    behind: float
    scale: ScoreScale
    scores: Mapping[int, float]
    score_version: int

    def gap(self, result: Result) -> float:
        """Returns by how much the score of another result on the same seeds is lower, in the mean.

        Raises:
          LobenchError: the result has other seeds.
        """
        if sorted(result.seeds) != sorted(self.scores):
            expected = f"{min(self.scores)} to {max(self.scores)}"
            raise LobenchError("the result has other seeds", got=str(result.seeds), expected=expected)
        values = result.metrics[self.metric]
        ours = scores(values[:, -1], self.scale, starts=values[:, 0], diverged=result.diverged)
        return float(np.mean([self.scores[seed] for seed in result.seeds] - ours))

    def text(self) -> str:
        """Returns it as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def measured_loss(path: Path) -> MeasuredLoss:
    """Reads what was measured.

    Raises:
      LobenchError: it cannot be read, or is of another rule of scores.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        scale = record.pop("scale")
        direction = Direction(scale.pop("direction"))
        found = MeasuredLoss(
            **{
                **record,
                "scale": ScoreScale(**{**scale, "kind": ScaleKind(scale["kind"]), "direction": direction}),
                "scores": {int(seed): score for seed, score in record["scores"].items()},
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LobenchError("cannot read what was measured", where=str(path), got=headline(error)) from error
    check_score_versions({path.name: found.score_version, "this lobench": SCORE_VERSION})
    return found
