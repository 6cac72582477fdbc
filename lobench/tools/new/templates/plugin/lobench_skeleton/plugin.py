"""The hooks. They run whenever lobench starts: keep them cheap, and do expensive work in the factory's module.

`lobench.hookspecs.HookSpecs` has all hooks: sinks, readers, sources, executors, searches, commands, observers, ...
"""

from lobench.hookspecs import Declaration


def lobench_metrics():
    factory = "lobench_skeleton.metrics:skeleton"
    directions = {"skeleton/ratio": "min"}
    return [Declaration(name="skeleton", factory=factory, summary="how far losses fell", metric_directions=directions)]
