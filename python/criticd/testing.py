"""The name under which `Daemon` was first known: `criticd.Daemon` is the same class."""

from criticd.daemon import Daemon, binary

__all__ = ["Daemon", "binary"]
