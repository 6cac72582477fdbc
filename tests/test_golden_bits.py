"""Numbers do not change under an unchanged `PROGRAM_VERSION`: what a store holds would be mixed with others, unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import golden_bits
import pytest

TARGET = """
import re
from lobench.inner.backend import claim_backend, compiler_options
assert claim_backend(1)
import jax
compiled = jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options())
stored = compiled.runtime_executable().serialize()
(target,) = set(re.findall(rb"linux-gnu\\x12.([a-z0-9-]+)\\x1a", stored, re.DOTALL))
print(target.decode())
"""


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    command = [sys.executable, golden_bits.__file__]
    # As users compile. What lobench itself says to LAPACK is enough, whatever the processor.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_FLAGS", "OPENBLAS_"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)["bits"]
    return found


def test_every_processor_of_one_instruction_set_gets_the_same_code() -> None:
    """XLA names the processor that it compiles for in what it makes: it is not the model of this machine."""
    from lobench.engine.workers.devices import instruction_set

    if instruction_set() != "x86-64-v4":
        pytest.skip("XLA gives other processors the code of their model")
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", TARGET], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "skylake-avx512", done.stdout + done.stderr


@pytest.mark.parametrize("name", golden_bits.names())
def test_the_bits_are_those_of_this_program_version(name: str, request: pytest.FixtureRequest) -> None:
    kept = json.loads(golden_bits.FILE.read_text())
    if (program := golden_bits.program()) not in kept:
        known = "; ".join(sorted(kept))
        pytest.skip(
            f"no bits are known of: {program}; known are: {known}; `python tests/golden_bits.py --write` adds it"
        )
    found = request.getfixturevalue("now")
    known = kept[program].get(name)
    assert found[name] in ([known] if isinstance(known, str) else known or []), (
        f"the numbers of {name} are others than those of program version {program}: if that is meant, raise "
        "PROGRAM_VERSION in lobench/core/program.py and run `python tests/golden_bits.py --write`"
    )
