//! `operant train --seeds K`: the same run with K seeds, one after another in one process, and one summary of them.

use crate::output::{Failure, print};
use operant::run::{Config, End, Run, Start, Summary};
use operant::telemetry::Sink;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Mean and standard error of what is known.
#[derive(Debug, PartialEq)]
struct Spread {
    mean: f64,
    error: f64,
}

impl Spread {
    fn of(numbers: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.flatten().collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        // Of one number there is no spread.
        let error = if numbers.len() > 1 { (squares / (count - 1.0) / count).sqrt() } else { 0.0 };
        (!numbers.is_empty()).then_some(Self { mean, error })
    }

    fn json(spread: Option<Self>) -> serde_json::Value {
        spread.map_or(serde_json::Value::Null, |Self { mean, error }| json!({ "mean": mean, "standard_error": error }))
    }

    fn shown(spread: Option<Self>) -> String {
        spread.map_or("none".into(), |Self { mean, error }| format!("{mean:.2} ± {error:.2}"))
    }
}

/// Trains with seeds from the config's on. `folder` names the folder of each.
pub(crate) fn run(
    config: &Config,
    seeds: u64,
    json: bool,
    folder: impl Fn(&Config) -> PathBuf,
    sinks: impl Fn(u64) -> Vec<Box<dyn Sink>>,
    stop: impl Fn() -> bool,
) -> Result<End, Failure> {
    let mut done: Vec<(u64, PathBuf, Summary)> = Vec::new();
    let mut last = End::Finished;
    for number in 0..seeds {
        let mut config = config.clone();
        config.settings.seed = config.settings.seed.wrapping_add(number);
        let (seed, folder) = (config.settings.seed, folder(&config));
        let start = Start { folder: folder.clone(), sinks: sinks(config.settings.steps), started: Instant::now() };
        let mut run = Run::start(config, start)?;
        let finished = run.go(&stop).and_then(|end| Ok((run.finish(&end)?.0, end)));
        let (summary, end) = finished.map_err(|error| Failure::Run(format!("seed {seed}: {error}")))?;
        if !json {
            let shown = |x: Option<f64>| x.map_or("none".into(), |x| format!("{x:.2}"));
            print(&format!(
                "seed {seed}: {}, mean return {}, evaluation {}, {} steps in {:.2} s, {}\n",
                if summary.solved { "solved" } else { "not solved" },
                shown(summary.mean_return),
                shown(summary.eval_return),
                summary.steps,
                summary.wall_s,
                folder.display()
            ))?;
        }
        done.push((seed, folder, summary));
        last = end;
        if last == End::Stopped {
            break;
        }
    }
    let spread = |of: fn(&Summary) -> Option<f64>| Spread::of(done.iter().map(|(.., summary)| of(summary)));
    let solved = done.iter().filter(|(.., summary)| summary.solved).count();
    if json {
        let runs: Vec<_> = done
            .iter()
            .map(|(seed, folder, summary)| json!({ "seed": seed, "run": folder.display().to_string(), "summary": summary }))
            .collect();
        let object = json!({
            "runs": runs, "solved": solved,
            "mean_return": Spread::json(spread(|summary| summary.mean_return)),
            "eval_return": Spread::json(spread(|summary| summary.eval_return)),
            "solved_s": Spread::json(spread(|summary| summary.solved_s)),
            "solved_step": Spread::json(spread(|summary| summary.solved_step.map(|step| step as f64))),
        });
        print(&format!("{object}\n"))?;
        return Ok(last);
    }
    print(&format!(
        "{solved} of {} seeds solved; mean return {}, evaluation {}, seconds to solved {} (mean ± standard error)\n",
        done.len(),
        Spread::shown(spread(|summary| summary.mean_return)),
        Spread::shown(spread(|summary| summary.eval_return)),
        Spread::shown(spread(|summary| summary.solved_s)),
    ))?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let of = |numbers: &[Option<f64>]| Spread::of(numbers.iter().copied());
        assert_eq!(of(&[None]), None);
        assert_eq!(of(&[Some(3.0), None]), Some(Spread { mean: 3.0, error: 0.0 }));
        // Variance 1 over three numbers.
        let three = of(&[Some(1.0), Some(2.0), Some(3.0)]).unwrap();
        assert!((three.mean - 2.0).abs() < 1e-12 && (three.error - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::shown(Some(three)), "2.00 ± 0.58");
    }
}
