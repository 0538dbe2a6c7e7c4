//! `cargo xtask gpu`: the tests and measurements that need a GPU, and a verdict per target.
//!
//! A machine with a GPU often has no Rust: `--build DIR` fills a folder with programs on one that has it, and there
//! `DIR/xtask gpu --prebuilt DIR` runs them. Python's tests run by `.venv`, or by the interpreter that `--python` names, which has
//! NumPy and pytest; with PyTorch too, its loop over our envs is measured.

use crate::Failure;
use crate::bench_peers::{build_ours, field};
use crate::process::{ENGINE, capture, cargo, execute, root, target, write};
use crate::setup;
use crate::tally::Tally;
use crate::test::count;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Envs that are trained by their shipped settings or others, and the mean return that an evaluation should reach.
const LEARNING: [(&str, &str, f64); 9] = [
    ("cartpole", "", 500.0),
    ("cartpole", "--num-envs 65536 --set ppo.num_steps=16 --set ppo.minibatch_size=262144", 500.0),
    ("cartpole", "--num-envs 8192 --set ppo.num_steps=32 --set ppo.minibatch_size=65536", 500.0),
    ("cartpole", "--num-envs 2048 --set ppo.num_steps=128 --set ppo.minibatch_size=65536", 500.0),
    ("cartpole", "--precision tf32 --num-envs 65536 --set ppo.num_steps=16 --set ppo.minibatch_size=262144", 500.0),
    ("pendulum", "", -200.0),
    ("acrobot", "", -100.0),
    ("mountaincar", "", -110.0),
    ("mountaincar_continuous", "", 90.0),
];
/// Test programs of the engine that have tests which need a GPU.
const PROGRAMS: [&str; 6] = ["cuda", "ppo_cuda", "ppo_planned", "cuda_plan", "field_cuda", "growth_together"];
/// Python's tests that do, and what they and the measurements beside PyTorch run.
const SCRIPTS: [(&str, &str); 4] = [
    ("crates/operant-py/tests", "test_cuda.py"),
    ("crates/operant-py/tests", "test_field_cuda.py"),
    ("crates/operant-py/examples", "torch_on_gpu.py"),
    ("xtask/peers", "torch_gpu.py"),
];
/// Seeds of each.
const SEEDS: u64 = 3;

/// A speed: what it is, the words of `operant bench`, the number to read, and what it should reach.
struct Speed {
    what: &'static str,
    words: &'static str,
    key: &'static str,
    unit: &'static str,
    target: f64,
    /// Whether less is better.
    least: bool,
}

const fn raw(what: &'static str, words: &'static str, target: f64) -> Speed {
    Speed { what, words, key: "steps_per_gpu_s", unit: "steps/s", target, least: false }
}

const fn ppo(what: &'static str, words: &'static str, target: f64) -> Speed {
    Speed { what, words, key: "sps", unit: "steps/s", target, least: false }
}

const fn growth(what: &'static str, words: &'static str, target: f64) -> Speed {
    Speed { what, words, key: "env_epochs_per_s", unit: "env-epochs/s", target, least: false }
}

const fn most(what: &'static str, words: &'static str, key: &'static str, unit: &'static str, target: f64) -> Speed {
    Speed { what, words, key, unit, target, least: true }
}

const SPEEDS: [Speed; 24] = [
    raw("CartPole, 8,192 envs", "env cartpole --num-envs 8192", 20e9),
    raw("CartPole, 131,072 envs", "env cartpole --num-envs 131072", 100e9),
    raw("CartPole, 1,048,576 envs", "env cartpole --num-envs 1048576", 110e9),
    raw("CartPole, a call per step, 8,192 envs", "env cartpole --form step --num-envs 8192", 4e9),
    raw("CartPole, a call per step, 1,048,576 envs", "env cartpole --form step --num-envs 1048576", 70e9),
    raw("MountainCar, 1,048,576 envs", "env mountaincar --num-envs 1048576", 80e9),
    raw("Pendulum, 1,048,576 envs", "env pendulum --num-envs 1048576", 80e9),
    raw("Acrobot, 1,048,576 envs", "env acrobot --num-envs 1048576", 8e9),
    ppo("PPO, 65,536 x 16", "ppo cartpole --num-envs 65536 --num-steps 16 --no-solve", 800e6),
    ppo("PPO, 8,192 x 32", "ppo cartpole --num-envs 8192 --num-steps 32 --no-solve", 550e6),
    ppo("PPO, 2,048 x 128", "ppo cartpole --num-envs 2048 --num-steps 128 --no-solve", 450e6),
    ppo("PPO in f16, 65,536 x 16", "ppo cartpole --precision f16 --num-envs 65536 --num-steps 16 --no-solve", 800e6),
    ppo(
        "PPO, the next rollout beside learning, 2,048 x 128",
        "ppo cartpole --num-envs 2048 --num-steps 128 --set ppo.overlap=true --no-solve",
        450e6,
    ),
    ppo("PPO in tf32, 65,536 x 16", "ppo cartpole --precision tf32 --num-envs 65536 --num-steps 16 --no-solve", 250e6),
    ppo(
        "PPO, 512 x 3, 8,192 x 32",
        "ppo cartpole --num-envs 8192 --num-steps 32 --set network.hidden=[512,512,512] --no-solve",
        8e6,
    ),
    ppo(
        "PPO in f16, 512 x 3, 8,192 x 32",
        "ppo cartpole --precision f16 --num-envs 8192 --num-steps 32 --set network.hidden=[512,512,512] --no-solve",
        8e6,
    ),
    Speed {
        what: "Training step of 512 x 3, 8,192 rows, as a share of its products' rate",
        words: "nn --hidden 512,512,512 --batch 8192 --precision bf16",
        key: "train_share",
        unit: "of the rate",
        target: 0.4,
        least: false,
    },
    most(
        "Time between kernels, PPO 65,536 x 16",
        "ppo cartpole --num-envs 65536 --num-steps 16 --no-solve",
        "other_share",
        "of the time",
        0.05,
    ),
    growth("Growth, base 8, 16 envs, 1 seed each", "growth --seeds 1", 40.0),
    growth("Growth, base 32, 16 envs, 1 seed each", "growth --base 32 --seeds 1", 12.0),
    growth("Growth, base 8, 16 envs, 3 seeds each", "growth --seeds 3", 20.0),
    most("Mean last return of all envs 475 after start-up, seed 1", SOLVE_1, "all_envs_s", "s", 0.02),
    most("Mean last return of all envs 475 after start-up, seed 2", SOLVE_2, "all_envs_s", "s", 0.02),
    most("Mean last return of all envs 475 after start-up, seed 3", SOLVE_3, "all_envs_s", "s", 0.02),
];
const SOLVE_1: &str = "ppo cartpole --num-envs 2048 --num-steps 64 --set ppo.learning_rate=2e-3 --set seed=1";
const SOLVE_2: &str = "ppo cartpole --num-envs 2048 --num-steps 64 --set ppo.learning_rate=2e-3 --set seed=2";
const SOLVE_3: &str = "ppo cartpole --num-envs 2048 --num-steps 64 --set ppo.learning_rate=2e-3 --set seed=3";

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
struct Verdict {
    what: String,
    unit: &'static str,
    target: f64,
    /// What was measured, or why it could not be.
    measured: Result<f64, String>,
    /// Whether less is better.
    least: bool,
}

impl Verdict {
    fn met(&self) -> bool {
        self.measured.as_ref().is_ok_and(|&x| if self.least { x <= self.target } else { x >= self.target })
    }

    fn line(&self) -> String {
        let measured = match &self.measured {
            Ok(x) => number(*x),
            Err(reason) => reason.clone(),
        };
        let word = if self.met() { "met" } else { "MISSED" };
        format!("| {} | {} {} | {measured} | {word} |", self.what, number(self.target), self.unit)
    }

    fn json(&self) -> String {
        let measured = match &self.measured {
            Ok(x) => format!("{x}"),
            Err(_) => "null".to_owned(),
        };
        format!(
            "{{\"what\": \"{}\", \"unit\": \"{}\", \"target\": {}, \"measured\": {measured}, \"met\": {}}}",
            self.what,
            self.unit,
            self.target,
            self.met()
        )
    }
}

/// Says at once what was measured: the rows take minutes.
fn told(verdict: Verdict) -> Verdict {
    println!("{}", verdict.line());
    verdict
}

/// Three digits that matter.
fn number(x: f64) -> String {
    let (scaled, unit) = match x.abs() {
        size if size >= 1e9 => (x / 1e9, " G"),
        size if size >= 1e6 => (x / 1e6, " M"),
        _ => (x, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size < 0.1 => 4,
        _ => 2,
    };
    format!("{scaled:.digits$}{unit}")
}

/// What the words ask for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    build: Option<PathBuf>,
    prebuilt: Option<PathBuf>,
    json: Option<PathBuf>,
    python: Option<PathBuf>,
    quick: bool,
}

fn asked(words: &[String]) -> Result<Asked, Failure> {
    let (mut asked, mut words) = (Asked::default(), words.iter());
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--quick" => {
                asked.quick = true;
                continue;
            }
            "--build" => &mut asked.build,
            "--prebuilt" => &mut asked.prebuilt,
            "--json" => &mut asked.json,
            "--python" => &mut asked.python,
            other => {
                let known = ["--build", "--prebuilt", "--json", "--python", "--quick"];
                return Err(Failure::Usage(crate::unknown("option", other, known.into_iter())));
            }
        };
        let value = words.next().ok_or_else(|| Failure::Usage(format!("{word} wants a path after it")))?;
        *place = Some(PathBuf::from(value));
    }
    if asked.build.is_some() && asked.prebuilt.is_some() {
        return Err(Failure::Usage("--build fills a folder, --prebuilt uses one: name one of them".to_owned()));
    }
    Ok(asked)
}

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let asked = asked(words)?;
    if let Some(folder) = &asked.build {
        return build(folder).map_err(Failure::Work);
    }
    let folder = match &asked.prebuilt {
        Some(folder) => folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?,
        None => {
            let folder = target().join("gpu");
            build(&folder)?;
            folder
        }
    };
    let operant = folder.join("operant");
    println!("{}", capture(Command::new(&operant).arg("doctor"))?);
    let python = match asked.python {
        Some(python) => Some(python),
        None if asked.prebuilt.is_none() => Some(setup::packages()?.program("python")),
        None => None,
    };
    let mut tally = tests(&folder)?;
    match &python {
        Some(python) => tally += python_tests(&folder, python)?,
        None => println!("Python's tests are left out: name an interpreter that has NumPy and pytest with --python"),
    }
    let seconds = if asked.quick { "0.5" } else { "2" };
    let mut verdicts: Vec<Verdict> = SPEEDS.iter().map(|speed| told(measure(&operant, speed, seconds))).collect();
    let scratch = std::env::temp_dir().join(format!("operant-gpu-{}", std::process::id()));
    verdicts.extend(start_up(&operant, &scratch).map(told));
    verdicts.push(told(side_by_side(&operant, &scratch)));
    verdicts.extend(LEARNING.iter().map(|&(env, words, goal)| told(learn(&operant, &scratch, env, words, goal))));
    verdicts.extend(python.and_then(|python| beside_torch(&folder, &python)).map(told));
    let _ = std::fs::remove_dir_all(&scratch);
    println!("\n| | target | measured | |\n|---|---|---|---|");
    verdicts.iter().for_each(|verdict| println!("{}", verdict.line()));
    println!("\ntests: {tally}");
    let missed = verdicts.iter().filter(|verdict| !verdict.met()).count();
    println!("targets: {} met, {missed} missed", verdicts.len() - missed);
    let path = asked.json.unwrap_or_else(|| folder.join("gpu.json"));
    let rows: Vec<String> = verdicts.iter().map(Verdict::json).collect();
    let Tally { passed, failed, .. } = tally;
    let text = format!(
        "{{\"tests\": {{\"passed\": {passed}, \"failed\": {failed}}}, \"rows\": [\n  {}\n]}}\n",
        rows.join(",\n  ")
    );
    write(&path, text)?;
    println!("as JSON: {}", path.display());
    // A target that was missed is a result; a test that failed is a fault.
    if failed > 0 { Err(Failure::Told) } else { Ok(()) }
}

/// Fills a folder with the command, this program and the tests that need a GPU.
fn build(folder: &Path) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    let tests = folder.join("tests");
    std::fs::create_dir_all(&tests).map_err(io)?;
    let copy = |from: &Path, to: PathBuf| {
        std::fs::copy(from, &to).map(drop).map_err(|error| format!("{}: {error}", to.display()))
    };
    copy(&build_ours()?, folder.join("operant"))?;
    copy(&std::env::current_exe().map_err(io)?, folder.join("xtask"))?;
    let named = PROGRAMS.iter().flat_map(|name| ["--test", name]);
    let packages = ENGINE.iter().flat_map(|name| ["--package", name]);
    let programs: Vec<&str> = ["test", "--release"].into_iter().chain(packages).chain(named).collect();
    let mut built = String::new();
    for words in [&programs[..], &["test", "--release", "--package", "operant-rl", "--lib"]] {
        execute(cargo(words).arg("--no-run"))?;
        built += &capture(cargo(words).args(["--no-run", "--message-format", "json"]))?;
    }
    for line in built.lines() {
        let Some(path) = field(line, "executable").filter(|path| path.starts_with('/')) else { continue };
        let name = Path::new(path).file_stem().unwrap_or_default();
        copy(Path::new(path), tests.join(name.to_string_lossy().split('-').next().unwrap_or("tests")))?;
    }
    let (venv, python) = (setup::packages()?, folder.join("python"));
    let mut unpack = Command::new(venv.program("python"));
    execute(unpack.args(["-m", "zipfile", "-e"]).arg(setup::wheel(&venv)?).arg(&python))?;
    for (from, name) in SCRIPTS {
        let to = python.join(Path::new(from).file_name().unwrap_or_default());
        std::fs::create_dir_all(&to).map_err(io)?;
        copy(&root().join(from).join(name), to.join(name))?;
    }
    Ok(())
}

/// Python's tests that need a GPU, with the package of the folder.
fn python_tests(folder: &Path, python: &Path) -> Result<Tally, String> {
    let package = folder.join("python");
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(package.join("tests"));
    count(command.env("PYTHONPATH", &package), Tally::of_pytest, &[0]).map(|(tally, ())| tally)
}

/// A loop of PyTorch over our envs, beside the same over an env written in PyTorch; nothing where there is no PyTorch.
fn beside_torch(folder: &Path, python: &Path) -> Option<Verdict> {
    let package = folder.join("python");
    let has_torch = Command::new(python).args(["-c", "import torch"]).output().is_ok_and(|told| told.status.success());
    if !has_torch {
        println!("the loop of PyTorch is left out: {} has none", python.display());
        return None;
    }
    let mut command = Command::new(python);
    command.arg(package.join("peers/torch_gpu.py")).env("PYTHONPATH", &package);
    let measured = capture(&mut command).and_then(|json| read(&json, "policy_ratio"));
    let what = "PyTorch's loop over our envs, 65,536 envs, beside an env written in PyTorch".to_owned();
    Some(Verdict { what, unit: "times as fast", target: 3.0, measured, least: false })
}

/// Runs every test that waits for a GPU: programs side by side, because the host takes most of the time, and the tests of each in turn.
fn tests(folder: &Path) -> Result<Tally, String> {
    let tests = folder.join("tests");
    let found = std::fs::read_dir(&tests).map_err(|error| format!("{}: {error}", tests.display()))?;
    let mut programs: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
    programs.sort();
    let run = |program: &PathBuf| -> Result<Tally, String> {
        // Tests of libraries that are ignored for other reasons are not named after a GPU.
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let filter = if name.starts_with("operant") { "cuda" } else { "" };
        let mut command = Command::new(program);
        command.args(["--ignored", "--test-threads", "1", filter]);
        count(&mut command, Tally::of_cargo, &[0]).map(|(tally, ())| tally)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = programs.iter().map(|program| scope.spawn(|| run(program))).collect();
        running.into_iter().try_fold(Tally::default(), |mut all, one| {
            all += one.join().map_err(|_| "a thread that ran tests broke off".to_owned())??;
            Ok(all)
        })
    })
}

fn measure(operant: &Path, speed: &Speed, seconds: &str) -> Verdict {
    let mut command = Command::new(operant);
    command.arg("bench").args(speed.words.split(' '));
    command.args(["--device", "cuda", "--seconds", seconds, "--json"]);
    let measured = capture(&mut command).and_then(|json| read(&json, speed.key));
    Verdict { what: speed.what.to_owned(), unit: speed.unit, target: speed.target, measured, least: speed.least }
}

fn read(json: &str, key: &str) -> Result<f64, String> {
    field(json, key).and_then(|text| text.parse().ok()).ok_or_else(|| format!("no number \"{key}\""))
}

fn train(operant: &Path, scratch: &Path, env: &str, seed: u64, words: &[&str]) -> Result<String, String> {
    let folder = scratch.join(format!("{env}-{seed}"));
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(operant);
    command.args(["train", "ppo", env, "--device", "cuda", "--json", "--seed", &seed.to_string(), "--run-dir"]);
    capture(command.arg(&folder).args(words).env("XDG_CACHE_HOME", scratch))
}

/// How much faster several seeds are trained by one program, side by side, than by one program after another.
fn side_by_side(operant: &Path, scratch: &Path) -> Verdict {
    const COUNT: u64 = 8;
    let words = ["--until", "steps", "--steps", "2e7"];
    let timed = |work: &dyn Fn() -> Result<(), String>| {
        let start = Instant::now();
        work().map(|()| start.elapsed().as_secs_f64())
    };
    let alone = timed(&|| (1..=COUNT).try_for_each(|seed| train(operant, scratch, "cartpole", seed, &words).map(drop)));
    let count = COUNT.to_string();
    let several: Vec<&str> = words.into_iter().chain(["--seeds", count.as_str()]).collect();
    // Several at once have kernels of their own, which the others have not compiled.
    let few = ["--until", "steps", "--steps", "1e6", "--seeds", count.as_str()];
    let compiled = train(operant, scratch, "cartpole", 1, &few);
    let together = compiled.and_then(|_| timed(&|| train(operant, scratch, "cartpole", 1, &several).map(drop)));
    let measured = alone.and_then(|alone| together.map(|together| alone / together));
    let what = format!("CartPole, {COUNT} seeds of 20 M steps at once, beside one program after another");
    Verdict { what, unit: "times as fast", target: 2.0, measured, least: false }
}

/// From the start of the program to its end, solved: without kernels in the cache, and with them.
fn start_up(operant: &Path, scratch: &Path) -> [Verdict; 2] {
    [("no kernels in the cache", 3.0, 1), ("kernels in the cache", 0.7, 2)].map(|(how, target, seed)| {
        let start = Instant::now();
        let trained = train(operant, scratch, "cartpole", seed, &[]);
        let measured = trained.map(|_| start.elapsed().as_secs_f64());
        Verdict { what: format!("CartPole, start to end, {how}"), unit: "s", target, measured, least: true }
    })
}

/// The worst evaluation of all seeds.
fn learn(operant: &Path, scratch: &Path, env: &str, words: &str, goal: f64) -> Verdict {
    let given: Vec<&str> = words.split_whitespace().collect();
    let evaluated = |seed| train(operant, scratch, env, seed, &given).and_then(|json| read(&json, "eval_return"));
    let returns: Result<Vec<f64>, String> = (1..=SEEDS).map(evaluated).collect();
    let mut what = format!("{env}{}{words}, evaluation", if words.is_empty() { "" } else { " " });
    if let Ok(returns) = &returns {
        let shown: Vec<String> = returns.iter().map(|x| format!("{x:.1}")).collect();
        let _ = write!(what, " ({})", shown.join(", "));
    }
    let measured = returns.map(|returns| returns.into_iter().fold(f64::INFINITY, f64::min));
    Verdict { what, unit: "", target: goal, measured, least: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let of = |measured, least| Verdict { what: "x".into(), unit: "s", target: 3.0, measured, least };
        assert!(of(Ok(2.0), true).met() && !of(Ok(4.0), true).met() && of(Ok(4.0), false).met());
        assert!(!of(Err("broke".into()), true).met());
        assert_eq!(of(Ok(4.0), true).line(), "| x | 3.00 s | 4.00 | MISSED |");
        assert_eq!(
            of(Err("broke".into()), true).json(),
            "{\"what\": \"x\", \"unit\": \"s\", \"target\": 3, \"measured\": null, \"met\": false}"
        );
        assert_eq!(
            [number(148.2e9), number(6.7e8), number(-83.4), number(0.0103)],
            ["148 G", "670 M", "-83.40", "0.0103"]
        );
    }

    #[test]
    fn words() {
        let of = |words: &[&str]| asked(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let got = of(&["--prebuilt", "x", "--quick"]).unwrap();
        assert_eq!(got, Asked { prebuilt: Some("x".into()), quick: true, ..Asked::default() });
        assert!(of(&["--prebuild", "x"]).is_err() && of(&["--json"]).is_err());
        assert!(of(&["--build", "x", "--prebuilt", "y"]).is_err());
    }
}
