//! A run that Python drives: `operant.PPO` or `operant.DQN` calls [`Trainer::advance`] again and again, each time for a fraction of a
//! second without the GIL, and looks at signals, callbacks and the screen in between.
//!
//! Invariant: the run is behind one lock that nobody waits for, so a second thread gets an error and not a race.

use crate::actor::Actor;
use crate::error::raise;
use crate::foreign::{Foreign, Link};
use crate::settings::{of_config, table};
use operant::CATALOGUE;
use operant::Error;
use operant::config::{self, Table};
use operant::env::VecEnv;
use operant::run::{
    Checkpoints, Config, End, MakeEnvs, Mark, Play, Run, Score, Start, build_env, build_pool, check_no_batch,
    decide_device, evaluate, replace_file,
};
use pyo3::exceptions::{PyException, PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// A run.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Trainer {
    /// `None` once closed.
    run: Mutex<Option<Run>>,
    /// To envs that Python brought, and to those of evaluations.
    link: Option<Arc<Link>>,
    eval_link: Arc<Link>,
}

/// A run, locked.
struct Open<'a>(MutexGuard<'a, Option<Run>>);

impl Open<'_> {
    fn run(&mut self) -> PyResult<&mut Run> {
        self.0.as_mut().ok_or_else(|| PyRuntimeError::new_err("the model is closed; load or resume it"))
    }
}

impl Trainer {
    fn lock(&self) -> PyResult<Open<'_>> {
        self.run.try_lock().map(Open).map_err(|error| {
            PyRuntimeError::new_err(match error {
                TryLockError::WouldBlock => "the model is being trained by another thread",
                TryLockError::Poisoned(_) => "the model broke in an earlier call; load its last checkpoint",
            })
        })
    }

    /// What Python's env raised, or the engine's error.
    fn raise(&self, error: Error) -> PyErr {
        let mut links = self.link.iter().chain([&self.eval_link]);
        links.find_map(|link| link.take_error()).unwrap_or_else(|| raise(error))
    }
}

fn on_device(algo: &str, env: &str, mut over: Table, device: Option<&str>) -> Result<Config, Error> {
    if let Some(device) = device {
        config::insert(&mut over, "device", config::Value::String(device.to_owned()))?;
    }
    Config::resolve(&CATALOGUE, algo, env, over)
}

/// Makes envs for evaluations by a function of Python's.
fn foreign_maker(more: Py<PyAny>, link: Arc<Link>) -> MakeEnvs {
    Box::new(move |count| {
        Python::attach(|py| {
            let made = more.call1(py, (count,)).and_then(|host| match host.is_none(py) {
                true => Ok(None),
                false => Foreign::new(host.bind(py), Arc::clone(&link)).map(|envs| Some(envs.closing())),
            });
            match made {
                Ok(Some(envs)) => Ok(Box::new(envs) as Box<dyn VecEnv>),
                Ok(None) => Err(Error::Invalid("the function gave an env of training again; wanted a new one".into())),
                // Ctrl-C and the like end the run.
                Err(error) if !error.is_instance_of::<PyException>(py) => {
                    link.fail(py, error);
                    Err(Error::Env("the function that makes envs was interrupted".into()))
                }
                // The run goes on without evaluations.
                Err(error) => Err(Error::Invalid(format!("envs for evaluations could not be made: {error}"))),
            }
        })
    })
}

fn start(folder: PathBuf) -> Start {
    Start { folder, sinks: Vec::new(), started: Instant::now(), at_once: 1 }
}

#[pymethods]
impl Trainer {
    /// A new run in a new folder: of a registered env, or of envs that Python brings. `more` makes others like them for
    /// evaluations, so many side by side, or None if it can't.
    #[new]
    #[pyo3(signature = (algo, env, settings, folder, host=None, more=None))]
    fn new(
        py: Python<'_>,
        algo: &str,
        env: &str,
        settings: Vec<(String, Bound<'_, PyAny>)>,
        folder: PathBuf,
        host: Option<&Bound<'_, PyAny>>,
        more: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let over = table(&settings)?;
        Run::check_free_alone(&folder).map_err(raise)?;
        // Python runs live on the CPU unless a device is named.
        let open = over.get("device").is_some_and(|device| device.as_str() == Some("auto"));
        let config = match open {
            true => decide_device(|device| on_device(algo, env, over.clone(), device)).map_err(raise)?.0,
            false => Config::resolve(&CATALOGUE, algo, env, over).map_err(raise)?,
        };
        if let Some(note) = config.precision_note().map_err(raise)? {
            let text = std::ffi::CString::new(note).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
        }
        let pool = build_pool(&config);
        let (envs, link): (Box<dyn VecEnv>, _) = match host {
            None => (build_env(&config, &pool).map_err(raise)?, None),
            Some(host) => {
                let link = Arc::new(Link::default());
                (Box::new(Foreign::new(host, Arc::clone(&link))?), Some(link))
            }
        };
        let count = envs.num_envs();
        let mut run = Run::start_with(config, envs, pool, start(folder)).map_err(raise)?;
        let eval_link = Arc::new(Link::default());
        if let Some(more) = more {
            run.evaluate_in(foreign_maker(more, Arc::clone(&eval_link)), count);
        }
        match link.as_ref().and_then(|link| link.take_error()) {
            Some(error) => Err(error),
            None => Ok(Self { run: Mutex::new(Some(run)), link, eval_link }),
        }
    }

    /// Goes on from a checkpoint of the run in a folder, with envs that Python brings if the run had such; `more` is as for a
    /// new run.
    #[staticmethod]
    #[pyo3(signature = (folder, checkpoint=None, host=None, more=None))]
    fn resume(
        folder: PathBuf,
        checkpoint: Option<&str>,
        host: Option<&Bound<'_, PyAny>>,
        more: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let Some(host) = host else {
            let run = Run::resume(&CATALOGUE, checkpoint, start(folder)).map_err(raise)?;
            return Ok(Self { run: Mutex::new(Some(run)), link: None, eval_link: Arc::default() });
        };
        let (link, eval_link) = (Arc::new(Link::default()), Arc::new(Link::default()));
        let envs = Box::new(Foreign::new(host, Arc::clone(&link))?);
        let count = envs.num_envs();
        let run = Run::resume_over(&CATALOGUE, checkpoint, Table::new(), start(folder), |_, _| Ok(envs));
        if let Some(error) = link.take_error() {
            return Err(error);
        }
        let mut run = run.map_err(raise)?;
        if let Some(more) = more {
            run.evaluate_in(foreign_maker(more, Arc::clone(&eval_link)), count);
        }
        Ok(Self { run: Mutex::new(Some(run)), link: Some(link), eval_link })
    }

    /// Sets the env steps after which the run ends.
    fn go_on(&self, steps: u64) -> PyResult<()> {
        self.lock()?.run()?.go_on(steps).map_err(raise)
    }

    /// Trains for about so many seconds, at least one iteration; says how the run ended if it did.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<&'static str>> {
        let mut open = self.lock()?;
        let run = open.run()?;
        let outcome = py.detach(|| {
            let until = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
            loop {
                match run.step()? {
                    Some(End::Solved) => return Ok(Some("solved")),
                    Some(_) => return Ok(Some("finished")),
                    None if Instant::now() >= until => return Ok(None),
                    None => {}
                }
            }
        });
        outcome.map_err(|error| self.raise(error))
    }

    /// Saves a checkpoint and the summary of the run, which may go on.
    fn conclude(&self, py: Python<'_>, end: &str) -> PyResult<()> {
        let mut open = self.lock()?;
        let run = open.run()?;
        let end = match end {
            "solved" => End::Solved,
            "finished" => End::Finished,
            _ => End::Stopped,
        };
        py.detach(|| run.conclude(&end)).map(drop).map_err(raise)
    }

    /// Saves a checkpoint; gives its name.
    fn save(&self) -> PyResult<String> {
        self.lock()?.run()?.save().map_err(raise)
    }

    /// A file of the checkpoint that would be written now.
    fn part(&self, name: &str) -> PyResult<Vec<u8>> {
        let parts = self.lock()?.run()?.algorithm().save().map_err(raise)?;
        operant::algo::part(&parts, name).map(<[u8]>::to_vec).map_err(raise)
    }

    /// Goes on with the weights of another policy.
    fn adopt(&self, actor: &Actor) -> PyResult<()> {
        self.lock()?.run()?.adopt(&actor.policy).map_err(raise)
    }

    /// The policy as it is now.
    #[pyo3(signature = (seed=None))]
    fn actor(&self, seed: Option<u64>) -> PyResult<Actor> {
        let mut open = self.lock()?;
        let run = open.run()?;
        let seed = seed.unwrap_or(run.config().settings.seed);
        Ok(Actor::new(run.algorithm().policy().map_err(raise)?, seed))
    }

    /// Returns and lengths of whole episodes, in a registered env.
    fn evaluate(
        &self,
        py: Python<'_>,
        episodes: usize,
        deterministic: bool,
        seed: u64,
    ) -> PyResult<(Vec<f32>, Vec<i32>)> {
        let (policy, config) = {
            let mut open = self.lock()?;
            let run = open.run()?;
            (run.algorithm().policy().map_err(raise)?, run.config().clone())
        };
        let play = Play { episodes, seed, deterministic, threads: config.settings.threads, ..Play::default() };
        // Another run of this process may have named others.
        config.use_task_data();
        let played =
            py.detach(|| evaluate(&policy, config.registered()?, &config.params(), &play, None)).map_err(raise)?;
        Ok((played.returns, played.lengths))
    }

    /// Has envs that Python brought reset before they are stepped again.
    fn restart_envs(&self) {
        if let Some(link) = &self.link {
            link.begin_anew("the envs were used for something else");
        }
    }

    /// Env steps done.
    #[getter]
    fn steps(&self) -> PyResult<u64> {
        Ok(self.lock()?.run()?.algorithm().steps())
    }

    /// Numbers of the last iteration, by name.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut open = self.lock()?;
        let run = open.run()?;
        let (report, algorithm) = (run.report(), run.algorithm());
        let metrics = PyDict::new(py);
        metrics.set_item("step", algorithm.steps())?;
        metrics.set_item("seconds", run.seconds())?;
        metrics.set_item("episodes", report.episodes.count())?;
        metrics.set_item("return", report.episodes.mean_return())?;
        metrics.set_item("length", report.episodes.mean_length())?;
        let evaluated = run.evaluation();
        let of_score = |of: fn(&Score) -> f64| evaluated.as_ref().map_or(f64::NAN, |(score, _)| of(score));
        metrics.set_item("eval/return", of_score(|score| score.mean))?;
        metrics.set_item("eval/error", of_score(|score| score.error))?;
        metrics.set_item("eval/steps", evaluated.map_or(0, |(_, steps)| steps))?;
        for (metric, value) in algorithm.metrics().iter().zip(&report.values) {
            metrics.set_item(metric.name, value)?;
        }
        Ok(metrics)
    }

    /// Every setting.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        of_config(py, self.lock()?.run()?.config())
    }

    /// Every setting, as `run.toml` holds them.
    fn settings_text(&self) -> PyResult<String> {
        Ok(self.lock()?.run()?.config().to_text())
    }

    /// Lets sinks write what is left, and gives memory, threads and envs back.
    fn close(&self, py: Python<'_>) {
        // Who trains it in another thread keeps it.
        let run = self.run.try_lock().ok().and_then(|mut run| run.take());
        py.detach(|| drop(run));
    }

    /// Sinks that failed, with why.
    fn failures(&self) -> PyResult<Vec<(String, String)>> {
        let drops = self.lock()?.run()?.drops();
        Ok(drops.failures().map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect())
    }
}

/// Has two folders change places.
#[pyfunction]
pub(crate) fn exchange_folders(a: PathBuf, b: PathBuf) -> PyResult<()> {
    Ok(operant::device::exchange_folders(&a, &b)?)
}

/// Copies the settings and one checkpoint (the named one, or the newest) of a run to another folder, which then is a run
/// that can be resumed.
#[pyfunction]
#[pyo3(signature = (folder, to, checkpoint=None, over=false))]
pub(crate) fn copy_checkpoint(folder: PathBuf, to: PathBuf, checkpoint: Option<&str>, over: bool) -> PyResult<()> {
    // What was saved before may be saved over; a run that begins wants a folder of its own.
    let free = if over { check_no_batch(&to) } else { Run::check_free_alone(&to) };
    free.and_then(|()| copy(&folder, &to, checkpoint)).map_err(raise)
}

fn copy(folder: &Path, to: &Path, checkpoint: Option<&str>) -> Result<(), Error> {
    let config = Run::config_of(&CATALOGUE, folder)?;
    let checkpoints = Checkpoints::new(folder, config.checkpoint.keep);
    let name = checkpoints.pick(checkpoint)?;
    let parts = checkpoints.load(&name)?;
    let step = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    std::fs::create_dir_all(to).map_err(|error| Error::io("make", to, &error))?;
    replace_file(&to.join("run.toml"), config.to_text().as_bytes())?;
    Checkpoints::new(to, 1).save(step, Mark { synced: true, ..Mark::default() }, &parts).map(drop)
}
