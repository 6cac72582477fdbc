"""Curves of a store as a Croissant data set: a CSV file, and the JSON-LD that describes it.

Source: the Croissant format specification, version 1.1 (MLCommons).
"""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.analysis.tables.frames import StoredResults, open_results
from lobench.core.errors import UsageError
from lobench.core.wording import counted
from lobench.engine.whole_file import require_writable, write_whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CURVES", "DESCRIPTION", "require_free_folder", "write_croissant"]

CURVES, DESCRIPTION = "curves.csv", "croissant.json"
_CROISSANT = "http://mlcommons.org/croissant/"
_LOCAL_COLUMN = "checkpoint"  # paths of this machine; the hash identifies the checkpoint
# Columns with their types and descriptions. `outer_step` and `generation` are empty without theta, so they are numbers
# and not integers.
_COLUMNS = {
    "suite": ("Text", "Suite of the case."),
    "case": ("Text", "Case: an inner task with its budget and metrics."),
    "kind": ("Text", "checkpoint, optimizer (without theta) or imported."),
    "label": ("Text", "Name of the checkpoint or optimizer."),
    "outer_step": ("Float", "Meta-training step of the checkpoint; empty if it has none."),
    "generation": ("Float", "Generation of the checkpoint's run in a population; empty without theta."),
    "sha256": ("Text", "Hash of theta; empty without theta."),
    "optimizer": ("Text", "Bindings of the optimizer."),
    "case_identity": ("Text", "Hash of the case. Cases of one name may differ in it."),
    "seed": ("Integer", "Seed of the inner training."),
    "metric": ("Text", "Metric. batch/NAME is measured on the training batch."),
    "step": ("Integer", "Inner step."),
    "value": ("Float", "Value of the metric; empty from the step at which the seed diverged."),
}


def write_croissant(store: Path, folder: Path, *, name: str, license: str = "") -> None:
    """Writes the curves of a store and their description into a folder: `curves.csv` and `croissant.json`.

    Equal stores make equal files.

    Args:
      store: Folder of the store, or a bundle. It has curves.
      folder: Folder that is missing or empty.
      name: Name of the data set.
      license: License of the data set, as an SPDX identifier or an address. "": none is stated.
    Raises:
      UsageError: The folder holds files or cannot be written.
    """
    require_free_folder(folder)
    results = open_results(store)
    frame = results.curves_frame().drop(columns=_LOCAL_COLUMN)
    data = frame.to_csv(index=False, na_rep="", float_format="%.9g", lineterminator="\n").encode()
    description = _description(results, frame, data, name=name, license=license)
    write_whole(folder / CURVES, data)
    write_whole(folder / DESCRIPTION, f"{json.dumps(description, indent=1)}\n")


def require_free_folder(folder: Path) -> None:
    """Raises UsageError unless a folder is missing or empty."""
    require_writable(folder / CURVES)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("--croissant", got=str(folder), expected="a folder that is missing or empty")


def _description(
    results: StoredResults, frame: pd.DataFrame, data: bytes, *, name: str, license: str
) -> dict[str, Any]:
    """Returns the JSON-LD of a data set whose only file has these bytes."""
    assert [*frame.columns] == [*_COLUMNS], [*frame.columns]
    newest_time = datetime.datetime.fromtimestamp(max(row.recorded_at for row in results.rows), datetime.UTC)
    num_subjects = len(frame[["label", "sha256", "optimizer"]].drop_duplicates())
    num_cases = len(frame[["suite", "case_identity"]].drop_duplicates())
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"curves/{column}",
            "name": column,
            "description": text,
            "dataType": f"sc:{kind}",
            "source": {"fileObject": {"@id": CURVES}, "extract": {"column": column}},
        }
        for column, (kind, text) in _COLUMNS.items()
    ]
    description = {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": f"{_CROISSANT}1.1",
        "name": name,
        "description": f"Curves of {counted(num_subjects, 'subject')} (checkpoints and optimizers) on "
        f"{counted(num_cases, 'case')}, as evaluated by lobench: a row for each seed, metric and inner step.",
        "datePublished": newest_time.date().isoformat(),
        "version": "1.0.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": CURVES,
                "name": CURVES,
                "contentUrl": CURVES,
                "contentSize": f"{len(data)} B",
                "encodingFormat": "text/csv",
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "curves", "name": "curves", "field": fields}],
    }
    return description | ({"license": license} if license else {})


def _context() -> dict[str, Any]:
    """Returns the JSON-LD context of Croissant 1.1."""
    terms = (
        "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format "
        "includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
        "samplingRate separator source subField transform"
    )
    return {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "cr": _CROISSANT,
        "dct": "http://purl.org/dc/terms/",
        "rai": f"{_CROISSANT}RAI/",
        "sc": "https://schema.org/",
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "description": {"@container": "@language"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "name": {"@container": "@language"},
        **{key: f"cr:{key}" for key in terms.split()},
    }
