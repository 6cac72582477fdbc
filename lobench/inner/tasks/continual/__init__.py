"""Continual learning: streams of tasks that one network is trained on one after another, and evaluated on all of."""

from lobench.inner.tasks.continual.permuted import PermutedDigitsStream, PermutedStream
from lobench.inner.tasks.continual.rotated import RotatedDigits, RotatedStream
from lobench.inner.tasks.continual.split import SplitDigits, SplitStream

__all__ = ["PermutedDigitsStream", "PermutedStream", "RotatedDigits", "RotatedStream", "SplitDigits", "SplitStream"]
