"""What the command line shows while it works."""

from __future__ import annotations

from sfumato.terminal import TerminalLine


def test_a_line_tells_steps_and_jobs() -> None:
    said: list[str] = []
    line = TerminalLine("releasing", said.append)
    line(3, float("nan"))
    line(4, 0.01)
    line.jobs("counting", 2, 5)
    assert said == [
        "releasing: step 3",
        "releasing: step 4, within 1.0% of the proved bound",
        "releasing: counting, 2 of 5 jobs done",
    ]
