"""The report's folder: HTML, Markdown, CSV, JSON, Parquet and pictures, each file written whole or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base import Frozen
from harness.compare import Comparison
from harness.report.frame import cell_frame, sample_frame
from harness.report.markdown import side_by_side_markdown, to_markdown
from harness.report.page import side_by_side, to_html
from harness.report.picture_file import to_png, to_svg
from harness.report.plots import PICTURES, draw
from harness.report.together import PICTURES as TOGETHER
from harness.report.together import draw_all
from harness.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class ReportFiles(Frozen):
    """Paths of what was written; ``pictures`` are those that had something to show, each also as ``.svg``."""

    html: Path
    markdown: Path
    cells_csv: Path
    cells_parquet: Path
    samples_csv: Path
    comparison_json: Path
    pictures: tuple[Path, ...]


def write_report(comparison: Comparison, folder: Path) -> ReportFiles:
    """Write the report; files of an earlier one are replaced, and pictures that no longer apply removed.

    ``cells.*`` and ``samples.csv`` have the columns of ``harness.report.frame``; ``comparison.json`` is the
    Comparison without the raw samples.

    Raises:
        StoreError: a file cannot be written.
    """
    pictures, svgs = _write_pictures(draw(comparison), folder, PICTURES)
    document = comparison.model_dump_json(indent=1, exclude={"samples"})
    markdown = to_markdown(comparison, tuple(path.name for path in pictures))
    return _write([comparison], folder, pictures, document, markdown, to_html([comparison], [svgs]))


def write_reports(comparisons: Sequence[Comparison], folder: Path) -> ReportFiles:
    """Write one report of several sweeps side by side, in the order given; the rows of all are in one table.

    Raises:
        StoreError: a file cannot be written.
    """
    pictures, svgs = _write_pictures(draw_all(comparisons), folder, TOGETHER)
    documents = [c.model_dump(mode="json", exclude={"samples"}) for c in comparisons]
    each = [{name: to_svg(figure) for name, figure in draw(c).items()} for c in comparisons]
    together = side_by_side(comparisons)
    return _write(
        comparisons,
        folder,
        pictures,
        json.dumps(documents, indent=1),
        side_by_side_markdown(together, comparisons, tuple(path.name for path in pictures)),
        to_html(comparisons, each, together, svgs),
    )


def _write(
    comparisons: Sequence[Comparison],
    folder: Path,
    pictures: tuple[Path, ...],
    document: str,
    markdown: str,
    html: str,
) -> ReportFiles:
    files = ReportFiles(
        html=folder / "report.html",
        markdown=folder / "report.md",
        cells_csv=folder / "cells.csv",
        cells_parquet=folder / "cells.parquet",
        samples_csv=folder / "samples.csv",
        comparison_json=folder / "comparison.json",
        pictures=pictures,
    )
    cells = _together(map(cell_frame, comparisons))
    write_atomic(files.cells_csv, cells.to_csv(index=False))
    write_atomic(files.cells_parquet, _parquet(cells))
    write_atomic(files.samples_csv, _together(map(sample_frame, comparisons)).to_csv(index=False))
    write_atomic(files.comparison_json, document)
    write_atomic(files.markdown, markdown)
    write_atomic(files.html, html)
    return files


def _write_pictures(
    pictures: Mapping[str, Figure], folder: Path, names: Iterable[str]
) -> tuple[tuple[Path, ...], dict[str, bytes]]:
    """The paths of the PNG files, and the SVG files' content by name."""
    svgs = {name: to_svg(figure) for name, figure in pictures.items()}
    for name, figure in pictures.items():
        write_atomic(folder / f"{name}.png", to_png(figure))
        write_atomic(folder / f"{name}.svg", svgs[name])
    stale = [folder / f"{name}.{end}" for name in names if name not in pictures for end in ("png", "svg")]
    for path in stale:
        if path.is_file():
            path.unlink()
    return tuple(folder / f"{name}.png" for name in pictures), svgs


def _together(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(frames, ignore_index=True)


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
