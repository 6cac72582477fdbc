"""The built-in executors keep the executors' contract."""

from __future__ import annotations

from lobench.testing.executors import ExecutorContract


class TestLocalPool(ExecutorContract):
    factory = "lobench.engine.pool:LocalPool"


class TestInline(ExecutorContract):
    factory = "lobench.engine.pool:InlineExecutor"
    has_processes = False
