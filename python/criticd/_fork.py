"""Objects with threads and sockets in a program that forks: neither of the two lives on in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from criticd._protocol import CriticdError


class Forks(Protocol):
    """What has to know of forks."""

    def _before_fork(self) -> None:
        """Called in the parent, before each fork."""

    def _after_fork(self) -> None:
        """Called in the child. It must take no lock: the thread that holds it may not exist here."""


_watched: weakref.WeakSet[Forks] = weakref.WeakSet()


def watch(thing: Forks) -> None:
    """Call the two methods of `thing` around every fork of this process, as long as it lives."""
    _watched.add(thing)


def stays(thing: object) -> CriticdError:
    """Why a thing cannot be pickled, as it would have to be for a process that does not begin as a copy of this one."""
    kind = type(thing).__name__
    remedy = f"give the other one the endpoint or data_dir, and make a {kind} there"
    return CriticdError(f"a {kind} stays in its process: {remedy}")


def _before() -> None:
    for thing in list(_watched):
        thing._before_fork()


def _after() -> None:
    for thing in list(_watched):
        thing._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_after)
