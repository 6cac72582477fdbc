"""The built-in policies keep the policies' contract."""

from __future__ import annotations

from lobench.testing.policies import PolicyContract


class TestLatest(PolicyContract):
    factory = "lobench.core.admission:latest"
    wrong_arguments = ("3", "x")


class TestAll(PolicyContract):
    factory = "lobench.core.admission:every_checkpoint"
    wrong_arguments = ("3", "x")


class TestEveryThird(PolicyContract):
    factory = "lobench.core.admission:every_nth"
    argument = "3"
    wrong_arguments = ("", "0", "-1", "x", "1.5")


class TestEveryFirst(PolicyContract):
    factory = "lobench.core.admission:every_nth"
    argument = "1"
