"""Layouts: mesh axes, strategies, options, legality, candidates."""

from harness.layout.layout import Layout, LayoutOptions, LayoutRequest, parse_layout
from harness.layout.legality import check_layout
from harness.layout.mesh import AXES, Mesh, parse_mesh
from harness.layout.strategies import STRATEGIES, Strategy, get_strategy

__all__ = [
    "AXES",
    "STRATEGIES",
    "Layout",
    "LayoutOptions",
    "LayoutRequest",
    "Mesh",
    "Strategy",
    "check_layout",
    "get_strategy",
    "parse_layout",
    "parse_mesh",
]
