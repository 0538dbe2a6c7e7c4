//! `operant backgammon stack`: one network of several.

use super::saved;
use crate::output::{Failure, print, write_whole};
use operant::search::backgammon::{BackgammonFile, stacked};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Runs of td, or .safetensors files of them: two or more, best of different seeds. Each counts alike.
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    networks: Vec<PathBuf>,
    /// Where to write the network, as a .safetensors file for --model, eval and td.start.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut networks = Vec::new();
    for path in &args.networks {
        let network = BackgammonFile::from_bytes(&saved(path)?)
            .map_err(|error| Failure::Run(format!("{}: {error}", path.display())))?;
        networks.push(network);
    }
    let (net, weights) = stacked(&networks)?;
    write_whole(&args.out, &BackgammonFile::to_bytes(&net, &weights)?)?;
    let out = args.out.display();
    print(&format!(
        "{} networks, {} units together, written to {out}\nnext: operant eval {out} --against gnubg:0\n",
        networks.len(),
        net.hidden
    ))
}
