"""From comparisons to the page: what the template is given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from harness import __version__
from harness.compare import Comparison, sentence
from harness.compare.wording import counted
from harness.report.page.sections import Picture, Pictures, Section, sections
from harness.report.page.several import SideBySide
from harness.report.picture_file import inline
from harness.report.plots import describe
from harness.report.units import plain

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

_NOT_TEXT = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Chapter(NamedTuple):
    """One sweep on the page. ``key`` starts the ids of its parts."""

    key: str
    name: str
    sentence: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]


def to_html(
    comparisons: Sequence[Comparison],
    pictures: Sequence[Pictures],
    together: SideBySide | None = None,
    together_pictures: Pictures | None = None,
) -> str:
    """The page: one chapter a sweep, and before them, for several, all of them side by side.

    ``pictures`` are SVG files by name, a mapping for each comparison.
    """
    chapters = [_chapter(i, c, p) for i, (c, p) in enumerate(zip(comparisons, pictures, strict=True))]
    html: str = _template().render(
        chapters=chapters,
        together=together,
        together_pictures=[Picture(name, describe(name), svg) for name, svg in (together_pictures or {}).items()],
        version=__version__,
    )
    return html


def _chapter(number: int, comparison: Comparison, pictures: Mapping[str, bytes]) -> Chapter:
    return Chapter(
        f"s{number}",
        plain(comparison.plan.name),
        plain(sentence(comparison)),
        _facts(comparison),
        sections(comparison, pictures),
    )


def _facts(comparison: Comparison) -> tuple[str, ...]:
    """What was measured, on what and when, in a few words each."""
    plan = comparison.plan
    ground = comparison.grounds[0] if comparison.grounds else None
    devices = dict.fromkeys(ground.device_names) if ground else {}
    found = [
        f"model {plan.workload.model.name}",
        f"batch {plan.workload.global_batch} x {plan.workload.seq_len} tokens",
        f"{counted(plan.ranks.world_size, 'rank')} on {', '.join(devices) or plan.ranks.device}",
        counted(len(plan.ranks.per_node), "node"),
    ]
    if ground:
        found += [f"torch {ground.torch}, {ground.backend}"]
        found += [f"commit {ground.commit}"] if ground.commit else []
    return tuple(plain(text, 60) for text in (*found, plan.created_at[:10]) if text)


@cache
def _template() -> Template:
    return _environment().get_template("page.html.j2")


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["picture"] = _picture
    environment.filters["breakable"] = _breakable
    environment.filters["log"] = lambda text: _NOT_TEXT.sub(" ", text).rstrip()
    return environment


def _breakable(text: str) -> Markup:
    """Escaped, with places for a line break within the long words of options."""
    from markupsafe import Markup, escape

    return escape(text).replace("_", Markup("_<wbr>")).replace("=", Markup("=<wbr>"))


def _picture(picture: Picture, key: str) -> Markup:
    """The drawing as an element; safe, since matplotlib escapes every text in it."""
    from markupsafe import Markup

    return Markup(inline(picture.svg, f"{key}-{picture.name}", picture.caption))
