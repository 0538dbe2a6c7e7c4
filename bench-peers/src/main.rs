//! `bench-peers LIBRARY NET --batch N --precision f32|bf16 --passes forward,train --seconds S`: microseconds that
//! candle or burn takes for one batch of a network of `operant bench nn`, on one thread.
//!
//! One repeat: the caller interleaves libraries and keeps the best. Prints tab-separated lines:
//! `version TEXT`, `row PASS US_PER_BATCH WAY` and `fail PASS REASON`.

mod burn_nets;
mod candle_nets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// Adam's.
const LEARNING_RATE: f64 = 1e-4;

/// What is measured of a network.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    /// Forward, backward and Adam.
    Train,
}

/// One network at one size.
struct Case {
    net: String,
    batch: usize,
    bf16: bool,
}

/// One batch.
type Call = Box<dyn FnMut() -> Result<(), String>>;

/// Makes the call that is measured, or says why there is none.
type Build = fn(&Case, Pass) -> Result<Call, String>;

const LIBRARIES: [(&str, &str, Build); 3] = [
    ("candle", "candle 0.11.1", candle_nets::build),
    ("burn-flex", "burn 0.22.1", burn_nets::flex),
    ("burn-ndarray", "burn 0.22.1", burn_nets::ndarray),
];

const USAGE: &str = "usage: bench-peers candle|burn-flex|burn-ndarray NET --batch N [--precision f32|bf16] \
                     [--passes forward,train] [--seconds S]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(message) = run(&words) {
        eprintln!("error: {message}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

fn run(words: &[String]) -> Result<(), String> {
    let [library, net, flags @ ..] = words else { return Err(USAGE.into()) };
    let found = LIBRARIES.iter().find(|(name, ..)| name == library);
    let (_, version, build) = found.ok_or_else(|| format!("unknown library \"{library}\"; {USAGE}"))?;
    // Both libraries take their number of threads from here.
    if std::env::var("RAYON_NUM_THREADS").as_deref() != Ok("1") {
        return Err("RAYON_NUM_THREADS is not 1, and one thread is what is compared; set it".into());
    }
    let mut case = Case { net: net.clone(), batch: 0, bf16: false };
    let (mut passes, mut seconds) = ("forward,train", 0.5);
    for pair in flags.chunks(2) {
        let wrong = || format!("{}: not understood; {USAGE}", pair.join(" "));
        let [flag, value] = pair else { return Err(wrong()) };
        match (flag.as_str(), value.as_str()) {
            ("--batch", value) => case.batch = value.parse().map_err(|_| wrong())?,
            ("--precision", "f32") => case.bf16 = false,
            ("--precision", "bf16") => case.bf16 = true,
            ("--passes", value) => passes = value,
            ("--seconds", value) => seconds = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    if case.batch == 0 {
        return Err(format!("no --batch; {USAGE}"));
    }
    println!("version\t{version}");
    for name in passes.split(',') {
        let pass = match name {
            "forward" => Pass::Forward,
            "train" => Pass::Train,
            _ => return Err(format!("unknown pass \"{name}\"; {USAGE}")),
        };
        // burn panics where an operation is missing.
        let measured = catch_unwind(AssertUnwindSafe(|| measure(build(&case, pass)?, seconds)));
        match measured.unwrap_or_else(|_| Err("panicked".into())) {
            Ok(microseconds) => println!("row\t{name}\t{microseconds}\t-"),
            Err(reason) => println!("fail\t{name}\t{}", reason.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
    Ok(())
}

/// Microseconds of one call: the best of several parts, as `operant bench nn` takes it.
fn measure(mut call: Call, seconds: f64) -> Result<f64, String> {
    const WARM_UP_CALLS: usize = 3;
    const PARTS: usize = 10;
    for _ in 0..WARM_UP_CALLS {
        call()?;
    }
    let start = Instant::now();
    call()?;
    let calls = ((seconds / PARTS as f64 / start.elapsed().as_secs_f64()) as usize).max(1);
    let mut best = f64::INFINITY;
    for _ in 0..PARTS {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        best = best.min(start.elapsed().as_secs_f64() / calls as f64);
    }
    Ok(best * 1e6)
}
