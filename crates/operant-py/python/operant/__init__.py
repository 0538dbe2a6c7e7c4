"""Operant: environments at the speed of the hardware, as Gymnasium knows them.

>>> import operant
>>> envs = operant.make_vec("CartPole-v1", num_envs=8192, seed=0)
>>> observations, infos = envs.reset()
>>> model = operant.PPO("CartPole-v1", seed=0).learn(20_000)

Importing the package also registers every environment with Gymnasium, as ``operant/CartPole-v1`` and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operant import games, nn
from operant._operant import __version__, list_envs
from operant.alphazero import AlphaZero, Mcts
from operant.checker import CheckedEnvError, EnvReport, check_env
from operant.cuda import CudaVectorEnv
from operant.devices import doctor
from operant.dqn import DQN
from operant.field import FieldDataset, Operator, OperatorRollout
from operant.growth import Growth
from operant.ppo import PPO
from operant.registration import register_envs
from operant.returns import gae
from operant.single import OperantEnv
from operant.spaces import UnknownEnvError, env_info
from operant.tables import RunTables
from operant.vector import OperantVectorEnv, make_vec

if TYPE_CHECKING:
    from operant import sb3

__all__ = [
    "AlphaZero",
    "CheckedEnvError",
    "CudaVectorEnv",
    "DQN",
    "EnvReport",
    "FieldDataset",
    "Growth",
    "Mcts",
    "OperantEnv",
    "OperantVectorEnv",
    "Operator",
    "OperatorRollout",
    "PPO",
    "RunTables",
    "UnknownEnvError",
    "__version__",
    "check_env",
    "doctor",
    "env_info",
    "gae",
    "games",
    "list_envs",
    "make_vec",
    "nn",
    "sb3",
]

register_envs()


def __getattr__(name: str) -> Any:
    # Stable-Baselines3 brings torch with it, so its adapter is imported when it is asked for.
    if name == "sb3":
        import importlib

        return importlib.import_module("operant.sb3")
    raise AttributeError(f"module 'operant' has no attribute {name!r}")
