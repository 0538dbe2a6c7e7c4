//! `operant eval`: plays episodes with the policy of a run, or solves puzzles with its values.

use crate::backgammon;
use crate::batch_report;
use crate::format;
use crate::found::BatchFolder;
use crate::matches::MatchArgs;
use crate::output::{Failure, NO_TASK_DATA, count, print, warn};
use crate::run_folder::{RUNS, RunFolder, refuse_brought};
use crate::seeds::Batch;
use crate::solve::{self, SolveArgs};
use crate::versus;
use operant::CATALOGUE;
use operant::algo::Policy;
use operant::device::{self, Device};
use operant::run::cubes::Learned;
use operant::run::{Checkpoints, Config, Play, Run, evaluate};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the run, or of a batch of seeds; of backgammon's value networks a .safetensors file too.
    run: PathBuf,
    /// Episodes to play [default: 100].
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    episodes: Option<usize>,
    /// Take the most probable action in place of a sample.
    #[arg(long)]
    deterministic: bool,
    /// Which checkpoint: best, last or its name [default: last].
    #[arg(long, value_name = "NAME")]
    checkpoint: Option<String>,
    /// Seed of the episodes.
    #[arg(long, default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Write the first episode as an animated picture.
    #[arg(long, value_name = "FILE.gif")]
    render: Option<PathBuf>,
    /// Where it is played: cpu, cuda or cuda:i.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Where the files of a task of growth lie now, if not where they were in training.
    #[arg(long, value_name = "FILE_OR_DIR")]
    task_data: Option<PathBuf>,
    #[command(flatten)]
    solve: SolveArgs,
    #[command(flatten)]
    matches: MatchArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A folder, or the name of one below runs/.
    let below = Path::new(RUNS).join(&args.run);
    let run = if args.run.exists() || !below.exists() { &args.run } else { &below };
    if Batch::is_in(run) && !RunFolder::is_run(run) {
        return batch(args, run);
    }
    print(&one(args, run, args.json)?)
}

/// Every seed of a batch: a row of numbers for each, and their means with standard errors.
fn batch(args: &Args, folder: &Path) -> Result<(), Failure> {
    let files = [
        ("--render", args.render.is_some()),
        ("--mat", args.matches.mat.is_some()),
        ("--sgf", args.matches.sgf.is_some()),
    ];
    let shown = folder.display();
    if let Some((word, _)) = files.iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!("{word} is for one run; {shown} holds several: name one of them")));
    }
    let batch = BatchFolder::open(folder.to_owned())?;
    let mut found: Vec<(u64, Value)> = Vec::new();
    let mut failed: Vec<(u64, String)> = Vec::new();
    for (seed, run) in &batch.runs {
        match one(args, &run.path, true) {
            Ok(text) => {
                let unreadable = |error| Failure::Run(format!("seed {seed}: its result can't be read: {error}"));
                found.push((*seed, serde_json::from_str(&text).map_err(unreadable)?));
            }
            // A seed that stopped before its first checkpoint, say; the others still count.
            Err(Failure::Run(reason)) => failed.push((*seed, reason)),
            Err(wrong_words) => return Err(wrong_words.of(&format!("seed {seed}"))),
        }
    }
    if args.json || !found.is_empty() {
        print(&batch_text(args, &shown.to_string(), &found, &failed))?;
    }
    let reasons: Vec<String> = failed.iter().map(|(seed, reason)| format!("seed {seed}: {reason}")).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    let (count, all) = (failed.len(), batch.runs.len());
    Err(Failure::Run(format!("{count} of {all} seeds could not be evaluated: {}", reasons.join("; "))))
}

/// A table of what was found of each seed, with the means of all that could be evaluated, or the same as JSON.
fn batch_text(args: &Args, shown: &str, found: &[(u64, Value)], failed: &[(u64, String)]) -> String {
    let numbers: Vec<Map<String, Value>> = found.iter().map(|(_, object)| numbers_of(object)).collect();
    let names = batch_report::names(&numbers);
    if args.json {
        let results = found.iter().map(|(seed, object)| json!({ "seed": seed, "result": object }));
        let errors = failed.iter().map(|(seed, reason)| json!({ "seed": seed, "error": reason }));
        let runs: Vec<Value> = results.chain(errors).collect();
        let mean = |name: &String| (name.clone(), batch_report::mean_of(&numbers, name));
        let means: Map<String, Value> = names.iter().map(mean).collect();
        return format!("{}\n", json!({ "batch": shown, "runs": runs, "means": means }));
    }
    let header: Vec<String> =
        ["seed", "checkpoint"].into_iter().chain(names.iter().map(String::as_str)).map(str::to_owned).collect();
    let row = |((seed, object), numbers): (&(u64, Value), &Map<String, Value>)| -> Vec<String> {
        let cell = |name: &String| numbers.get(name).map_or_else(|| "–".to_owned(), batch_report::text);
        let first = [seed.to_string(), object["checkpoint"].as_str().unwrap_or_default().to_owned()];
        first.into_iter().chain(names.iter().map(cell)).collect()
    };
    let means = names.iter().map(|name| batch_report::text(&batch_report::mean_of(&numbers, name)));
    let means: Vec<String> = ["mean ± standard error".to_owned(), String::new()].into_iter().chain(means).collect();
    let rows: Vec<Vec<String>> =
        std::iter::once(header).chain(found.iter().zip(&numbers).map(row)).chain([means]).collect();
    format::table(&rows, &[])
}

/// What an evaluation found, without what it was asked.
fn numbers_of(object: &Value) -> Map<String, Value> {
    const ASKED: [&str; 9] =
        ["seed", "episodes", "games", "simulations", "width", "weight", "most_moves", "most_expanded", "seconds"];
    let all = object.as_object().into_iter().flatten().chain(object["all"].as_object().into_iter().flatten());
    let found = all.filter(|(name, value)| value.is_number() && !ASKED.contains(&name.as_str()));
    found.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// One run, or one file of networks; gives what is to be printed.
fn one(args: &Args, run: &Path, as_json: bool) -> Result<String, Failure> {
    let failed = |error: operant::Error| Failure::Run(error.to_string());
    let episodes = args.episodes.unwrap_or(100);
    if episodes == 0 {
        return Err(Failure::Usage("--episodes 0: wanted at least 1".into()));
    }
    if args.render.as_ref().is_some_and(|path| path.extension().is_none_or(|end| !end.eq_ignore_ascii_case("gif"))) {
        return Err(Failure::Usage("--render writes a GIF: name a file that ends in .gif".into()));
    }
    let on_gpu = Device::gpu_index(&args.device)?.is_some();
    let refuse_words_of_play = || {
        let words = [
            ("--device cuda", on_gpu),
            ("--episodes", args.episodes.is_some()),
            ("--deterministic", args.deterministic),
            ("--render", args.render.is_some()),
        ];
        let word = words.iter().find(|(_, given)| *given);
        word.map_or(Ok(()), |(word, _)| {
            let next = "--count, --depth and --search say which states of a puzzle are solved, --against and --games who plays whom";
            Err(Failure::Usage(format!("{word} is for policies that play episodes: {next}")))
        })
    };
    let refuse_words_of_puzzles = |run: &Path| match args.solve.given().first() {
        Some(word) => Err(Failure::Usage(format!("{word} is for puzzles; {} learned a game", run.display()))),
        None => Ok(()),
    };
    if run.is_file() {
        refuse_words_of_play()?;
        refuse_words_of_puzzles(run)?;
        if args.checkpoint.is_some() {
            let file = run.display();
            return Err(Failure::Usage(format!("--checkpoint is for folders of runs; {file} is one file of networks")));
        }
        return backgammon::judge_file(&args.matches, run, args.seed, as_json);
    }
    let now = Run::config_of(&CATALOGUE, run);
    if !run.join("run.toml").exists() {
        now.as_ref().map_err(|error| failed(error.clone()))?;
    }
    let checkpoints = Checkpoints::new(run, 1);
    let name = checkpoints.pick(args.checkpoint.as_deref()).map_err(failed)?;
    let parts = checkpoints.load(&name).map_err(failed)?;
    if let Ok(config) = &now {
        refuse_brought(config, run, || {
            let place = if args.checkpoint.is_some() { checkpoints.path(&name) } else { run.to_owned() };
            let (class, place) = (config.class(), place.display().to_string());
            format!("operant.{class}.load({place:?}, env=env).evaluate(episodes={episodes})")
        })?;
    }
    // A checkpoint is played in the env that it was trained in, whatever became of run.toml since.
    let text = operant::algo::part(&parts, "run.toml").map_err(failed)?;
    let config = Config::from_text(&CATALOGUE, &String::from_utf8_lossy(text), &format!("run.toml of {name}"))
        .map_err(failed)?;
    // Files may have moved since the checkpoint.
    now.as_ref().ok().filter(|now| !now.settings.task_data.is_empty()).unwrap_or(&config).use_task_data();
    if let Some(place) = &args.task_data {
        if !config.reads_task_data() {
            return Err(Failure::Usage(NO_TASK_DATA.into()));
        }
        operant::env::growth::set_task_data(place);
    }
    let same = now.is_ok_and(|now| (&now.env, &now.env_params) == (&config.env, &config.env_params));
    if !same {
        warn(&format!("run.toml has changed since {name}, which is played in the env that it was trained in"));
    }
    let shown = run.display().to_string();
    let of = solve::Of { run: shown, folder: run, checkpoint: &name, seed: args.seed, json: as_json };
    if parts.contains_key(backgammon::PART) || parts.contains_key("network.safetensors") {
        refuse_words_of_play()?;
        refuse_words_of_puzzles(run)?;
    }
    let (shown, learned) = (run.display().to_string(), parts.contains_key("network.safetensors"));
    if parts.contains_key(backgammon::PART) || learned && config.env == "backgammon" {
        let of = backgammon::Of { run: shown, checkpoint: &name, seed: args.seed, json: as_json };
        return backgammon::judge(&args.matches, &parts, &of);
    }
    if learned {
        let of = versus::Of {
            run: shown,
            checkpoint: &name,
            env: &config.env,
            parts: &parts,
            seed: args.seed,
            json: as_json,
        };
        return versus::run(&args.matches, &of);
    }
    args.matches.refuse(&[], &format!("{} learned no game for two", run.display()))?;
    if parts.contains_key("value.safetensors") {
        refuse_words_of_play()?;
        return solve::run(&args.solve, &Learned::of_parts(&parts).map_err(failed)?, &config, &of);
    }
    let policy =
        Policy::from_bytes(operant::algo::part(&parts, "policy.safetensors").map_err(failed)?).map_err(failed)?;
    let given = args.solve.given();
    if !given.is_empty() && !["cube2", "cube3"].contains(&config.env.as_str()) {
        let (words, verb) = (given.join(", "), if given.len() == 1 { "is" } else { "are" });
        return Err(Failure::Usage(format!(
            "{words} {verb} for puzzles; {} learned a policy for {}: --episodes says how many it plays",
            run.display(),
            config.env
        )));
    }
    if !given.is_empty() {
        refuse_words_of_play()?;
        return solve::run(&args.solve, &Learned::Policy(policy), &config, &of);
    }
    let play = Play {
        episodes,
        seed: args.seed,
        deterministic: args.deterministic,
        threads: device::threads_available(),
        device: Device::named(&args.device).map_err(failed)?,
    };
    let mut frames = Vec::new();
    let mut watch = |canvas| frames.push(canvas);
    let watch: Option<&mut dyn FnMut(_)> = if args.render.is_some() { Some(&mut watch) } else { None };
    let evaluation =
        evaluate(&policy, config.registered().map_err(failed)?, &config.params(), &play, watch).map_err(failed)?;
    if let Some(path) = &args.render {
        let fps = operant::env::find(&config.env).map_err(failed)?.spec().render_fps;
        crate::picture::write_gif(path, &frames, fps)?;
    }
    if as_json {
        let object = json!({
            "run": run.display().to_string(), "checkpoint": name, "episodes": episodes, "deterministic": args.deterministic,
            "seed": args.seed, "mean_return": evaluation.mean(), "std_return": evaluation.std(),
            "mean_length": evaluation.mean_length(), "returns": evaluation.returns, "lengths": evaluation.lengths,
        });
        return Ok(format!("{object}\n"));
    }
    let kind = match args.deterministic {
        _ if config.algo == "dqn" => "actions of the highest value",
        true => "most probable actions",
        false => "sampled actions",
    };
    let mut text = format!(
        "mean return {:.2} ± {:.2} (standard deviation) over {} episodes, mean length {:.1}, {kind}\ncheckpoint {name}\n",
        evaluation.mean(),
        evaluation.std(),
        episodes,
        evaluation.mean_length()
    );
    if let Some(path) = &args.render {
        text += &format!("picture: {} ({} frames)\n", path.display(), frames.len());
    }
    Ok(text)
}
