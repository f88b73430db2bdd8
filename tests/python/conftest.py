"""Fixtures: daemons that end with the test, whatever happens in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# What these assert is said as fully as in a test.
pytest.register_assert_rewrite("browser", "client", "dashboard")

from browser import Browser  # noqa: E402
from client import Daemon  # noqa: E402

Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a daemon: `start(*settings, config=..., endpoints=..., name=...)`."""
    daemons: list[Daemon] = []

    def launch(*settings: str, config: str = "", endpoints: dict[str, str] | None = None, name: str = "d") -> Daemon:
        daemons.append(Daemon(tmp_path / name, *settings, config=config, endpoints=endpoints))
        return daemons[-1]

    yield launch
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def page() -> Iterator[Browser]:
    """A page of a browser of its own."""
    page = Browser()
    page.size(1400, 900)
    yield page
    page.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that where several run at once none is left alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
