"""optuna's samplers by name, with their requirements and options."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lobench import ConfigError
from lobench.extend import fold, headline, suggestion

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = ["Sampler", "find_sampler", "silenced_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplerKind:
    """Facts about a sampler of optuna.

    Attributes:
      class_name: Name of its class in `optuna.samplers`.
      required_modules: Modules that it needs besides optuna.
      is_replayed: Whether it keeps state beyond the values of trials (a generation, a covariance, a position in a
        sequence). If so, earlier waves are replayed when a study is rebuilt.
    """

    class_name: str
    required_modules: tuple[str, ...] = ()
    is_replayed: bool = False


_SAMPLER_KINDS = {
    "tpe": _SamplerKind(class_name="TPESampler"),
    "cmaes": _SamplerKind(class_name="CmaEsSampler", required_modules=("cmaes",), is_replayed=True),
    "gp": _SamplerKind(class_name="GPSampler", required_modules=("torch", "scipy")),
    "nsgaii": _SamplerKind(class_name="NSGAIISampler", is_replayed=True),
    "qmc": _SamplerKind(class_name="QMCSampler", required_modules=("scipy",), is_replayed=True),
    "brute_force": _SamplerKind(class_name="BruteForceSampler"),
}
_OPTION_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A sampler and its validated options.

    Attributes:
      name: Name of the sampler, such as "tpe".
      options: Keyword arguments of its class.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def is_replayed(self) -> bool:
        return _SAMPLER_KINDS[self.name].is_replayed

    @property
    def is_grid(self) -> bool:
        return self.name == "brute_force"

    def make(self, seed: int, wave: int) -> BaseSampler:
        """Creates the sampler, seeded for one wave."""
        from optuna import samplers

        sampler_seed = fold(seed, wave) % (1 << 32)
        sampler_options = dict(self.options)
        if self.name == "qmc":  # all waves share one sequence; parameters that are not in it are drawn by wave
            sampler_options = {
                "scramble": True,
                "independent_sampler": samplers.RandomSampler(seed=sampler_seed),
                **sampler_options,
            }
            sampler_seed = fold(seed) % (1 << 32)
        sampler: BaseSampler = getattr(samplers, _SAMPLER_KINDS[self.name].class_name)(
            seed=sampler_seed, **sampler_options
        )
        return sampler


def find_sampler(name: object, options: Mapping[str, Any]) -> Sampler:
    """Returns a sampler with validated options.

    Args:
      name: Name such as "tpe". The usual spellings, such as "CMA-ES" and "NSGA-II", are accepted too.
      options: Keyword arguments of its class in `optuna.samplers`: numbers, texts and booleans.
    Raises:
      ConfigError: The sampler or an option is unknown, a package is not installed, or optuna refuses a value.
    """
    names_by_plain_name = {key.replace("_", ""): key for key in _SAMPLER_KINDS}
    sampler_name = names_by_plain_name.get(str(name).lower().replace("-", "").replace("_", ""))
    if sampler_name is None:
        raise _unknown_error("sampler", str(name), list(_SAMPLER_KINDS))
    for package in ("optuna", *_SAMPLER_KINDS[sampler_name].required_modules):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"optuna's sampler {sampler_name!r} needs {package}, which is not installed",
                next_step=f"pip install {package}",
            )
    from optuna import samplers

    keywords = inspect.signature(getattr(samplers, _SAMPLER_KINDS[sampler_name].class_name).__init__).parameters
    allowed_options = [key for key in keywords if key not in ("self", "seed") and not key.startswith("warn_")]
    for key, value in options.items():
        if key not in allowed_options:
            raise _unknown_error(f"option of the sampler {sampler_name!r}", key, allowed_options)
        if not isinstance(value, _OPTION_TYPES):
            where = f"optuna.{key}"
            raise ConfigError("an option", where=where, got=repr(value), expected="a number, a text or a boolean")
    sampler = Sampler(name=sampler_name, options=tuple(sorted(options.items())))
    try:
        with silenced_log():
            sampler.make(0, 0)
    except Exception as error:
        raise ConfigError(f"optuna refuses the settings of {sampler_name!r}", got=headline(error)) from error
    return sampler


def _unknown_error(kind: str, name: str, allowed: list[str]) -> ConfigError:
    expected = f"one of {', '.join(allowed)}"
    return ConfigError(f"unknown {kind} {name!r}", expected=expected, next_step=suggestion(name, allowed))


@contextlib.contextmanager
def silenced_log() -> Iterator[None]:
    """Silences optuna's log, such as warnings about experimental classes."""
    from optuna import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
