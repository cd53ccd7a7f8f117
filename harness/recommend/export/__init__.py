"""Ready files of a layout for the tools that train with it."""

from harness.recommend.export.kinds import EXPORTS, Export, File, Target, export

__all__ = ["EXPORTS", "Export", "File", "Target", "export"]
