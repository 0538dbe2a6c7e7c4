//! `operant eval`: plays episodes with the policy of a run, or solves puzzles with its values.

use crate::backgammon;
use crate::matches::MatchArgs;
use crate::output::{Failure, NO_TASK_DATA, count, print, warn};
use crate::run_folder::refuse_brought;
use crate::solve::{self, SolveArgs};
use crate::versus;
use operant::algo::Policy;
use operant::device::{self, Device};
use operant::run::cubes::Learned;
use operant::run::{Checkpoints, Config, Play, Run, evaluate};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the run; of backgammon's value networks a .safetensors file too.
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
    if args.run.is_file() {
        refuse_words_of_play()?;
        refuse_words_of_puzzles(&args.run)?;
        if args.checkpoint.is_some() {
            let file = args.run.display();
            return Err(Failure::Usage(format!("--checkpoint is for folders of runs; {file} is one file of networks")));
        }
        return backgammon::judge_file(&args.matches, &args.run, args.seed, args.json);
    }
    // A folder, or the name of one below runs/.
    let below = Path::new("runs").join(&args.run);
    let run = if args.run.exists() || !below.exists() { &args.run } else { &below };
    let now = Run::config_of(run);
    if !run.join("run.toml").exists() {
        now.as_ref().map_err(|error| failed(error.clone()))?;
    }
    let checkpoints = Checkpoints::new(run, 1);
    let name = checkpoints.pick(args.checkpoint.as_deref()).map_err(failed)?;
    let parts = checkpoints.load(&name).map_err(failed)?;
    if let Ok(config) = &now {
        refuse_brought(config, run, || {
            let place = if args.checkpoint.is_some() { checkpoints.path(&name) } else { run.clone() };
            let (class, place) = (config.class(), place.display().to_string());
            format!("operant.{class}.load({place:?}, env=env).evaluate(episodes={episodes})")
        })?;
    }
    // A checkpoint is played in the env that it was trained in, whatever became of run.toml since.
    let text = operant::algo::part(&parts, "run.toml").map_err(failed)?;
    let config = Config::from_text(&String::from_utf8_lossy(text), &format!("run.toml of {name}")).map_err(failed)?;
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
    let of = solve::Of { run: shown, folder: run, checkpoint: &name, seed: args.seed, json: args.json };
    if parts.contains_key(backgammon::PART) || parts.contains_key("network.safetensors") {
        refuse_words_of_play()?;
        refuse_words_of_puzzles(run)?;
    }
    let (shown, learned) = (run.display().to_string(), parts.contains_key("network.safetensors"));
    if parts.contains_key(backgammon::PART) || learned && config.env == "backgammon" {
        let of = backgammon::Of { run: shown, checkpoint: &name, seed: args.seed, json: args.json };
        return backgammon::judge(&args.matches, &parts, &of);
    }
    if learned {
        let of = versus::Of {
            run: shown,
            checkpoint: &name,
            env: &config.env,
            parts: &parts,
            seed: args.seed,
            json: args.json,
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
    let evaluation = evaluate(&policy, &config.env, &config.env_params, &play, watch).map_err(failed)?;
    if let Some(path) = &args.render {
        let fps = operant::env::find(&config.env).map_err(failed)?.spec().render_fps;
        crate::picture::write_gif(path, &frames, fps)?;
    }
    if args.json {
        let object = json!({
            "run": run.display().to_string(), "checkpoint": name, "episodes": episodes, "deterministic": args.deterministic,
            "seed": args.seed, "mean_return": evaluation.mean(), "std_return": evaluation.std(),
            "mean_length": evaluation.mean_length(), "returns": evaluation.returns, "lengths": evaluation.lengths,
        });
        return print(&format!("{object}\n"));
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
    print(&text)
}
