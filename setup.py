"""Puts suites/ into what is installed, as lobench/suites; everything else is said in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SUITES = Path(__file__).parent / "suites"
NOT_SHIPPED = shutil.ignore_patterns(".*", "__pycache__", "*.pyc", "lobench_results")


class BuildWithSuites(build_py):
    """A checkout that is installed with `pip install -e` has its suites beside the package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "lobench" / "suites"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(SUITES, target, ignore=NOT_SHIPPED)


setup(cmdclass={"build_py": BuildWithSuites})
