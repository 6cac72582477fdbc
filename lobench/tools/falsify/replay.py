"""Replay of a case on which a checkpoint lost to an optimizer, for the tests that `lobench falsify` writes."""

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
    """Loss of a checkpoint measured on a case.

    Attributes:
      against: Text of the optimizer with its setting.
      metric: Metric of the scores.
      margin: Difference of scores above which the checkpoint loses.
      behind: Measured difference of the scores.
      scale: Score scale: 0 is untrained, 1 is the optimizer on the seeds of its tuning.
      scores: Scores of the optimizer, by seed.
      score_version: Version of the rule that computed the scores; see `SCORE_VERSION`.
    """

    against: str
    metric: str
    margin: float
    behind: float
    scale: ScoreScale
    scores: Mapping[int, float]
    score_version: int

    def gap(self, result: Result) -> float:
        """Returns the mean difference between the stored scores and a result's scores on the same seeds.

        Raises:
          LobenchError: The result has other seeds.
        """
        if sorted(result.seeds) != sorted(self.scores):
            expected = f"{min(self.scores)} to {max(self.scores)}"
            raise LobenchError("the result has other seeds", got=str(result.seeds), expected=expected)
        values = result.metrics[self.metric]
        new_scores = scores(values[:, -1], self.scale, starts=values[:, 0], diverged=result.diverged)
        return float(np.mean([self.scores[seed] for seed in result.seeds] - new_scores))

    def to_json(self) -> str:
        """Returns the measurements as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def measured_loss(path: Path) -> MeasuredLoss:
    """Reads the file that `MeasuredLoss.to_json` was written to.

    Raises:
      LobenchError: The file cannot be read, or its scores were computed by another version of the score rule.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        scale = record.pop("scale")
        direction = Direction(scale.pop("direction"))
        loss = MeasuredLoss(
            **{
                **record,
                "scale": ScoreScale(**{**scale, "kind": ScaleKind(scale["kind"]), "direction": direction}),
                "scores": {int(seed): score for seed, score in record["scores"].items()},
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LobenchError("cannot read the measured values", where=str(path), got=headline(error)) from error
    check_score_versions({path.name: loss.score_version, "this lobench": SCORE_VERSION})
    return loss
