"""Heads of a snapshot: many predictions that share its kernel and dictionary."""

from criticd._head_models import HeadModels
from criticd.snapshot import Heads

__all__ = ["HeadModels", "Heads"]
