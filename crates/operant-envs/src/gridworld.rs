//! A grid with walls, keys and a goal that opens when all keys are held: the example of a host env.

use operant_base::{Error, Result};
use operant_env::params;
use operant_env::{ActionSpace, Canvas, Channel, HostAction, HostEnv, Spec};
use operant_lanes::rng::HostRng;
use operant_lanes::{Column, Kind};
use std::sync::Arc;

params! {
    /// What kind of grid.
    struct Settings {
        /// cells along each side
        size: u32 = 8, 4.0..=32.0, "cells";
        /// share of inner cells that are walls
        walls: f32 = 0.2, 0.0..=0.5, "";
        /// keys to collect before the goal opens
        keys: u32 = 1, 0.0..=8.0, "";
        /// which of the possible grids
        layout: u32 = 0, 0.0..=4294967295.0, "";
        /// reward of a step that does not end at the open goal
        step_reward: f32 = -0.01, -1.0..=0.0, "";
    }
}

/// The grid and where the agent is in it. The grid is made from the settings alone, so every env of a vector has the
/// same one; the start is drawn at each reset.
#[derive(Clone, Debug)]
pub struct GridWorld {
    settings: Settings,
    grid: Arc<Grid>,
    agent: usize,
    held: u32,
}

#[derive(Clone, Debug)]
struct Grid {
    size: usize,
    wall: Vec<bool>,
    keys: Vec<usize>,
    goal: usize,
    /// Cells where an episode may begin.
    starts: Vec<usize>,
    /// Mean number of steps of the shortest solutions, over all starts.
    shortest: f32,
}

impl Grid {
    /// Draws grids until all free cells are connected; with each refusal there are fewer walls.
    fn new(settings: &Settings) -> Self {
        let size = settings.size as usize;
        let mut rng = HostRng::new(u64::from(settings.layout), 0, 0, 0);
        for attempt in 0.. {
            let share = settings.walls * 0.97f32.powi(attempt);
            let wall: Vec<bool> = (0..size * size).map(|_| rng.unit() < share).collect();
            let mut free: Vec<usize> = (0..size * size).filter(|&cell| !wall[cell]).collect();
            // The goal, the keys and at least one start.
            if free.len() < settings.keys as usize + 2 || !connected(size, &wall, free[0], free.len()) {
                continue;
            }
            let mut take = || free.swap_remove(rng.below(free.len() as u32) as usize);
            let goal = take();
            let keys = (0..settings.keys).map(|_| take()).collect();
            free.sort_unstable();
            let mut grid = Self { size, wall, keys, goal, starts: free, shortest: 0.0 };
            grid.shortest = grid.mean_shortest();
            return grid;
        }
        unreachable!(
            "with no walls left every grid is connected and has room: 16 cells or more for 8 keys, goal and start"
        )
    }

    /// Breadth first, backwards from the open goal, over cells and sets of keys held.
    fn mean_shortest(&self) -> f32 {
        let (cells, all) = (self.wall.len(), (1usize << self.keys.len()) - 1);
        // Holding every subset of keys that includes those of the cell, one may have come from a neighbour without them.
        let mut distance = vec![u32::MAX; cells * (all + 1)];
        let mut queue = std::collections::VecDeque::from([(self.goal, all)]);
        distance[self.goal * (all + 1) + all] = 0;
        while let Some((cell, held)) = queue.pop_front() {
            let next = distance[cell * (all + 1) + held] + 1;
            let key = self.keys.iter().position(|&at| at == cell).map_or(0, |key| 1 << key);
            if held & key != key {
                continue;
            }
            for from in (0..4).map(|action| self.neighbour(cell, action)).filter(|&from| from != cell) {
                for before in [held, held & !key] {
                    let place = from * (all + 1) + before;
                    if distance[place] == u32::MAX {
                        distance[place] = next;
                        queue.push_back((from, before));
                    }
                }
            }
        }
        let steps: u32 = self.starts.iter().map(|&start| distance[start * (all + 1)]).sum();
        steps as f32 / self.starts.len() as f32
    }

    fn neighbour(&self, cell: usize, action: usize) -> usize {
        let (row, column) = (cell / self.size, cell % self.size);
        let last = self.size - 1;
        let (row, column) = match action {
            0 => (row.saturating_sub(1), column),
            1 => (row, (column + 1).min(last)),
            2 => ((row + 1).min(last), column),
            _ => (row, column.saturating_sub(1)),
        };
        let next = row * self.size + column;
        if self.wall[next] { cell } else { next }
    }
}

fn connected(size: usize, wall: &[bool], first: usize, free: usize) -> bool {
    let mut seen = wall.to_vec();
    let (mut queue, mut count) = (vec![first], 0);
    seen[first] = true;
    while let Some(cell) = queue.pop() {
        count += 1;
        let (row, column) = (cell / size, cell % size);
        let near = [
            (row > 0).then(|| cell - size),
            (row + 1 < size).then_some(cell + size),
            (column > 0).then(|| cell - 1),
            (column + 1 < size).then_some(cell + 1),
        ];
        for next in near.into_iter().flatten() {
            if !std::mem::replace(&mut seen[next], true) {
                queue.push(next);
            }
        }
    }
    count == free
}

impl Default for GridWorld {
    fn default() -> Self {
        let settings = Settings::default();
        let grid = Arc::new(Grid::new(&settings));
        Self { settings, agent: grid.starts[0], grid, held: 0 }
    }
}

impl operant_env::Params for GridWorld {
    fn params(&self) -> Vec<operant_env::Param> {
        self.settings.params()
    }

    fn store(&mut self, index: usize, value: f64) {
        self.settings.store(index, value);
        self.grid = Arc::new(Grid::new(&self.settings));
        self.agent = self.grid.starts[0];
        self.held = 0;
    }
}

impl HostEnv for GridWorld {
    fn spec(&self) -> Spec {
        let size = self.grid.size;
        let cells = |what: &'static str| {
            (0..size * size)
                .map(move |cell| Channel::new(format!("{what} at {}, {}", cell / size, cell % size), 0.0, 1.0))
        };
        Spec {
            name: "gridworld",
            id: "operant/GridWorld-v0",
            summary: "collect the keys, then reach the goal, in a grid with walls",
            reference: "Operant",
            observation: ["agent", "wall", "key", "goal"].into_iter().flat_map(cells).collect(),
            action: ActionSpace::Discrete(4),
            masked: true,
            time_limit: Some(25 * self.settings.size),
            // What a policy earns that takes a tenth more steps than the shortest way.
            solved_at: Some(1.0 + self.settings.step_reward * (1.1 * self.grid.shortest - 1.0)),
            render_fps: 10,
        }
    }

    fn reset(&mut self, rng: &mut HostRng) {
        self.agent = self.grid.starts[rng.below(self.grid.starts.len() as u32) as usize];
        self.held = 0;
    }

    fn step(&mut self, action: HostAction<'_>, _: &mut HostRng) -> (f32, bool) {
        self.agent = self.grid.neighbour(self.agent, action.index(0));
        if let Some(key) = self.grid.keys.iter().position(|&cell| cell == self.agent) {
            self.held |= 1 << key;
        }
        let all = (1u32 << self.grid.keys.len()) - 1;
        if self.agent == self.grid.goal && self.held == all { (1.0, true) } else { (self.settings.step_reward, false) }
    }

    fn observe(&self, obs: &mut [f32]) {
        let cells = self.grid.size * self.grid.size;
        obs.fill(0.0);
        let (agent, rest) = obs.split_at_mut(cells);
        let (wall, rest) = rest.split_at_mut(cells);
        let (key, goal) = rest.split_at_mut(cells);
        agent[self.agent] = 1.0;
        goal[self.grid.goal] = 1.0;
        for (place, &is_wall) in wall.iter_mut().zip(&self.grid.wall) {
            *place = f32::from(u8::from(is_wall));
        }
        for (i, &cell) in self.grid.keys.iter().enumerate() {
            key[cell] = f32::from(u8::from(self.held >> i & 1 == 0));
        }
    }

    /// Walking into a wall or off the grid is not legal; in a step it would change nothing.
    fn legal(&self, legal: &mut [u8]) {
        for (action, legal) in legal.iter_mut().enumerate() {
            *legal = u8::from(self.grid.neighbour(self.agent, action) != self.agent);
        }
    }

    fn columns(&self) -> Vec<Column> {
        ["row", "column", "held"].map(|name| Column { name, kind: Kind::I32 }).to_vec()
    }

    fn read(&self, state: &mut [i32]) {
        let size = self.grid.size;
        state.copy_from_slice(&[(self.agent / size) as i32, (self.agent % size) as i32, self.held as i32]);
    }

    fn write(&mut self, state: &[i32]) -> Result<()> {
        let size = self.grid.size as i32;
        let &[row, column, held] = state else {
            return Err(Error::Invalid(format!("gridworld state has 3 columns, got {}", state.len())));
        };
        let inside = (0..size).contains(&row) && (0..size).contains(&column);
        if !inside || self.grid.wall[(row * size + column) as usize] {
            return Err(Error::Invalid(format!(
                "gridworld cell {row}, {column} is a wall or outside the {size} x {size} grid"
            )));
        }
        if held < 0 || held >> self.grid.keys.len() != 0 {
            return Err(Error::Invalid(format!(
                "gridworld held = {held}: wanted a bit per key, {} keys",
                self.grid.keys.len()
            )));
        }
        (self.agent, self.held) = ((row * size + column) as usize, held as u32);
        Ok(())
    }

    fn draw(&self) -> Option<Canvas> {
        const CELL: usize = 32;
        let mut canvas = Canvas::new(self.grid.size * CELL, self.grid.size * CELL);
        let corner = |cell: usize| ((cell % self.grid.size * CELL) as f32, (cell / self.grid.size * CELL) as f32);
        let cell_size = CELL as f32;
        for cell in (0..self.grid.wall.len()).filter(|&cell| self.grid.wall[cell]) {
            let (x, y) = corner(cell);
            canvas.fill_rect(x, y, x + cell_size, y + cell_size, [64, 64, 64]);
        }
        let (x, y) = corner(self.grid.goal);
        canvas.fill_rect(x + 4.0, y + 4.0, x + cell_size - 4.0, y + cell_size - 4.0, [60, 160, 60]);
        for (i, &cell) in self.grid.keys.iter().enumerate() {
            if self.held >> i & 1 == 0 {
                let (x, y) = corner(cell);
                canvas.fill_circle(x + 16.0, y + 16.0, 7.0, [204, 204, 0]);
            }
        }
        let (x, y) = corner(self.agent);
        canvas.fill_circle(x + 16.0, y + 16.0, 11.0, [60, 90, 200]);
        Some(canvas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_env::{Actions, Options, Params, RowBuf, Seeds};

    fn with(settings: &[(&str, f64)]) -> GridWorld {
        let mut env = GridWorld::default();
        settings.iter().for_each(|&(name, value)| env.set(name, value).unwrap());
        env
    }

    /// The shortest walk from `from` to `to`, breadth first.
    fn walk(grid: &Grid, from: usize, to: usize) -> Vec<usize> {
        let mut seen = vec![false; grid.wall.len()];
        let mut queue = std::collections::VecDeque::from([(from, Vec::new())]);
        while let Some((cell, path)) = queue.pop_front() {
            if cell == to {
                return path;
            }
            for action in 0..4 {
                let next = grid.neighbour(cell, action);
                if !std::mem::replace(&mut seen[next], true) {
                    queue.push_back((next, path.iter().copied().chain([action]).collect()));
                }
            }
        }
        panic!("{to} can't be reached from {from}")
    }

    #[test]
    fn every_layout_can_be_solved_and_not_before_its_keys_are_held() {
        for layout in 0..30 {
            let mut env = with(&[("size", 6.0), ("keys", 3.0), ("walls", 0.4), ("layout", f64::from(layout))]);
            env.reset(&mut HostRng::new(1, layout, 0, 0));
            let stops: Vec<usize> =
                [env.grid.goal].iter().chain(&env.grid.keys).chain([&env.grid.goal]).copied().collect();
            for (visit, &stop) in stops.iter().enumerate() {
                let path = walk(&env.grid, env.agent, stop);
                for (i, &action) in path.iter().enumerate() {
                    let mut legal = [0; 4];
                    env.legal(&mut legal);
                    assert_eq!(legal[action], 1);
                    let action = [action as i32];
                    let action = HostAction::new(Actions::I32(&action), 0);
                    let (reward, done) = env.step(action, &mut HostRng::new(0, 0, 0, 0));
                    let last = visit + 1 == stops.len() && i + 1 == path.len();
                    // A walk to the last key may pass the goal with all keys held only as its own last step.
                    if done {
                        assert!(reward == 1.0 && env.held == 7, "layout {layout}");
                        break;
                    }
                    assert!(!last, "layout {layout}: all keys held and the goal reached");
                }
                if env.held == 7 && env.agent == env.grid.goal {
                    break;
                }
            }
        }
    }

    /// The distance over all key sets is that of a plain search forwards.
    #[test]
    fn solved_at_can_be_reached_and_only_just() {
        for layout in 0..20 {
            let env = with(&[("size", 5.0), ("keys", 2.0), ("layout", f64::from(layout))]);
            let forwards = |start: usize| {
                let mut seen = std::collections::HashSet::from([(start, 0)]);
                let mut queue = std::collections::VecDeque::from([(start, 0, 0)]);
                while let Some((cell, held, steps)) = queue.pop_front() {
                    for action in 0..4 {
                        let next = env.grid.neighbour(cell, action);
                        let key = env.grid.keys.iter().position(|&at| at == next).map_or(0, |key| 1 << key);
                        if next == env.grid.goal && held == 3 {
                            return steps + 1;
                        }
                        if seen.insert((next, held | key)) {
                            queue.push_back((next, held | key, steps + 1));
                        }
                    }
                }
                unreachable!("the grid is connected")
            };
            let steps: Vec<i32> = env.grid.starts.iter().map(|&start| forwards(start)).collect();
            let mean = steps.iter().sum::<i32>() as f32 / steps.len() as f32;
            assert!((env.grid.shortest - mean).abs() < 1e-4, "layout {layout}: {} and {mean}", env.grid.shortest);
            let best = 1.0 - 0.01 * (mean - 1.0);
            let solved_at = env.spec().solved_at.unwrap();
            assert!(solved_at < best && solved_at > best - 0.05);
        }
    }

    #[test]
    fn walls_stop_the_agent_and_are_not_legal() {
        let env = with(&[("walls", 0.5), ("layout", 3.0)]);
        let (mut legal, mut blocked) = ([0; 4], 0);
        for &cell in &env.grid.starts {
            let here = GridWorld { agent: cell, ..env.clone() };
            here.legal(&mut legal);
            for (action, &legal) in legal.iter().enumerate() {
                let next = env.grid.neighbour(cell, action);
                assert!(!env.grid.wall[next] && (legal == 1) == (next != cell));
                blocked += usize::from(legal == 0);
            }
        }
        assert!(blocked > 0);
    }

    #[test]
    fn states_that_cannot_be_are_refused() {
        let mut envs = crate::ENVS.last().unwrap().build(&[], &Options::new(2)).unwrap();
        let mut row = RowBuf::new(envs.spec(), 2);
        envs.reset(Seeds::One(0), None, row.row());
        let before = envs.save();
        for (column, words) in [(0, [0, 8]), (1, [-1, 0]), (2, [0, 2]), (3, [0, -1])] {
            assert!(envs.write(&[(column, &words)]).is_err(), "{column} {words:?}");
        }
        assert_eq!(envs.save(), before, "a refused write changes nothing");
        assert!(envs.set_param("size", 4.0).is_err(), "another size has other spaces");
    }
}
