"""Each application on the topology `modern`."""

from applications import run

__all__ = ["run"]
