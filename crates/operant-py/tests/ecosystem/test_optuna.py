"""Optuna searches for settings of training."""

from __future__ import annotations

import operant
import optuna
import pytest

pytestmark = pytest.mark.library("optuna")


def test_study() -> None:
    """A study over `operant.PPO`: three trials of learning rate and width, pruned by callbacks, the best found."""

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
        width = trial.suggest_categorical("width", [16, 32])
        model = operant.PPO("CartPole-v1", learning_rate=rate, hidden=[width], num_envs=8, num_steps=32,
                            minibatch_size=64, threads=1, seed=trial.number)

        def report(model: operant.PPO, metrics: dict[str, float]) -> bool:
            trial.report(metrics["return"], model.num_timesteps)
            return not trial.should_prune()

        model.learn(2048, callback=report)
        return model.evaluate(10, seed=1)["mean_return"]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=3)
    assert [trial.state for trial in study.trials] == [optuna.trial.TrialState.COMPLETE] * 3
    assert all(trial.intermediate_values for trial in study.trials)
    assert study.best_value == max(trial.value for trial in study.trials) > 5
