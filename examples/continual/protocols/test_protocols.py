"""Batch norm between tasks: what an optimizer cannot train is skipped, in a line that says why."""

import pytest

from lobench import ConfigError, cases


@cases("protocols.gin")
def test_protocols(case, evaluate):
    try:
        result = evaluate(case)
    except ConfigError as error:
        if "requests 'scale_invariant'" not in str(error):
            raise
        # No weights are: without batch norm, or where group norm ties a neuron's size to that of its group.
        pytest.skip(str(error))
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
