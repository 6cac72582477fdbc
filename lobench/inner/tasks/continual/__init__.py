"""Continual learning: sequences of tasks for one network, evaluated on all of them."""

from lobench.inner.tasks.continual.permuted import PermutedDigitsStream, PermutedStream
from lobench.inner.tasks.continual.rotated import RotatedDigits, RotatedStream
from lobench.inner.tasks.continual.split import SplitDigits, SplitStream

__all__ = ["PermutedDigitsStream", "PermutedStream", "RotatedDigits", "RotatedStream", "SplitDigits", "SplitStream"]
