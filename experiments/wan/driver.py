"""Each application on the topology `wan`."""

from applications import run

__all__ = ["run"]
