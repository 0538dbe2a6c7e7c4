//! `operant bench`: the benchmarks are commands of the product.

mod env;
mod env_cuda;
mod field;
mod game;
mod growth;
mod nn;
mod nn_cuda;
mod nn_threads;
mod ppo;
mod search;
mod selfplay;

use crate::output::Failure;
use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Environment steps per second with random actions.
    Env(env::Args),
    /// Neural operators on fields: steps of realisations per second.
    Field(field::Args),
    /// Games: random games and legal plays per second.
    Game(game::Args),
    /// Networks that grow side by side on a GPU: env-epochs per second.
    Growth(growth::Args),
    /// Tree search: simulations per second with an evaluator that costs nothing.
    Search(search::Args),
    /// Self-play by search over a network: games per minute.
    Selfplay(selfplay::Args),
    /// PPO: env steps per second of whole iterations, and where the time goes.
    Ppo(ppo::Args),
    /// Networks: forward, and forward + backward + optimiser step.
    Nn(nn::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Env(args) => env::run(args),
        What::Field(args) => field::run(args),
        What::Game(args) => game::run(args),
        What::Growth(args) => growth::run(args),
        What::Nn(args) => nn::run(args),
        What::Ppo(args) => ppo::run(args),
        What::Search(args) => search::run(args),
        What::Selfplay(args) => selfplay::run(args),
    }
}
