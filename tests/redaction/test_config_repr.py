"""A configuration that is shown hides what its settings hold."""

from __future__ import annotations

import noetic_nb as nn
from noetic_nb.steps import step


def test_the_repr_of_a_configuration_shows_no_secret() -> None:
    key = "sk-proj-" + "a1B2" * 8
    config = nn.AgentConfig(
        name="desk",
        step=step.llm("ask", model="m", instructions=f"Use {key}."),
        params={"api_key": "hush-hush-77", "n": 3},
    )

    for shown in (repr(config), str(config), f"{config}", repr(config.step)):
        assert key not in shown
        assert "hush-hush-77" not in shown
    assert "desk" in repr(config)
    assert '"n": 3' in repr(config)
