"""Film: moving shapes that show one episode of a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Film", "Scene", "Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A shape whose position in each frame is four numbers, with x to the right and y upwards, both from 0 to 1.

    Attributes:
      kind: "line" from (x, y) to (x, y), or "dot" of x, y and a radius. The fourth number of a dot is unused.
      style: Class of the report's style sheet, s1 to s4.
      width: Width of a line, in pixels of a picture that is 200 wide.
    """

    kind: Literal["line", "dot"] = "line"
    style: str = "s1"
    width: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Parts of a film that are the same in all frames.

    Attributes:
      title: Title of the film.
      shapes: Shapes in drawing order.
      frame_seconds: Seconds between two frames.
    """

    title: str
    shapes: tuple[Shape, ...]
    frame_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """Recording of one episode of one seed.

    Attributes:
      scene: Title, shapes and frame rate.
      frames: float32[num_frames, num_shapes, 4].
      seed: Seed of the training.
    """

    scene: Scene
    frames: memoryview[float]
    seed: int

    def header(self) -> dict[str, Any]:
        """Returns everything except the frames' numbers, as JSON values."""
        shapes = [[shape.kind, shape.style, shape.width] for shape in self.scene.shapes]
        scene = {"title": self.scene.title, "shapes": shapes, "frame_seconds": self.scene.frame_seconds}
        return {**scene, "seed": self.seed, "shape": list(self.frames.shape or ())}

    @classmethod
    def read(cls, header: Mapping[str, Any], values: memoryview) -> Film:
        """Returns the film of a `header` and the bytes of its frames."""
        shapes = tuple(Shape(kind=kind, style=style, width=width) for kind, style, width in header["shapes"])
        scene = Scene(title=header["title"], shapes=shapes, frame_seconds=header["frame_seconds"])
        frames = values[: 4 * math.prod(header["shape"])].cast("f", header["shape"])
        return cls(scene=scene, frames=frames, seed=header["seed"])
