//! The Python edge of Operant: the module `operant._operant`, which the package `operant` wraps.
//!
//! - `error`: engine errors as Python exceptions
//! - `describe`: specs and parameters as dictionaries
//! - `actions`: NumPy arrays as actions, read where they lie
//! - `memory`: the memory that steps write and NumPy shows
//! - `state`: the vector env, two blocks of memory and what infos need
//! - `engine`: the class that steps
//! - `dlpack`, `gpu`: tensors of other libraries; vector envs on a GPU
//! - `network`: networks and their parameters
//! - `settings`: settings of runs, from and to dictionaries
//! - `actor`: a policy that acts
//! - `backgammon`: value networks of backgammon
//! - `cube`: solvers of cubes
//! - `gae`: advantages of rollouts that Python made
//! - `picture`: pictures as arrays
//! - `foreign`: envs that Python brings, as the engine's vector env
//! - `field`: neural operators on fields
//! - `games`: games for two
//! - `growth`: networks that grow
//! - `search`: rules of games by name, tree search
//! - `tables`: what a run's folder holds besides its lines of JSON
//! - `trainer`: a run that Python drives
//!
//! The engine does not know that Python exists; all that does is here.

mod actions;
mod actor;
mod backgammon;
mod cube;
mod describe;
mod dlpack;
mod engine;
mod error;
mod field;
mod foreign;
mod gae;
mod games;
mod gpu;
mod growth;
mod memory;
mod network;
mod picture;
mod search;
mod settings;
mod state;
mod tables;
mod trainer;

use pyo3::prelude::*;

#[pymodule]
mod _operant {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::actor::{Actor, copied_actor};
    #[pymodule_export]
    use super::backgammon::BackgammonNetwork;
    #[pymodule_export]
    use super::cube::{Cube2Solver, CubeSolver};
    #[pymodule_export]
    use super::describe::{doctor, env_info, list_envs};
    #[pymodule_export]
    use super::dlpack::Relay;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::field::roll_out_field;
    #[pymodule_export]
    use super::foreign::first_unfit;
    #[pymodule_export]
    use super::gae::estimate_advantages;
    #[pymodule_export]
    use super::games::{Backgammon, BackgammonMatch, copied_match};
    #[pymodule_export]
    use super::gpu::{DeviceArray, DeviceEngine, add_library_folders};
    #[pymodule_export]
    use super::growth::Growth;
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::network::Network;
    #[pymodule_export]
    use super::search::{Rules, Search};
    #[pymodule_export]
    use super::settings::{algorithm_settings, resolve_settings, run_settings, setting_aliases};
    #[pymodule_export]
    use super::tables::{event_kind, run_episodes, run_keys};
    #[pymodule_export]
    use super::trainer::{Trainer, copy_checkpoint, exchange_folders};

    #[pymodule_init]
    fn check_cpu(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        operant::lanes::check_cpu().map_err(|error| PyImportError::new_err(error.to_string()))
    }

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
