"""The compiled part. Use the package `operant`, which wraps it."""

from collections.abc import Callable
from os import PathLike
from typing import Any, final

import numpy as np
import numpy.typing as npt

__version__: str
def first_unfit(values: npt.NDArray[np.float32] | npt.NDArray[np.float64], /) -> int | None:
    """Where the first number is that is not finite or larger in size than 1e18, beyond which sums in 32 bits overflow."""

def list_envs() -> list[str]:
    """The ids of all environments."""

def env_info(name: str, /) -> dict[str, Any]:
    """All that is known of one environment with its default parameters."""

def doctor(folders: list[str]) -> str:
    """What of CUDA was found, as JSON. Libraries are looked for in these folders too."""

def add_library_folders(folders: list[str]) -> None:
    """Looks for NVIDIA's libraries in these folders too."""

def algorithm_settings(algo: str) -> dict[str, dict[str, Any]]:
    """The keys that there are, with their defaults: those of the top level under "", then by table."""

def setting_aliases(algo: str) -> dict[str, tuple[str | None, str | None]]:
    """Names that other libraries have for settings: the path of ours, and words on how its value follows, or words alone."""

def run_settings(folder: str, text: str | None = None) -> dict[str, Any]:
    """The settings of the run in a folder, or those that `text` holds as a `run.toml` does."""

def resolve_settings(algo: str, env: str, settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Every setting of a run of this algorithm and env, where these are given."""

def copy_checkpoint(folder: str, to: str, checkpoint: str | None = None, over: bool = False) -> None:
    """Copies the settings and one checkpoint of a run to another folder, which then can be resumed.

    The other folder must hold no run, unless ``over`` allows one, and never a batch.
    """

def run_episodes(folder: str) -> list[tuple[int, int, float, int]]:
    """The last episodes of a run: step, env, return and length of each."""

def run_keys(text: str, origin: str) -> list[tuple[str, str]]:
    """Settings by dotted names, as texts."""

def event_kind(name: str) -> tuple[str, str, str]:
    """The name of a kind of event, its severity and its topic."""

def estimate_advantages(
    rewards: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    final_values: npt.NDArray[np.float32],
    gamma: float,
    gae_lambda: float,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Advantages and returns `[T, N]`: see operant.gae."""

def exchange_folders(a: str, b: str) -> None:
    """Has two folders change places."""

def roll_out_field(first: Any, **settings: Any) -> Any:
    """Fields of an operator's rollout, flat, and a note of what was not served as asked: see operant.OperatorRollout."""

@final
class Backgammon:
    """A backgammon position, as the player whose turn it is sees it. It does not change: a play gives the position after it."""

    def __new__(cls, position_id: str | None = None) -> Backgammon: ...
    @property
    def position_id(self) -> str:
        """GNU Backgammon's id of this position."""
    @property
    def mover(self) -> list[int]:
        """Checkers of the player whose turn it is: borne off, on points 1 to 24, on the bar."""
    @property
    def other(self) -> list[int]:
        """Checkers of the opponent, as the opponent counts places."""
    @property
    def pips(self) -> tuple[int, int]:
        """Pips that remain: of the player whose turn it is, and of the opponent."""
    @property
    def outcome(self) -> int | None:
        """Points of the player whose turn it is if the game is over: -1, -2 or -3. Else None."""
    def render(self, dice: tuple[int, int] | None = None, player: int = 0) -> npt.NDArray[np.uint8]:
        """A picture of the board, `[height, width, 3]`, as player 0 sees it; `player` is the one whose turn it is."""
    @staticmethod
    def chance_outcomes(first_turn: bool = False) -> list[tuple[tuple[int, int], float]]:
        """Rolls with their probabilities. In the first turn there are no doubles."""
    def plays(self, dice: tuple[int, int]) -> list[tuple[str, Backgammon]]:
        """Every legal play of a roll as text, such as "8/5 6/5", with the position after it."""
    def play(self, dice: tuple[int, int], text: str) -> Backgammon:
        """The position after a play, where it is the opponent's turn."""
    def observation(self) -> npt.NDArray[np.float32]:
        """What a network sees: 196 numbers, per side 4 for each point, the bar and those borne off."""

@final
class BackgammonMatch:
    """A game of backgammon with the cube, as part of a match or for money. It does not change. Players are 0 and 1."""

    def __new__(
        cls,
        length: int = 0,
        *,
        first: int = 0,
        jacoby: bool = False,
        position_id: str | None = None,
        match_id: str | None = None,
    ) -> BackgammonMatch: ...
    @property
    def phase(self) -> str:
        """What comes next: "cube" (double or roll), "offered" (take or drop), "roll" (the dice), "play" or "over"."""
    @property
    def who(self) -> int | None:
        """Who decides; None before the dice and when the game is over."""
    @property
    def player(self) -> int:
        """Who is on roll."""
    @property
    def position(self) -> Backgammon:
        """The board, as the player on roll sees it."""
    @property
    def dice(self) -> tuple[int, int] | None:
        """The dice that are to be played."""
    @property
    def length(self) -> int:
        """Points that win the match; 0 for money."""
    @property
    def scores(self) -> tuple[int, int]:
        """Points of both players before this game."""
    @property
    def crawford(self) -> bool:
        """Whether this is the Crawford game."""
    @property
    def cube(self) -> int:
        """The value of the cube."""
    @property
    def owner(self) -> int | None:
        """Whose cube it is; None while it is in the middle."""
    @property
    def match_id(self) -> str:
        """GNU Backgammon's id of cube, score and dice."""
    @property
    def result(self) -> tuple[int, int] | None:
        """Who won the game and how many points; None while it goes on."""
    def decisions(self) -> list[str]:
        """All that can be decided: "roll", "double", "take", "drop", or plays such as "8/5 6/5"."""
    def apply(self, decision: str) -> BackgammonMatch:
        """The state after a decision."""
    def roll(self, dice: tuple[int, int]) -> BackgammonMatch:
        """The state after the dice."""
    def next_game(self, first: int = 0) -> BackgammonMatch | None:
        """The next game; None while this one goes on, and when it won the match."""

@final
class BackgammonNetwork:
    """Value networks of backgammon: those that come with Operant, or those of a file. Calls from several threads take turns.

    Plies are rolls that are looked ahead, 1 to 3, that of a play included: before a roll 1 takes values as they are. An outcome has `equity` (points without the cube) and the probabilities `win`, `win_gammon`,
    `win_backgammon`, `lose_gammon`, `lose_backgammon`, each of which includes what is more.
    """

    def __new__(
        cls, path: str | PathLike[str] | None = None, *, table: str | PathLike[str] | None = None
    ) -> BackgammonNetwork:
        """`path` is a `.safetensors` file, such as `backgammon.safetensors` of a checkpoint; `table` a file of exact endings
        (`operant backgammon table --out FILE`)."""
    def outcome(self, position: Backgammon, plies: int = 1) -> dict[str, float]:
        """How the game ends for the player on roll, before the roll."""
    def outcomes(self, positions: list[Backgammon], plies: int = 1) -> npt.NDArray[np.float32]:
        """The same of many positions, `[N, 5]`: the probabilities in the order that `outcome` gives them."""
    def plays(self, position: Backgammon, dice: tuple[int, int], plies: int = 1) -> list[dict[str, Any]]:
        """Every legal play of a roll, best first: `play`, the `position` after it, its outcome for the one who makes it, and the
        `plies` that it was looked ahead: as many as asked for only where it was among the best."""
    def best_play(self, position: Backgammon, dice: tuple[int, int], plies: int = 1) -> str:
        """The best play of a roll, such as "8/5 6/5"."""

@final
class Cube2Solver:
    """Shortest solutions of the 2x2x2 cube, by the distances of all its states.

    A cube is given as moves from the solved one, such as "R U' F2", or as 24 facelets: the faces U R F D L B, row by row.
    """

    def __new__(cls, metric: str = "qtm", *, table: str | PathLike[str] | None = None) -> Cube2Solver:
        """Searches all states, or reads a file of `save`. One move is a quarter turn ("qtm"), or a half turn too ("htm")."""
    @property
    def metric(self) -> str:
        """What counts as one move: "qtm" or "htm"."""
    def distance(self, cube: str) -> int:
        """Moves of a shortest solution."""
    def solve(self, cube: str) -> dict[str, Any]:
        """A shortest `solution` and its `length`, for the cube held as `facelets` say."""
    def scrambles(self, distance: int, count: int = 1, seed: int = 0) -> list[str]:
        """Scrambles whose shortest solutions have so many moves, each state with the same chance."""
    def save(self, path: str | PathLike[str]) -> None:
        """Writes the distances to a file."""

@final
class CubeSolver:
    """Solves cubes by search over what a run learned: its values, or its policy. As `operant eval RUN --scrambles FILE` does."""

    def __new__(cls, run: str | PathLike[str], checkpoint: str | None = None) -> CubeSolver:
        """By a checkpoint of a run on cube2 or cube3: the one of this name, "best", or the newest."""
    @property
    def env(self) -> str:
        """The env that the run learned: "cube2" or "cube3"."""
    @property
    def checkpoint(self) -> str:
        """The checkpoint that was taken."""
    def solve(
        self,
        scrambles: list[str],
        *,
        search: str = "greedy",
        width: int = 8,
        most_moves: int = 50,
        weight: float = 1.0,
        most_expanded: int = 100_000,
        revisits: bool = False,
    ) -> list[dict[str, Any]]:
        """Solves scrambles, given as moves from the solved cube or as facelets. Of each: `moves` (None if the search did not come to
        an end), their `length`, and how many states were `expanded`.

        `search` is "greedy" (with `revisits` a walk may come back), "beam" (`width` states are kept) or "astar" (`width` states are
        expanded at once, `most_expanded` at all, `weight` of moves made). `most_moves` limits greedy and beam.
        """

@final
class Rules:
    """The rules of a game, over states as text."""

    def __new__(cls, name: str) -> Rules: ...
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def players(self) -> int:
        """Players: 1 or 2."""
    @property
    def observation_size(self) -> int:
        """Numbers of an observation."""
    @property
    def policy_size(self) -> int:
        """Logits that an evaluator gives."""
    def start(self) -> str:
        """The beginning of a game."""
    def turn(self, state: str) -> str:
        """What happens next: "decision", "chance" or "over"."""
    def player(self, state: str) -> int:
        """Whose turn it is: 0 or 1."""
    def render(self, state: str) -> npt.NDArray[np.uint8]:
        """A picture of a state, `[height, width, 3]`."""
    def points(self, state: str) -> float:
        """Points of player 0 that are certain: all of them once the game is over."""
    def actions(self, state: str) -> list[tuple[str, list[int]]]:
        """Legal actions as text, each with its numbers in a policy: one, or two whose logits are added."""
    def after(self, state: str, action: int) -> str:
        """The state after the action of this number among `actions(state)`."""
    def outcomes(self, state: str) -> list[tuple[str, float]]:
        """States that chance can lead to, with their probabilities."""
    def observation(self, state: str) -> npt.NDArray[np.float32]:
        """What a network sees of a state."""

@final
class Search:
    """Tree search over a game."""

    def __new__(
        cls,
        game: str,
        evaluator: Callable[..., Any] | None,
        network: bytes | None,
        settings: list[tuple[str, Any]],
    ) -> Search: ...
    def search(self, state: str, seed: int) -> dict[str, Any]:
        """Searches from a state; gives what was found."""

@final
class Relay:
    """A tensor of another library, taken in and given out again: the same memory."""

    def __new__(cls, object: Any, /) -> Relay: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class DeviceArray:
    """Numbers in a GPU's memory: torch, JAX, CuPy and Numba take them without a copy, ``.numpy()`` copies them."""

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Waits until the rows are written, for takers that do not; DLPack does not wait."""
    def numpy(self) -> npt.NDArray[Any]:
        """A copy in the host's memory, after all steps so far."""
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str: ...
    def __len__(self) -> int: ...

@final
class DeviceEngine:
    """N envs on a GPU."""

    def __new__(
        cls,
        env_id: str,
        num_envs: int,
        *,
        device: str,
        seed: int,
        fast_math: bool,
        autoreset: str,
        max_episode_steps: int | None,
        first_env: int,
        params: list[tuple[str, float]],
    ) -> DeviceEngine: ...
    def reset(
        self, seed: int | None, mask: list[bool] | None, stream: int | None = None
    ) -> tuple[DeviceArray, dict[str, Any]]: ...
    def step(
        self, actions: Any, stream: int | None = None, /
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray, dict[str, Any]]: ...
    def step_at(
        self, actions: int, kind: int, stream: int, rows: tuple[int, int, int, int] | None, /
    ) -> int: ...
    def rows(
        self, block: int
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray, dict[str, Any]]: ...
    def synchronize(self) -> None: ...
    def save(self) -> bytes: ...
    def load(self, saved: bytes, stream: int | None = None, /) -> tuple[DeviceArray, dict[str, Any]]: ...
    def spec(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

@final
class Memory:
    """The memory of one step's arrays: the base object of the views."""

@final
class Engine:
    """A vector env with its memory. All methods raise RuntimeError while another thread is stepping it."""

    def __new__(
        cls,
        env_id: str,
        num_envs: int,
        *,
        seed: int,
        threads: int | None,
        lanes: int,
        fast_math: bool,
        autoreset: str,
        max_episode_steps: int | None,
        first_env: int,
        copy: bool,
        episode_stats: bool,
        guarded: bool,
        params: list[tuple[str, float]],
    ) -> Engine: ...
    def step(
        self, actions: npt.ArrayLike, /
    ) -> tuple[
        npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
    ]:
        """Steps all envs: observations, rewards, terminations, truncations, infos."""

    def reset(
        self,
        seed: int | list[int | None] | None,
        mask: npt.NDArray[np.bool_] | None,
        bounds: list[tuple[str, float]],
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begins episodes in all envs or where the mask holds."""

    def observe(self) -> npt.NDArray[np.float32]:
        """Observations of the states as they are."""

    def get_state(self) -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]]:
        """Copies of the state's columns, by name."""

    def set_state(self, columns: dict[str, Any], /) -> None:
        """Replaces columns of the state: all or nothing."""

    def save(self) -> bytes:
        """Everything needed to go on exactly from here."""

    def load(self, saved: bytes, /) -> None:
        """Goes on from saved bytes."""

    def draw(self, env: int, /) -> npt.NDArray[np.uint8] | None:
        """A picture of one env, or None if it draws none."""

    def spec(self) -> dict[str, Any]:
        """What the envs are, with their parameters as they are."""

    def params(self) -> dict[str, float]:
        """The parameters by name."""

    def close(self) -> None:
        """Ends the worker threads and gives the memory back, save what views still show."""

@final
class Network:
    """A network with its parameters. Calls from several threads take turns."""

    def __new__(cls, architecture: str, *, seed: int, threads: int | None, precision: str) -> Network: ...
    @staticmethod
    def load(path: str, *, threads: int | None, precision: str) -> Network: ...
    def save(self, path: str) -> None: ...
    def normaliser(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], float] | None: ...
    @property
    def architecture(self) -> str: ...
    @property
    def inputs(self) -> int: ...
    def precision(self) -> tuple[str, str | None]: ...
    def parameters(self) -> list[tuple[str, list[int], bool]]: ...
    def get(self, name: str) -> npt.NDArray[np.float32]: ...
    def set(self, name: str, values: npt.NDArray[np.float32]) -> None: ...
    def forward(self, obs: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]: ...

@final
class Actor:
    """A policy that acts. Calls from several threads take turns."""

    @staticmethod
    def load(path: str, seed: int) -> Actor: ...
    def save(self, path: str, notes: list[tuple[str, str]]) -> None: ...
    def note(self, name: str) -> str | None: ...
    @property
    def architecture(self) -> str: ...
    @property
    def inputs(self) -> int: ...
    @property
    def choices(self) -> list[int] | None: ...
    @property
    def dims(self) -> int: ...
    @property
    def normalizes(self) -> bool: ...
    def act(
        self,
        obs: npt.NDArray[np.float32],
        deterministic: bool,
        legal: npt.NDArray[np.uint8] | None = None,
        state: list[npt.NDArray[np.float32]] | None = None,
    ) -> tuple[npt.NDArray[Any], list[npt.NDArray[np.float32]]]: ...

@final
class Growth:
    """One env of growth. Calls from several threads take turns."""

    def __new__(cls, settings: list[tuple[str, Any]]) -> Growth: ...
    def settings(self) -> dict[str, Any]: ...
    @staticmethod
    def choices() -> dict[str, list[Any]]: ...
    def reset(self, seed: int, number: int) -> None: ...
    def observe(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]: ...
    def step(self, action: list[int] | None = None) -> tuple[bool, dict[str, Any]]: ...
    def render(self) -> npt.NDArray[np.uint8] | None: ...

@final
class Trainer:
    """A run. All methods raise RuntimeError while another thread is training it."""

    def __new__(
        cls,
        algo: str,
        env: str,
        settings: list[tuple[str, Any]],
        folder: str,
        host: Any = None,
        more: Callable[[int], Any] | None = None,
    ) -> Trainer: ...
    @staticmethod
    def resume(folder: str, checkpoint: str | None = None, host: Any = None, more: Any = None) -> Trainer: ...
    @property
    def steps(self) -> int: ...
    def go_on(self, steps: int) -> None: ...
    def advance(self, seconds: float) -> str | None: ...
    def conclude(self, end: str) -> None: ...
    def save(self) -> str: ...
    def part(self, name: str) -> list[int]: ...
    def adopt(self, actor: Actor) -> None: ...
    def actor(self, seed: int | None = None) -> Actor: ...
    def evaluate(self, episodes: int, deterministic: bool, seed: int) -> tuple[list[float], list[int]]: ...
    def restart_envs(self) -> None: ...
    def metrics(self) -> dict[str, float]: ...
    def settings(self) -> dict[str, Any]: ...
    def settings_text(self) -> str: ...
    def failures(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...
