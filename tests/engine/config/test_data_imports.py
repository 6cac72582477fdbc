"""A run's config.gin imports no module that lies in the run's folder, wherever the command was started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from shown import texts_of

SHOWN = texts_of("config")

PROGRAM = """
import json, os, sys
from lobench.core.errors import ConfigError
from lobench.engine.config.learned_optimization import names_in_comments
from lobench.engine.config.syntax import parse_data
from lobench.engine.config.trainer import bind_trainer_config, import_installed
from lobench.engine.config.import_path import prepare_import_path

prepare_import_path()
found = {}
for name, (folder, text) in json.loads(sys.argv[1]).items():
    os.chdir(folder)
    sys.path[-1] = folder
    statements = parse_data(text, "config.gin", is_file=True)
    problems = import_installed(statements)
    try:
        problems += bind_trainer_config(statements, names_in_comments(text))
    except ConfigError as error:
        problems.append(str(error))
    found[name] = problems
print(json.dumps([found, sorted(set(sys.modules) & {"x", "today", "today.x", "code", "asked", "mine"})]))
"""
COMMENT = "# Parameters for {name}.Opt:\n# None.\nrun_train.lopt = @Opt()\n"


def test_what_lies_among_checkpoints_is_not_run(tmp_path: Path) -> None:
    run, asked = tmp_path / "today", tmp_path / "asked"
    for folder in (run / "params_5", run / "package", asked, tmp_path / "project" / "run"):
        folder.mkdir(parents=True)
    for folder in (run, asked, tmp_path / "project" / "run"):
        (folder / "config.gin").touch()
    for path in (run / "x.py", run / "params_5" / "x.py", run / "package" / "__init__.py", asked / "asked.py"):
        path.write_text("raise SystemExit('it ran')" if path.parent != asked else "")
    (tmp_path / "project" / "mine.py").touch()
    asks = {
        "import": (run, "import x"),
        "package": (run, "import package.inner"),
        "comment": (run, COMMENT.format(name="x")),
        "comment of a package": (run, COMMENT.format(name="package.inner")),
        "checkpoint": (run / "params_5", "import x"),
        "from above": (tmp_path, "import today.x"),
        "from above by a comment": (tmp_path, COMMENT.format(name="today.x")),
        "a project's own": (tmp_path / "project", "import mine"),
        "asked for": (asked, "import asked"),
    }
    given = json.dumps({name: (str(folder), text) for name, (folder, text) in asks.items()})
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, given],
        env={**os.environ, "PYTHONPATH": str(asked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, imported = json.loads(done.stdout)
    assert not found.pop("a project's own") and not found.pop("asked for")
    assert imported == ["asked", "mine"]
    for name, problems in found.items():
        assert any(SHOWN["lies-in-a-run-s"] in line for line in problems), name
