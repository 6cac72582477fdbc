"""Tasks on the 8x8 digits of scikit-learn: a perceptron, a convolutional network, an autoencoder, a family."""

from __future__ import annotations

from lobench.inner.configurable import configurable
from lobench.inner.tasks.autoencoder import ImageAutoencoder
from lobench.inner.tasks.convolutional import ConvClassifier
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.tasks.permuted import Permuted

__all__ = ["DigitsAutoencoder", "DigitsConv", "DigitsMLP", "PermutedDigits"]


@configurable
class DigitsMLP(MLPClassifier):
    """Classification of the digits with a multilayer perceptron; arguments of `MLPClassifier`."""

    def __init__(
        self,
        *,
        hidden_sizes: tuple[int, ...] = (32,),
        activation: str = "relu",
        batch_size: int = 64,
        norm: str | None = None,
    ) -> None:
        super().__init__(
            data="digits", hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size, norm=norm
        )


@configurable
class DigitsConv(ConvClassifier):
    """Classification of the digits with a convolutional network; arguments of `ConvClassifier`."""

    def __init__(self, *, channels: tuple[int, ...] = (8, 16), activation: str = "relu", batch_size: int = 32) -> None:
        super().__init__(data="digits", channels=channels, activation=activation, batch_size=batch_size)


@configurable
class DigitsAutoencoder(ImageAutoencoder):
    """Autoencoder of the digits; arguments of `ImageAutoencoder`."""

    def __init__(
        self,
        *,
        hidden_sizes: tuple[int, ...] = (32, 8, 32),
        activation: str = "relu",
        batch_size: int = 64,
        loss: str = "mse",
    ) -> None:
        super().__init__(
            data="digits", hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size, loss=loss
        )


@configurable
class PermutedDigits(Permuted):
    """Family of `DigitsMLP` tasks with permuted pixels and labels, for meta-training.

    Args:
      hidden_sizes, activation, batch_size: As in DigitsMLP.
    """

    def __init__(
        self, *, hidden_sizes: tuple[int, ...] = (16,), activation: str = "relu", batch_size: int = 64
    ) -> None:
        super().__init__(task=DigitsMLP(hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size))
