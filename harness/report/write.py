"""The report's folder: Markdown, CSV, JSON and pictures, each file written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from harness.base import Frozen
from harness.compare import Comparison
from harness.report.frame import cell_frame, sample_frame
from harness.report.markdown import to_markdown
from harness.report.picture_file import to_png
from harness.report.plots import PICTURES, draw
from harness.store import write_atomic


class ReportFiles(Frozen):
    """Paths of what was written; ``pictures`` are those that had something to show."""

    markdown: Path
    cells_csv: Path
    samples_csv: Path
    comparison_json: Path
    pictures: tuple[Path, ...]


def write_report(comparison: Comparison, folder: Path) -> ReportFiles:
    """Write the report; files of an earlier one are replaced, and pictures that no longer apply removed.

    ``cells.csv`` and ``samples.csv`` have the columns of ``harness.report.frame``; ``comparison.json`` is the
    Comparison without the raw samples.

    Raises:
        StoreError: a file cannot be written.
    """
    pictures = draw(comparison)
    files = ReportFiles(
        markdown=folder / "report.md",
        cells_csv=folder / "cells.csv",
        samples_csv=folder / "samples.csv",
        comparison_json=folder / "comparison.json",
        pictures=tuple(folder / f"{name}.png" for name in pictures),
    )
    for path, figure in zip(files.pictures, pictures.values(), strict=True):
        write_atomic(path, to_png(figure))
    write_atomic(files.cells_csv, cell_frame(comparison).to_csv(index=False))
    write_atomic(files.samples_csv, sample_frame(comparison).to_csv(index=False))
    write_atomic(files.comparison_json, comparison.model_dump_json(indent=1, exclude={"samples"}))
    write_atomic(files.markdown, to_markdown(comparison, tuple(path.name for path in files.pictures)))
    for name in PICTURES:
        if name not in pictures:
            (folder / f"{name}.png").unlink(missing_ok=True)
    return files
