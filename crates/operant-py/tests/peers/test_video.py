"""Gymnasium's RecordVideo films our pictures."""

from __future__ import annotations

import pathlib

import gymnasium
import operant  # noqa: F401  (registers the ids)
import pytest

pytest.importorskip("moviepy")


@pytest.mark.parametrize("env_id", ["operant/CartPole-v1", "operant/GridWorld-v0"])
def test_record_video(env_id: str, tmp_path: pathlib.Path) -> None:
    env = gymnasium.make(env_id, render_mode="rgb_array", max_episode_steps=20)
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "films"), episode_trigger=lambda episode: episode == 0)
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = terminated or truncated
    env.close()
    films = list(tmp_path.glob("films/*.mp4"))
    assert len(films) == 1
    assert films[0].stat().st_size > 500
