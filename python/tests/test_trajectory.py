"""Episodes along a trajectory in a picture: where they end, and what came until then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_snapshot import model

from criticd import Invalid


def drawn(panel: Any, label: str) -> Any:
    """The line of this label."""
    (line,) = [each for each in panel.lines if each.get_label() == label]
    return line


def uprights(panel: Any) -> list[float]:
    """Where vertical lines are."""
    return [float(each.get_xdata()[0]) for each in panel.lines if each.get_linestyle() == ":"]


def test_lines_stop_at_the_end_of_an_episode_and_returns_are_those_that_came() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    snapshot = model("ard", m=40)
    turn = np.linspace(0, 3, 7)
    path = np.column_stack([np.cos(turn), np.sin(turn), 0.1 * turn]) + snapshot.shift
    rewards, ends = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]), np.array([0, 0, 1, 0, 1, 0, 0])
    panels = snapshot.plot(["x", "y"], trajectory=path, rewards=rewards, ends=ends)
    gaps = [0, 1, 2, 2.5, 3, 4, 4.5, 5, 6]
    rows = np.array([k for k, row in enumerate(gaps) if row == int(row)])

    # The line on the map, and those over rows, have a gap behind each end; no arrow crosses it.
    line = drawn(panels[0], "trajectory").get_xydata()
    assert np.flatnonzero(np.isnan(line[:, 0])).tolist() == [3, 6]
    np.testing.assert_allclose(line[rows], path[:, :2])
    starts = {int(np.argmin(np.hypot(*(path[:, :2] - text.xyann).T))) for text in panels[0].texts}
    assert starts == {0, 1, 3, 5}
    value = drawn(panels[1], "V")
    np.testing.assert_allclose(value.get_xdata(), gaps)
    np.testing.assert_allclose(value.get_ydata()[rows], snapshot(path))
    assert np.flatnonzero(np.isnan(value.get_ydata())).tolist() == [3, 6]
    assert len(panels[1].collections[0].get_paths()) == 3, "a band for each episode"

    # Two episodes have ended; of the third one nothing is known yet.
    discount = snapshot.discount
    first, second = 1 + discount * (2 + discount * 4), 8 + discount * 16
    came = drawn(panels[1], "return that came")
    expected = [first, 2 + discount * 4, 4.0, second, 16.0, np.nan, np.nan]
    np.testing.assert_allclose(came.get_ydata()[rows], expected)
    assert came.get_linestyle() == "--"
    assert uprights(panels[1]) == uprights(panels[2]) == [2.5, 4.5]
    words = [text.get_text() for text in panels[1].get_legend().get_texts()]
    assert words.count("end of an episode") == 1 and "return that came" in words
    np.testing.assert_allclose(panels[2].lines[0].get_ydata(), rewards)

    # Without rewards there is no return; without ends, or with none of them, no return is known.
    def labels(**given: Any) -> list[str]:
        return [each.get_label() for each in snapshot.plot(["x", "y"], trajectory=path, **given)[1].lines]

    assert "return that came" not in labels(ends=ends) and "end of an episode" in labels(ends=ends)
    for nothing in ({}, {"ends": np.zeros(7, bool)}):
        assert labels(rewards=rewards, **nothing) == ["V"]
    whole = snapshot.plot(["x", "y"], trajectory=path, rewards=rewards, ends=np.arange(7) == 6)
    assert np.isfinite(drawn(whole[1], "return that came").get_ydata()[:7]).all()

    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"trajectory": path, "ends": ends[1:]}, "ends"),
        ({"trajectory": path, "ends": 2 * ends}, "ends"),
        ({"trajectory": path, "ends": np.where(ends == 1, np.nan, 0.0)}, "ends"),
        ({"ends": ends}, "ends"),
    ]
    for wrong, field in wrongs:
        with pytest.raises(Invalid, match=field):
            snapshot.plot(**wrong)
    pyplot.close("all")
