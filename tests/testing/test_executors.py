"""The built-in executors keep the executors' contract."""

from __future__ import annotations

from lobench.testing.executors import ExecutorContract


class TestLocalPool(ExecutorContract):
    factory = "lobench.engine.workers.pool:LocalPool"


class TestInline(ExecutorContract):
    factory = "lobench.engine.workers.pool:InlineExecutor"
    has_processes = False
