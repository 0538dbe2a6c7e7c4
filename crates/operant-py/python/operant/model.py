"""What the trainers share: runs of an algorithm on the engine's environments and on those that the user brings."""

from __future__ import annotations

import difflib
import json
import math
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt

from operant import _operant, devices, files, foreign, keywords
from operant.spaces import UnknownEnvError, check_seed, env_info, whole
from operant.vector import OperantVectorEnv

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Model"]

Callback = Callable[[Any, dict[str, float]], "bool | None"]
PathLike = str | os.PathLike[str]

_CHUNK_S = 0.05
"""Seconds of training between looks at signals."""
_CALLBACK_S = 0.1
_STANDING = ("_actor", "_actor_steps", "_told", "metrics", "num_timesteps")
"""What a model keeps beside its run."""


class Model:
    """An algorithm with its environments, network and run; a subclass names the algorithm.

    Pickle and copy take the whole run along, as :meth:`save` writes it: a copy goes on with the same bits, in a temporary
    folder of its own. Envs that the user brought stay behind: the copy predicts, and :meth:`load` takes its ``run_dir``
    with ``env=`` to train on.
    """

    _algo: ClassVar[str]
    """Its name in the engine, and that of its table."""
    _tables: ClassVar[dict[str, dict[str, Any]]]
    """The keys that there are, with their defaults, by table."""
    _paths: ClassVar[dict[str, str]]
    """Keys with the names of their tables before them."""
    _aliases: ClassVar[dict[str, str]]
    """Names that other libraries have for keys, where the same value means the same."""
    _advice: ClassVar[dict[str, str]]
    """What to do in place of other libraries' names that mean something else."""
    _extra: ClassVar[tuple[str, ...]] = ()
    """Keywords from which settings are computed."""

    def __init_subclass__(cls, algo: str) -> None:
        cls._algo, cls._tables = algo, _operant.algorithm_settings(algo)
        cls._paths = {key: f"{table}.{key}" if table else key for table, keys in cls._tables.items() for key in keys}
        cls._aliases, cls._advice = keywords.of_other_libraries(algo, cls._paths)

    def __init__(
        self,
        env: Any,
        *more: Any,
        run_dir: PathLike | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float | str] | None = None,
        **settings: Any,
    ) -> None:
        """Builds envs, network and run; nothing is trained yet.

        Args:
            env: a name of :func:`operant.list_envs` or of Gymnasium's registry, a Gymnasium env or vector env, or a
                function that makes Gymnasium envs (``num_envs`` of them, 1 if not given, stepped one after another).
                Vector envs of every autoreset mode work; :mod:`operant.foreign` says what becomes of each.
            *more: nothing; what other libraries take here is explained.
            run_dir: keep the run here: settings, metrics, checkpoints, and what ``operant monitor`` watches. Must not
                hold a run yet; :meth:`resume` goes on with one. None for a temporary folder.
            env_kwargs: parameters of the env, if it is a name or a function.
            checkpoint: ``every`` (iterations), ``every_s`` (seconds), ``improved_s`` (least seconds before another for a
                better evaluation) and ``keep`` of the run's checkpoints.
            evaluation: ``every`` (env steps of training between evaluations; ``"auto"``, the default, for as often as they
                take 3 % of the env steps, 0 for never) and ``episodes`` (of one). The best checkpoint, and whether the env
                is solved, follow them. They play with the most probable actions in envs and with seeds of their own, for
                which a name or a function makes further envs; of envs brought as objects there are no others, and the
                returns of training take their place.
            **settings: see above.
        """
        keywords.check_positional(type(self).__name__, env, more)
        values = self._by_name(settings)
        env_kwargs = dict(env_kwargs or {})
        host, make = None, None
        if isinstance(env, str) and _is_registered(env):
            name = env
            pairs = [(f"env.{key}", _plain(value)) for key, value in env_kwargs.items()]
        else:
            if isinstance(env, str) and env not in gymnasium.registry:
                raise _unknown_env(env)
            count = values.get("num_envs")
            host, make = foreign.open_envs(env, None if count is None else _envs(count), env_kwargs)
            name, pairs = host.name, []
            values["num_envs"] = host.num_envs
            values = self._brought_settings(values)
        values.setdefault("until", "steps")
        pairs += [(self._paths[key], value) for key, value in values.items()]
        pairs += [(f"checkpoint.{key}", _plain(value)) for key, value in (checkpoint or {}).items()]
        pairs += [(f"eval.{key}", _plain(value)) for key, value in (evaluation or {}).items()]
        pairs += self._computed(name, pairs, settings)
        kept, folder = _folder(run_dir)
        devices.add_library_folders()
        others = foreign.apart(host, make) if host is not None and make is not None else None
        self._set_up(_operant.Trainer(self._algo, name, pairs, folder, host, others), kept, folder, host, make)

    def _set_up(
        self,
        trainer: _operant.Trainer | None,
        kept: tempfile.TemporaryDirectory[str] | None,
        folder: str,
        host: foreign.HostEnvs | None = None,
        make: Callable[[int], foreign.HostEnvs] | None = None,
        actor: _operant.Actor | None = None,
        spaces: tuple[Any, Any] | None = None,
    ) -> None:
        self._trainer, self._temporary, self._folder = trainer, kept, Path(folder)
        self._host, self._make = host, make
        self._actor, self._actor_steps = actor, -1
        self._told: set[str] = set()
        self._learning = threading.Lock()
        self.metrics: dict[str, float] = {}
        self.num_timesteps = 0
        if trainer is not None:
            # Runs at exit too, so that the last metrics are written.
            weakref.finalize(self, trainer.close)
            env = trainer.settings()["env"]
            if host is not None:
                spaces = host.observations.space, host.actions.space
                text = json.dumps([foreign.describe_space(space) for space in spaces])
                (self._folder / files.SPACES_FILE).write_text(text, encoding="utf-8")
            else:
                name = env.pop("name")
                like = OperantVectorEnv(name, 1, **env)
                spaces = like.single_observation_space, like.single_action_space
            self._refresh()
        assert spaces is not None
        self.observation_space, self.action_space = spaces
        self._observations, self._actions = foreign.Observations(spaces[0]), foreign.Actions(spaces[1])

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting of the run, by table, as its ``run.toml`` holds them."""
        return self._need("settings").settings()

    @property
    def run_dir(self) -> Path:
        """The folder of the run; a temporary one if none was named."""
        return self._folder

    def learn(
        self,
        total_timesteps: float | None = None,
        callback: Callback | None = None,
        progress_bar: bool = False,
        **other: Any,
    ) -> Self:
        """Trains for so many more env steps, rounded up to whole iterations.

        The GIL is released meanwhile. Ctrl-C stops after the iteration under way (at once, in envs that the user
        brought), leaves the model as it is then, and raises KeyboardInterrupt. What an env of the user raises is raised
        here; nothing is learned from the iteration in which it did, and the next call begins new episodes.

        Args:
            total_timesteps: env steps of all envs together. Schedules go from the model's first step to the last of
                this call. None goes on until ``settings["steps"]``, which is what finishes a resumed run exactly.
            callback: called with the model and its newest metrics, ten times a second at most and at the end; if it
                returns False, training stops. ``"return"`` is the mean of the last 100 episodes of training,
                ``"eval/return"`` and ``"eval/error"`` are the mean of the last evaluation and its standard error.
                Names are those of ``metrics.jsonl``: ``step`` counts env steps.
            progress_bar: whether to show progress on the standard error stream.
            **other: nothing; what other libraries take here is explained.
        """
        keywords.check_learn(other)
        trainer = self._need("learn")
        more = None if total_timesteps is None else _count("total_timesteps", total_timesteps)
        if not self._learning.acquire(blocking=False):
            raise RuntimeError("the model is being trained already; wait for that call of learn to return")
        try:
            target = trainer.settings()["steps"] if more is None else self.num_timesteps + more
            if target > self.num_timesteps:
                self._learn(trainer, target, callback, progress_bar)
        finally:
            self._learning.release()
        return self

    def _learn(self, trainer: _operant.Trainer, target: int, callback: Callback | None, progress_bar: bool) -> None:
        trainer.go_on(target)
        bar = _Bar(self.num_timesteps, target) if progress_bar else None
        end: str | None = None
        told = time.monotonic()
        try:
            while end is None:
                end = trainer.advance(_CHUNK_S)
                self._refresh()
                now = time.monotonic()
                if end is None and now - told < _CALLBACK_S:
                    continue
                told = now
                if bar:
                    bar.show(self.metrics)
                if callback is not None and callback(self, dict(self.metrics)) is False:
                    end = end or "stopped"
        except BaseException as error:
            self._refresh()
            if isinstance(error, KeyboardInterrupt):
                end = "stopped"
            raise
        finally:
            if bar:
                bar.close()
            if end is not None and self._temporary is None:
                trainer.conclude(end)
            self._warn()

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[np.float32], ...] | None = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = False,
        action_masks: npt.ArrayLike | None = None,
    ) -> tuple[Any, tuple[npt.NDArray[np.float32], ...] | None]:
        """Actions for one observation or for a batch, and the state of a policy with a memory (else None).

        Args:
            observation: as the env gives them, one or several side by side.
            state: what the last call returned; None for the beginning of episodes.
            episode_start: ``[N]``, true where an episode begins, whose state is forgotten.
            deterministic: take the most probable actions in place of samples.
            action_masks: ``[N, choices]``, 0 where an action is illegal.
        """
        actor = self._current_actor()
        rows, several = self._observations.rows(observation)
        if episode_start is not None and state is not None:
            going_on = ~np.asarray(episode_start, dtype=np.bool_).reshape(len(rows), 1)
            state = tuple(np.where(going_on, part, np.float32(0)) for part in state)
        masks = None
        if action_masks is not None:
            masks = np.ascontiguousarray(np.asarray(action_masks, dtype=np.bool_), dtype=np.uint8).reshape(
                len(rows), -1
            )
        before = None if state is None else [np.ascontiguousarray(part, dtype=np.float32) for part in state]
        if not all(np.isfinite(part).all() for part in before or []):
            raise ValueError("the state holds numbers that are not finite; wanted what the last call returned")
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        chosen, after = actor.act(rows, bool(deterministic), masks, before)
        actions = self._actions.native(chosen)
        return (actions if several else actions[0]), (tuple(after) or None)

    def evaluate(self, episodes: int = 100, deterministic: bool = True, seed: int = 0) -> dict[str, Any]:
        """Plays whole episodes without learning: ``mean_return``, ``std_return``, ``returns``, ``lengths``.

        Envs that the user brought as objects are those of training: their episodes are cut short and the next
        :meth:`learn` begins new ones.
        """
        trainer = self._need("evaluate")
        episodes, seed = whole("episodes", episodes), check_seed(seed)
        if episodes < 1:
            raise ValueError(f"episodes = {episodes}: wanted at least 1")
        if self._host is None:
            returns, lengths = trainer.evaluate(episodes, bool(deterministic), seed)
        else:
            envs = self._make(min(self._host.num_envs, episodes)) if self._make else self._host
            try:
                actor = trainer.actor(seed)
                returns, lengths = foreign.play(
                    envs, actor, episodes=episodes, deterministic=bool(deterministic), seed=seed % 2**32
                )
            finally:
                if self._make:
                    envs.envs.close()
                else:
                    trainer.restart_envs()
        return {
            "mean_return": float(np.mean(returns)),
            "std_return": float(np.std(returns)),
            "returns": returns,
            "lengths": lengths,
        }

    def save(self, path: PathLike) -> None:
        """Saves the model.

        A path that ends in ``.safetensors`` is a file of the policy with its settings. Any other is a folder from which
        training also goes on exactly: the optimiser, the normalisers and the env's state are in it, save that of envs
        that the user brought. It is a run folder, so ``operant eval`` takes it too.
        """
        path = files.target(path)
        if path.suffix == ".safetensors":
            path.parent.mkdir(parents=True, exist_ok=True)
            spaces = [foreign.describe_space(space) for space in (self.observation_space, self.action_space)]
            notes = [(files.SPACES_NOTE, json.dumps(spaces))]
            if self._trainer is not None:
                notes.append((files.SETTINGS_NOTE, self._trainer.settings_text()))
            self._current_actor().save(os.fspath(path), notes)
            return
        trainer = self._need("save to a folder")
        trainer.save()

        def fill(folder: Path) -> None:
            _operant.copy_checkpoint(os.fspath(self._folder), os.fspath(folder), over=True)
            if self._host is not None:
                shutil.copy(self._folder / files.SPACES_FILE, folder / files.SPACES_FILE)

        files.write_folder(path, fill)

    def __getstate__(self) -> dict[str, Any]:
        """The run as :meth:`save` writes it, and where this object stands, for pickle and copy."""
        state = {name: self.__dict__[name] for name in _STANDING}
        state["spaces"] = (self.observation_space, self.action_space)
        state["folder"], state["files"] = os.fspath(self._folder), {}
        if self._trainer is None:
            if self._temporary is not None:
                # A copy's folder goes with it.
                state["files"], state["resumes"] = files.contents(self._folder), False
            return state
        if self._host is not None:
            # Without envs there is no trainer to ask for the policy.
            self._current_actor()
            state |= {name: self.__dict__[name] for name in ("_actor", "_actor_steps")}
        with tempfile.TemporaryDirectory(prefix="operant-") as folder:
            to = Path(folder, "run")
            self.save(to)
            state["files"] = files.contents(to)
        state["resumes"] = self._host is None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not state["files"]:
            self._set_up(None, None, state["folder"], actor=state["_actor"], spaces=state["spaces"])
        else:
            kept, folder = _folder(None)
            for name, content in state["files"].items():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            if state["resumes"]:
                devices.add_library_folders()
                self._set_up(_operant.Trainer.resume(folder), kept, folder)
            else:
                self._set_up(None, kept, folder, actor=state["_actor"], spaces=state["spaces"])
        self.__dict__.update({name: state[name] for name in _STANDING})

    @classmethod
    def load(cls, path: PathLike, env: Any = None, *, run_dir: PathLike | None = None, **settings: Any) -> Self:
        """A model from what :meth:`save` wrote, from a run folder or from one of its checkpoints.

        It predicts the same bits. Training goes on exactly where a folder holds a run of a registered env and neither
        ``env`` nor settings are given; else it goes on with the policy and its normaliser, and optimiser, schedules and
        counters begin anew. Without ``env``, a policy trained on envs that the user brought can predict and be saved.

        Args:
            path: a folder or a ``.safetensors`` file.
            env: envs to go on with, as for the class itself.
            run_dir: as for the class itself.
            **settings: laid over those that were saved; also ``env_kwargs``, ``checkpoint`` and ``evaluation``.
        """
        path = Path(files.named("path", path))
        file, folder, checkpoint = files.find_policy(path)
        actor = _operant.Actor.load(os.fspath(file), 0)
        saved: dict[str, Any] = {}
        text = actor.note(files.SETTINGS_NOTE)
        if folder is not None:
            saved = _operant.run_settings(os.fspath(folder))
        elif text is not None:
            saved = _operant.run_settings(f"the note {files.SETTINGS_NOTE!r} of {os.fspath(path)}", text)
        algo = saved.get("algo", cls._algo)
        if algo != cls._algo or not cls._can_run(json.loads(actor.architecture)):
            other = f"of {algo}; wanted operant.{algo.upper()}.load" if algo != cls._algo else "of another algorithm"
            raise ValueError(f"{path} holds a policy {other}")
        saved_env = saved.pop("env", {})
        name = saved_env.pop("name", None)
        registered = name is not None and _is_registered(name)
        if registered and env is None and not settings and not path.is_file() and folder is not None:
            kept, new = _folder(run_dir)
            _operant.copy_checkpoint(os.fspath(folder), new, checkpoint)
            model = cls.__new__(cls)
            devices.add_library_folders()
            model._set_up(_operant.Trainer.resume(new), kept, new)
            return model
        if env is None and not registered:
            if settings or run_dir is not None:
                raise ValueError(f"{path} was trained on envs brought from Python: give env= to train on")
            model = cls.__new__(cls)
            model._set_up(None, None, os.fspath(path), actor=actor, spaces=files.saved_spaces(actor, folder, path))
            return model
        if env is None:
            env = name
            settings.setdefault("env_kwargs", saved_env)
        base = {**cls._flat(saved), **cls._network_of(actor)}
        if not (isinstance(env, str) and _is_registered(env)):
            base.pop("num_envs", None)
        own = _only_settings(settings)
        given = cls._by_name(own)
        base = {key: value for key, value in base.items() if key != "steps" and key not in given}
        base = cls._fitting(base, own, given.get("num_envs") or base.get("num_envs") or getattr(env, "num_envs", 1))
        model = cls(env, run_dir=run_dir, **{**base, **settings})
        model._need("load").adopt(actor)
        return model

    @classmethod
    def resume(
        cls,
        run_dir: PathLike,
        checkpoint: str | None = None,
        *,
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Goes on with the run in a folder exactly, in that folder, from its newest checkpoint or the named one.

        ``model.learn()`` then finishes what the run was to do. Envs that the user brought have no state that can be saved:
        weights, optimiser, normalisers, replay, counters and schedules go on, and the envs begin new episodes.

        Args:
            run_dir: the folder of a run, or one that :meth:`save` wrote.
            checkpoint: its name.
            env: the envs of the run, if the user brought them, as for the class itself; as many as the run had.
            env_kwargs: parameters of the env, if it is a name or a function.
        """
        folder = files.named("run_dir", run_dir)
        settings = _operant.run_settings(folder)
        if settings["algo"] != cls._algo:
            raise ValueError(f"{folder} holds a run of {settings['algo']}, not of {cls._algo}")
        name, host, make = settings["env"]["name"], None, None
        if not _is_registered(name):
            if env is None:
                raise ValueError(
                    f"{folder} was trained on {name}, brought from Python: bring it again, as in "
                    f"operant.{cls.__name__}.resume({folder!r}, env=env)"
                )
            host, make = cls._same_envs(env, env_kwargs or {}, settings, Path(folder))
        elif env is not None or env_kwargs:
            raise ValueError(f"{folder} was trained on {name}, whose state is saved: leave env and env_kwargs out")
        model = cls.__new__(cls)
        devices.add_library_folders()
        others = foreign.apart(host, make) if host is not None and make is not None else None
        trainer = _operant.Trainer.resume(folder, checkpoint, host, others)
        if host is not None:
            note = "envs brought from Python have no state that can be saved: new episodes begin, all else goes on"
            warnings.warn(f"{folder}: {note}", RuntimeWarning, stacklevel=2)
        model._set_up(trainer, None, folder, host, make)
        return model

    @classmethod
    def _same_envs(
        cls, env: Any, env_kwargs: Mapping[str, Any], settings: Mapping[str, Any], folder: Path
    ) -> tuple[foreign.HostEnvs, Callable[[int], foreign.HostEnvs] | None]:
        """Envs for a run that was trained on envs like them."""
        wanted = settings["num_envs"]
        made = isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv)
        host, make = foreign.open_envs(env, None if made else wanted, env_kwargs)
        if host.num_envs != wanted:
            raise ValueError(f"{folder} was trained on {wanted} envs: got {host.num_envs}, wanted as many")
        files.check_spaces(folder, host.observations.space, host.actions.space)
        return host, make

    @classmethod
    def _by_name(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords under the engine's names, as plain values; None is not given."""
        model, values = cls.__name__, dict[str, Any]()
        for key, value in settings.items():
            name = cls._aliases.get(key, key)
            if name in cls._extra:
                continue
            if name not in cls._paths:
                if key in cls._advice and value is None:
                    continue
                raise keywords.unknown(model, key, cls._paths, [*cls._aliases, *cls._extra], cls._advice)
            if name in values:
                raise TypeError(f"{model} got {key!r} and {name!r}, which are the same setting")
            if value is not None:
                values[name] = _plain(keywords.no_function(key, name, value))
        return values

    @classmethod
    def _brought_settings(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Settings for envs that the user brings, where these were given."""
        return values

    @classmethod
    def _computed(
        cls, env: str, pairs: list[tuple[str, Any]], settings: Mapping[str, Any]
    ) -> list[tuple[str, Any]]:
        """Settings that follow from others, with their paths."""
        return []

    @classmethod
    def _fitting(cls, saved: dict[str, Any], settings: Mapping[str, Any], num_envs: int) -> dict[str, Any]:
        """Saved settings for so many envs, with those that were given beside them."""
        return saved

    @classmethod
    def _can_run(cls, network: Mapping[str, Any]) -> bool:
        """Whether a network of this description is one of the algorithm's."""
        raise NotImplementedError

    @classmethod
    def _network_of(cls, actor: _operant.Actor) -> dict[str, Any]:
        """The keywords that give a network like that of a policy."""
        description = json.loads(actor.architecture)
        encoder = "entries" if description.get("entries") else "conv" if description.get("image") else "flat"
        return {"hidden": description["hidden"], "activation": description["activation"], "encoder": encoder}

    @classmethod
    def _flat(cls, saved: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a ``run.toml`` as keywords."""
        tables = {"": {key: value for key, value in saved.items() if not isinstance(value, dict)}, **saved}
        known = cls._tables
        return {key: tables[table][key] for table in known for key in known[table] if key in tables.get(table, {})}

    def _need(self, what: str) -> _operant.Trainer:
        if self._trainer is None:
            raise ValueError(f"{what}: the model was loaded without envs; load it with env= to train or evaluate")
        return self._trainer

    def _current_actor(self) -> _operant.Actor:
        if self._actor is None or (self._trainer is not None and self._actor_steps != self.num_timesteps):
            self._actor, self._actor_steps = self._need("predict").actor(), self.num_timesteps
        return self._actor

    def _refresh(self) -> None:
        assert self._trainer is not None
        before = self.metrics
        metrics = self._trainer.metrics()
        passed = metrics["seconds"] - before.get("seconds", metrics["seconds"])
        done = metrics["step"] - before.get("step", metrics["step"])
        metrics["sps"] = done / passed if passed > 0 and done > 0 else before.get("sps", float("nan"))
        self.metrics, self.num_timesteps = metrics, int(metrics["step"])

    def _warn(self) -> None:
        assert self._trainer is not None
        for sink, reason in self._trainer.failures():
            if sink not in self._told:
                self._told.add(sink)
                warnings.warn(f"{sink}: {reason}; training goes on without it", RuntimeWarning, stacklevel=3)

    def __repr__(self) -> str:
        where = "no envs" if self._trainer is None else repr(self._trainer.settings()["env"]["name"])
        name = type(self).__name__
        return f"operant.{name}({where}, num_timesteps={self.num_timesteps}, run_dir={os.fspath(self._folder)!r})"


class _Bar:
    """One line on the standard error stream that overwrites itself."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last, self._start, self._width = first, last, time.monotonic(), 0

    def show(self, metrics: Mapping[str, float]) -> None:
        steps = int(metrics["step"])
        share = min(1.0, (steps - self._first) / max(1, self._last - self._first))
        passed = time.monotonic() - self._start
        left = passed / share - passed if share > 0 else float("nan")
        filled = round(20 * share)
        line = (
            f"{'█' * filled}{'░' * (20 - filled)} {share:4.0%} {steps:,} steps, {metrics['sps']:,.0f}/s, "
            f"return {metrics['return']:.1f}, {left:.0f} s left"
        )
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def close(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()


def _is_registered(name: str) -> bool:
    try:
        env_info(name)
    except UnknownEnvError:
        return False
    return True


def _unknown_env(name: str) -> Exception:
    known = [*_operant.list_envs(), *gymnasium.registry]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownEnvError(f"unknown env {name!r}{hint} (operant.list_envs(), gymnasium.registry)")


def _only_settings(keywords: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keywords.items() if key not in ("env_kwargs", "checkpoint", "evaluation")}


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _count(name: str, value: float) -> int:
    if isinstance(value, (float, np.floating)) and not math.isfinite(value):
        raise ValueError(f"{name} = {value}: wanted a whole number of at least 1")
    number = int(value) if isinstance(value, (float, np.floating)) and value == int(value) else whole(name, value)
    if number < 1:
        raise ValueError(f"{name} = {value}: wanted at least 1")
    if number >= 2**62:
        raise ValueError(f"{name} = {value}: wanted less than 2**62")
    return number


_MOST_ENVS = 2**24
"""More is a mistake. The engine has the same limit."""


def _envs(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"num_envs = {value}: wanted a whole number")
    number = whole("num_envs", value)
    if number < 1:
        raise ValueError(f"num_envs = {number}: wanted at least 1")
    if number > _MOST_ENVS:
        raise ValueError(f"num_envs = {number}: wanted at most {_MOST_ENVS}")
    return number


def _folder(run_dir: PathLike | None) -> tuple[tempfile.TemporaryDirectory[str] | None, str]:
    if run_dir is not None:
        return None, files.named("run_dir", run_dir)
    kept = tempfile.TemporaryDirectory(prefix="operant-", ignore_cleanup_errors=True)
    return kept, os.path.join(kept.name, "run")
