//! Makes the records that a store lacks. Threads take operators by number and hand records to one writer; operators that fail are
//! noted in the store, which keeps everything else.

use super::{Collection, FailedOperator, FailedOperators, Kept, Outcome, Sampled, flags};
use crate::cuda;
use crate::shards::{ArraySpec, Layout, Packed, Shards};
use operant_base::{Error, Result};
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

/// How far a collection is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Operators of this run.
    pub operators: usize,
    /// Of them, those with fields that were not finite.
    pub not_finite: usize,
    /// Steps of single realisations.
    pub realisation_steps: u64,
}

/// Pixels of operators of one shape that a thread rolls out at once on a GPU, which is busier with more fields: 20 of 128x128.
const MOST_AT_ONCE: usize = 20 * 128 * 128;
/// Records that wait for the writer, in bytes.
const MOST_WAITING_BYTES: usize = 1 << 30;

/// Rolls a group of operators out; `None` when it was stopped on the way.
type Roll<'a> = dyn Fn(&[Sampled], &AtomicBool) -> Result<Option<Vec<Outcome>>> + Sync + 'a;
/// Hears of every record that was kept: progress, number, flags.
type Heard<'a> = dyn FnMut(Progress, u32, u8) + Send + 'a;

/// What a thread hands to the writer.
enum Made {
    Record(u32, u8, Packed),
    Failed(Failure),
}

/// Operators that failed together, and why.
struct Failure {
    operators: Vec<FailedOperator>,
    error: Error,
}

impl Failure {
    /// Whether other operators can still run in this process.
    fn is_fault(&self) -> bool {
        matches!(self.error, Error::DeviceFault(_))
    }

    /// Whether the run is over.
    fn ends(&self, collection: &Collection) -> bool {
        self.is_fault() || !collection.skip_failed
    }

    /// As an error. It is a fault if a new process would come further: it can find the cause, or leave it out.
    fn into_error(self, skip_failed: bool) -> Error {
        let (text, found) = match &self.operators[..] {
            [FailedOperator { operator, settings, .. }] => {
                (format!("operator {operator} ({settings}): {}", self.error), true)
            }
            several => {
                let numbers: Vec<String> = several.iter().map(|failed| failed.operator.to_string()).collect();
                (format!("{}; operators {} ran at that moment", self.error, numbers.join(", ")), false)
            }
        };
        if self.is_fault() && (skip_failed || !found) { Error::DeviceFault(text) } else { Error::Env(text) }
    }
}

/// What the threads of a run share.
struct Shared<'a, I: Iterator<Item = u32>> {
    left: Mutex<Peekable<I>>,
    /// Whether operators run one at a time, so that a failure is known to be theirs.
    alone: bool,
    /// Operators that are being rolled out.
    running: Mutex<BTreeSet<u32>>,
    layout: &'a Layout,
    /// Set by Ctrl-C.
    stop: &'a AtomicBool,
    /// Set when the writer wants no more.
    ended: AtomicBool,
    roll: &'a Roll<'a>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what threads made.
struct Writer<'a> {
    collection: &'a Collection,
    store: &'a mut Shards,
    failed: &'a mut FailedOperators,
    progress: &'a mut Progress,
    heard: &'a mut Heard<'a>,
}

impl Writer<'_> {
    fn keep(&mut self, k: u32, found: u8, record: Packed) -> Result<()> {
        let s = &self.collection.settings;
        self.store.keep(k as usize, record)?;
        self.failed.forget(k)?;
        self.progress.operators += 1;
        self.progress.not_finite += usize::from(found & flags::NOT_FINITE != 0);
        self.progress.realisation_steps += u64::from(s.realisations) * u64::from(s.steps);
        (self.heard)(*self.progress, k, found);
        Ok(())
    }

    /// Keeps all that comes. After a failure that ends the run, what other threads had finished is kept too.
    fn keep_all(&mut self, made: mpsc::Receiver<Made>) -> Result<()> {
        let mut first: Option<Failure> = None;
        for made in made {
            match made {
                Made::Record(k, found, record) => self.keep(k, found, record)?,
                Made::Failed(mut failure) => {
                    // What another thread had finished just before a fault is not to blame.
                    failure.operators.retain(|failed| !self.store.done()[failed.operator as usize]);
                    // Other threads meet the fault of the first one: they say nothing new.
                    if first.as_ref().is_some_and(Failure::is_fault) && failure.is_fault() {
                        continue;
                    }
                    self.failed.note(failure.operators.clone())?;
                    if failure.ends(self.collection) {
                        first.get_or_insert(failure);
                    }
                }
            }
        }
        self.store.flush()?;
        first.map_or(Ok(()), |failure| Err(failure.into_error(self.collection.skip_failed)))
    }
}

impl Collection {
    /// Leaves out operators that fail, and those that are known to have failed before, in place of stopping at them.
    pub fn skipping_failed(self, skip_failed: bool) -> Self {
        Self { skip_failed, ..self }
    }

    /// Collects what a store lacks. `heard` hears of every record that was kept; `stop` ends it early, with all finished
    /// records kept. Operators that may have failed before come first, one at a time. After [`Error::DeviceFault`] a new process
    /// should run the collection again: it finds out which operator broke the GPU's context, or goes on past it.
    pub fn run(
        &self,
        store: &mut Shards,
        threads: usize,
        stop: &AtomicBool,
        heard: &mut Heard<'_>,
    ) -> Result<Progress> {
        self.run_by(&|group, stop| self.outcomes(group, stop), store, threads, stop, heard)
    }

    fn run_by(
        &self,
        roll: &Roll<'_>,
        store: &mut Shards,
        threads: usize,
        stop: &AtomicBool,
        heard: &mut Heard<'_>,
    ) -> Result<Progress> {
        self.check_settings(store)?;
        if store.layout().arrays != self.layout().arrays {
            let folder = store.folder().display();
            return Err(Error::Saved(format!(
                "{folder} holds records of another version, with other features; finish it with that version, or collect \
                 again into another folder"
            )));
        }
        self.check_room(threads)?;
        let mut failed = FailedOperators::open(store.folder())?;
        let left_out = |k: u32| self.skip_failed && failed.get(k).is_some_and(|failed| failed.certain);
        let todo = (0..self.settings.count).filter(|&k| !store.done()[k as usize] && !left_out(k));
        let (suspects, others): (Vec<u32>, Vec<u32>) = todo.partition(|&k| failed.get(k).is_some());
        if !suspects.is_empty() || !others.is_empty() {
            self.check_draws(store)?;
        }
        let (mut progress, layout) = (Progress::default(), store.layout().clone());
        for (numbers, alone) in [(suspects, true), (others, false)] {
            let (failed, progress) = (&mut failed, &mut progress);
            let writer = Writer { collection: self, store, failed, progress, heard: &mut *heard };
            let threads = if alone { 1 } else { threads.clamp(1, numbers.len().max(1)) };
            let shared = Shared {
                left: Mutex::new(numbers.into_iter().peekable()),
                alone,
                running: Mutex::default(),
                layout: &layout,
                stop,
                ended: AtomicBool::new(false),
                roll,
            };
            self.make(&shared, threads, writer)?;
        }
        // Operators that are left out have no features that could count.
        let left_out = |k: usize| self.skip_failed && failed.get(k as u32).is_some_and(|failed| failed.certain);
        if store.done().iter().enumerate().all(|(k, &done)| done || left_out(k)) {
            self.write_stats(store)?;
        }
        Ok(progress)
    }

    /// Makes the records of operators that are left.
    fn make<I: ExactSizeIterator<Item = u32> + Send>(
        &self,
        shared: &Shared<'_, I>,
        threads: usize,
        mut writer: Writer<'_>,
    ) -> Result<()> {
        // Threads wait for the writer before records fill the memory.
        let largest = shared.layout.arrays.iter().map(ArraySpec::bytes).max().unwrap_or(1);
        let waiting = (MOST_WAITING_BYTES / largest.max(1)).min(threads + 4);
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel(waiting);
            for _ in 0..threads {
                let send = send.clone();
                scope.spawn(move || self.work(shared, threads, &send));
            }
            drop(send);
            let result = writer.keep_all(receive);
            shared.ended.store(true, Ordering::Relaxed);
            result
        })
    }

    /// A thread's work: group by group until none is left.
    fn work<I: ExactSizeIterator<Item = u32>>(
        &self,
        shared: &Shared<'_, I>,
        threads: usize,
        send: &mpsc::SyncSender<Made>,
    ) {
        while !shared.stop.load(Ordering::Relaxed) && !shared.ended.load(Ordering::Relaxed) {
            let numbers = self.taken(shared, threads);
            if numbers.is_empty() {
                break;
            }
            let Some(made) = self.made(shared, &numbers) else { break };
            if made.iter().any(|made| matches!(made, Made::Failed(failure) if failure.ends(self))) {
                shared.ended.store(true, Ordering::Relaxed);
            }
            if made.into_iter().any(|made| send.send(made).is_err()) {
                break;
            }
            let mut running = locked(&shared.running);
            running.retain(|k| !numbers.contains(k));
        }
    }

    /// What becomes of a group; `None` when it was stopped.
    fn made<I: Iterator<Item = u32>>(&self, shared: &Shared<'_, I>, numbers: &[u32]) -> Option<Vec<Made>> {
        let group: Vec<Sampled> = numbers.iter().map(|&k| self.sampled(k)).collect();
        let error = match (shared.roll)(&group, shared.stop) {
            Ok(outcomes) => {
                let packed = |((&k, sampled), outcome): ((&u32, &Sampled), &Outcome)| {
                    let record = self.record(shared.layout, sampled, outcome);
                    match record.and_then(|record| shared.layout.pack(record)) {
                        Ok(record) => Made::Record(k, outcome.flags, record),
                        Err(error) => Made::Failed(self.failure([k], error)),
                    }
                };
                return outcomes.map(|outcomes| numbers.iter().zip(&group).zip(&outcomes).map(packed).collect());
            }
            Err(error) => error,
        };
        if matches!(error, Error::DeviceFault(_)) {
            let running = locked(&shared.running).clone();
            return Some(vec![Made::Failed(self.failure(running, error))]);
        }
        if let [k] = numbers {
            return Some(vec![Made::Failed(self.failure([*k], error))]);
        }
        // Each by itself shows which of them it was.
        numbers
            .iter()
            .map(|&k| self.made(shared, &[k]))
            .collect::<Option<Vec<_>>>()
            .map(|made| made.into_iter().flatten().collect())
    }

    fn failure(&self, operators: impl IntoIterator<Item = u32>, error: Error) -> Failure {
        let noted = |operator: u32| FailedOperator {
            operator,
            settings: self.settings_of(&self.sampled(operator)),
            error: error.to_string(),
            certain: false,
        };
        let mut operators: Vec<FailedOperator> = operators.into_iter().map(noted).collect();
        if let [only] = &mut operators[..] {
            only.certain = true;
        }
        Failure { operators, error }
    }

    /// An operator's parameters in words.
    fn settings_of(&self, sampled: &Sampled) -> String {
        let named = |(parameter, &value): (&crate::Parameter, &f64)| {
            format!("{} {}", parameter.name, parameter.map.show(value))
        };
        let words: Vec<String> = self.space.parameters.iter().zip(&sampled.values).map(named).collect();
        words.join(", ")
    }

    /// The next operators for a thread: on a GPU several of one shape, unless so few are left that threads would have none, or
    /// fields are stored, which take the host's memory.
    fn taken<I: ExactSizeIterator<Item = u32>>(&self, shared: &Shared<'_, I>, threads: usize) -> Vec<u32> {
        let mut left = locked(&shared.left);
        let mut numbers: Vec<u32> = left.next().into_iter().collect();
        if let (Some(&first), Some(gpu), Kept::None) = (numbers.first(), &self.gpu, self.settings.trajectories) {
            let first = self.sampled(first).operator;
            let pixels = self.settings.realisations as usize * first.grid * first.grid;
            let grouped = !shared.alone && cuda::unserved(gpu, &first).is_none();
            while grouped && (numbers.len() + 1) * pixels <= MOST_AT_ONCE && left.len() > threads {
                let Some(k) = left.next_if(|&k| cuda::one_shape(&self.sampled(k).operator, &first)) else { break };
                numbers.push(k);
            }
        }
        locked(&shared.running).extend(&numbers);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_base::config;
    use std::path::PathBuf;

    fn small() -> Collection {
        let text =
            "count = 6\nrealisations = 1\nsteps = 2\nper_shard = 4\n[space]\ngrid = 16\nbase_channels = 16\nlayers = 2";
        Collection::read(&config::parse(text, "a test").unwrap()).unwrap()
    }

    fn store(name: &str, collection: &Collection) -> (PathBuf, Shards) {
        let folder = std::env::temp_dir().join(format!("operant-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let store = collection.create(&folder).unwrap();
        (folder, store)
    }

    /// Runs with operators that fail as `wrong` says; also gives the numbers in the order in which they were taken.
    fn run(
        collection: &Collection,
        store: &mut Shards,
        threads: usize,
        wrong: impl Fn(u32) -> Option<Error> + Sync,
    ) -> (Result<Progress>, Vec<u32>) {
        let (taken, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let number = |sampled: &Sampled| (0..6).find(|&k| collection.sampled(k).key == sampled.key).unwrap();
        let roll = |group: &[Sampled], stop: &AtomicBool| {
            let numbers: Vec<u32> = group.iter().map(number).collect();
            locked(&taken).extend(&numbers);
            numbers.into_iter().find_map(&wrong).map_or_else(|| collection.outcomes(group, stop), Err)
        };
        let result = collection.run_by(&roll, store, threads, &stop, &mut |_, _, _| {});
        (result, taken.into_inner().unwrap())
    }

    fn numbers(folder: &std::path::Path) -> Vec<(u32, bool)> {
        let failed = FailedOperators::open(folder).unwrap();
        failed.list().iter().map(|failed| (failed.operator, failed.certain)).collect()
    }

    #[test]
    fn an_operator_that_fails_is_named_and_can_be_left_out() {
        let collection = small();
        let (folder, mut store) = store("failed", &collection);
        let wrong = |k: u32| (k == 2).then(|| Error::Device("no memory".into()));
        let (result, taken) = run(&collection, &mut store, 1, wrong);
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with("operator 2 (layers 2, base_channels 16, "), "{message}");
        assert!(message.ends_with(": no memory"), "{message}");
        assert_eq!((taken, numbers(&folder)), (vec![0, 1, 2], vec![(2, true)]));
        let mut store = Shards::open(&folder).unwrap();
        assert_eq!(store.done(), [true, true, false, false, false, false]);
        // It fails again, before anything else is tried.
        let (result, taken) = run(&collection, &mut store, 2, wrong);
        assert!(result.is_err() && taken == [2], "{taken:?}");
        let skipping = collection.clone().skipping_failed(true);
        let (result, taken) = run(&skipping, &mut store, 1, wrong);
        assert_eq!((result.unwrap().operators, taken, numbers(&folder)), (3, vec![3, 4, 5], vec![(2, true)]));
        assert!(folder.join("stats.json").exists(), "of the operators that are there");
        // What failed can be made later, and nothing of the failure stays.
        let (result, taken) = run(&collection, &mut store, 1, |_| None);
        assert_eq!((result.unwrap().operators, taken, numbers(&folder)), (1, vec![2], vec![]));
        assert!(folder.join("stats.json").exists() && !folder.join("failed.json").exists());
        assert!(Shards::open(&folder).unwrap().damaged().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_new_run_leaves_out_each_operator_that_fails() {
        let collection = small().skipping_failed(true);
        let (folder, mut store) = store("left-out", &collection);
        let (result, _) = run(&collection, &mut store, 2, |k| (k % 2 == 1).then(|| Error::Env("odd".into())));
        assert_eq!(result.unwrap().operators, 3);
        assert_eq!(numbers(&folder), [(1, true), (3, true), (5, true)]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A fault of the GPU shows in whatever runs at that moment: all of it is suspected, and tried one by one later.
    #[test]
    fn faults_are_traced_to_an_operator() {
        let collection = small();
        let (folder, mut store) = store("faults", &collection);
        let both = std::sync::Barrier::new(2);
        let fault = || Some(Error::DeviceFault("illegal address".into()));
        let (result, _) = run(&collection, &mut store, 2, |k| {
            if k < 2 {
                both.wait();
            }
            if k < 2 { fault() } else { None }
        });
        let error = result.unwrap_err();
        assert_eq!(error, Error::DeviceFault("illegal address; operators 0, 1 ran at that moment".into()));
        assert_eq!(numbers(&folder), [(0, false), (1, false)]);
        // Found, it ends a run that is not to go on past it.
        let (result, taken) = run(&collection, &mut store, 2, |k| if k == 0 { fault() } else { None });
        assert!(matches!(result.unwrap_err(), Error::Env(text) if text.starts_with("operator 0 (")));
        assert_eq!((taken, numbers(&folder)), (vec![0], vec![(0, true), (1, false)]));
        let skipping = collection.clone().skipping_failed(true);
        let (result, taken) = run(&skipping, &mut store, 2, |k| if k == 1 { fault() } else { None });
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::DeviceFault(text) if text.starts_with("operator 1 (")), "{error}");
        assert_eq!((taken, numbers(&folder)), (vec![1], vec![(0, true), (1, true)]));
        // The process is of no more use; the next one goes on past it.
        let mut store = Shards::open(&folder).unwrap();
        let (result, mut taken) = run(&skipping, &mut store, 2, |_| None);
        taken.sort_unstable();
        assert_eq!((result.unwrap().operators, taken), (4, vec![2, 3, 4, 5]));
        assert!(store.done()[2..].iter().all(|&done| done));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
