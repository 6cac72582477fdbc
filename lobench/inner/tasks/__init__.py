"""Inner tasks that ship with lobench; importing the package gives all of them their names in gin."""

from __future__ import annotations

from lobench.inner.tasks.classic import Ackley, Beale, Rosenbrock, StyblinskiTang
from lobench.inner.tasks.image import DigitsAutoencoder, DigitsConv, DigitsMLP, PermutedDigits
from lobench.inner.tasks.quadratic import Quadratic, QuadraticFamily
from lobench.inner.tasks.sequence import ByteRNN

__all__ = [
    "Ackley",
    "Beale",
    "ByteRNN",
    "DigitsAutoencoder",
    "DigitsConv",
    "DigitsMLP",
    "PermutedDigits",
    "Quadratic",
    "QuadraticFamily",
    "Rosenbrock",
    "StyblinskiTang",
]
