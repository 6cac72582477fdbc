"""Declares the sink for runs of the suite in this folder: `lobench watch RUN --suite THIS_FOLDER --sink skeleton`.

For every suite on the machine, make it a plugin: `lobench new plugin NAME`.
"""

from lobench.hookspecs import Declaration


def lobench_result_sinks():
    return [Declaration(name="skeleton", factory="skeleton:Skeleton", summary="final losses, in skeleton.sqlite")]
