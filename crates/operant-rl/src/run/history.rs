//! Settings that were changed on the way, as a `run.toml` holds them: it repeats its run, changes and all.
//!
//! Invariant: the settings of the file are those of the run's end. Each change holds what was in force before it, where that
//! differs from what was in force after it, so that going back through the changes gives the settings of any step.

use super::changed::{describe, differences};
use super::{Config, Run, build_algorithm, build_env, build_pool};
use operant_base::config::{self, Table, Value};
use operant_base::telemetry::EventKind;
use operant_base::{Error, Result};
use std::sync::Arc;

/// The key of the list of changes.
pub(super) const KEY: &str = "changed";
/// Settings that do not change what a run learns.
const WITHOUT_EFFECT: [&str; 5] = ["until", "threads", "task_data", "checkpoint.", "eval."];

/// Settings were changed when so many env steps were done.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Env steps.
    pub step: u64,
    /// What was in force before, in tables as in `run.toml`.
    pub before: Table,
}

fn matters(key: &str) -> bool {
    !WITHOUT_EFFECT.iter().any(|other| key == *other || other.ends_with('.') && key.starts_with(other))
}

/// Reads the list of changes.
pub(super) fn read(value: Option<Value>) -> Result<Vec<Change>> {
    let wrong =
        || Error::Invalid(format!("{KEY}: wanted a list of tables with step and before, as a run's run.toml has it"));
    let Some(value) = value else { return Ok(Vec::new()) };
    let read = |entry: &Value| {
        let step = entry.get("step").and_then(Value::as_integer).and_then(|step| u64::try_from(step).ok());
        let before = entry.get("before").and_then(Value::as_table).cloned();
        Some(Change { step: step?, before: before? })
    };
    let list: Option<Vec<Change>> = value.as_array().ok_or_else(wrong)?.iter().map(read).collect();
    list.filter(|list| list.is_sorted_by_key(|change| change.step)).ok_or_else(wrong)
}

/// The first steps of a list, which may be long.
fn named_steps(steps: &[String]) -> String {
    const NAMED: usize = 5;
    match steps.len().saturating_sub(NAMED) {
        0 => steps.join(" and "),
        more => format!("{} and {more} more times", steps[..NAMED].join(", ")),
    }
}

/// The list of changes as a value, and a comment for those who read the file.
pub(super) fn write(changes: &[Change]) -> (Value, String) {
    let entry = |change: &Change| {
        let step = Value::Integer(change.step as i64);
        Value::Table(Table::from_iter([
            ("step".to_owned(), step),
            ("before".into(), Value::Table(change.before.clone())),
        ]))
    };
    let steps: Vec<String> = changes.iter().map(|change| change.step.to_string()).collect();
    let comment = format!(
        "# Settings were changed when {} env steps were done; [[{KEY}]] holds those from before.\n\
         # operant train --config with this file repeats what the run learned, changes and all.\n\n",
        named_steps(&steps)
    );
    (Value::Array(changes.iter().map(entry).collect()), comment)
}

/// Takes settings that a user gives for the whole of a run out of the changes that its file lists.
pub fn forget_changes(file: &mut Table, over: &Table) {
    fn without(table: &mut Table, over: &Table) {
        for (key, value) in over {
            match (table.get_mut(key), value) {
                (Some(Value::Table(inner)), Value::Table(over)) => without(inner, over),
                _ => drop(table.remove(key)),
            }
        }
        table.retain(|_, value| value.as_table().is_none_or(|inner| !inner.is_empty()));
    }
    let Some(Value::Array(changes)) = file.get_mut(KEY) else { return };
    for change in changes.iter_mut() {
        if let Some(before) = change.get_mut("before").and_then(Value::as_table_mut) {
            without(before, over);
        }
    }
    changes.retain(|change| change.get("before").and_then(Value::as_table).is_none_or(|before| !before.is_empty()));
    if changes.is_empty() {
        file.remove(KEY);
    }
}

impl Config {
    /// The settings in force when so many env steps are done.
    pub fn at(&self, step: u64) -> Result<Self> {
        let last = Self { changed: Vec::new(), ..self.clone() };
        if self.passed(step) == self.changed.len() {
            return Ok(last);
        }
        let mut table = config::parse(&last.to_text(), "run.toml")?;
        for change in self.changed[self.passed(step)..].iter().rev() {
            config::merge(&mut table, change.before.clone());
        }
        Self::from_table(self.catalogue, table)
    }

    /// How many changes lie behind so many env steps.
    pub(super) fn passed(&self, step: u64) -> usize {
        self.changed.partition_point(|change| change.step <= step)
    }

    /// Notes how these settings differ from those of a checkpoint that a run goes on from. `replaced` are the settings that the user
    /// gave for the rest of the run: changes that came after the checkpoint do not come again. Says what differs, if anything does.
    pub(super) fn note_change(
        &mut self,
        then: &Self,
        step: u64,
        replaced: &Table,
        checkpoint: &str,
    ) -> Result<Option<String>> {
        let mut given = Vec::new();
        super::changed::flatten(replaced, "", &mut given);
        if given.iter().any(|(key, _)| matters(key)) {
            self.changed.truncate(self.passed(step));
        }
        let (before, after) = (then.at(step)?, self.at(step)?);
        let told = describe(&before, &after, checkpoint)?;
        self.push_change(&before, &after, step)?;
        Ok(told)
    }

    /// Refuses changes ahead of `step` that need envs made anew, where only Python can make them.
    pub(super) fn check_changes_ahead(&self, step: u64, checkpoint: &str) -> Result<()> {
        let needs_envs = |change: &&Change| change.before.keys().any(|key| key != "steps" && key != "until");
        match self.changed[self.passed(step)..].iter().find(needs_envs).filter(|_| self.is_brought()) {
            Some(change) => Err(Error::Invalid(format!(
                "{checkpoint}: settings changed at step {} of this run, which can't be repeated over envs from Python; \
                 resume from a checkpoint after that step, or give the settings to go on with",
                change.step
            ))),
            None => Ok(()),
        }
    }

    /// Whether what the run learns depends on how many env steps it is to make.
    fn has_schedules(&self) -> bool {
        (self.algorithm().has_schedules)(&self.own)
    }

    /// Lists a change from one set of settings to another, if what a run learns depends on it.
    pub(super) fn push_change(&mut self, before: &Self, after: &Self, step: u64) -> Result<()> {
        // Without schedules more steps go on as one longer run would.
        let scheduled = before.has_schedules() || after.has_schedules();
        let counts = |key: &String| matters(key) && (scheduled || key != "steps");
        let keys: Vec<String> = differences(before, after)?.into_iter().map(|(key, _)| key).filter(counts).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let all = config::parse(&before.to_text(), "run.toml")?;
        let mut kept = Table::new();
        for key in keys {
            let value = key.split('.').try_fold(&Value::Table(all.clone()), |at, part| at.get(part)).cloned();
            if let Some(value) = value {
                config::insert(&mut kept, &key, value)?;
            }
        }
        self.changed.truncate(self.passed(step));
        // No step lies between two changes at one: what was in force before the first of them counts.
        if let Some(first) = self.changed.pop_if(|change| change.step == step) {
            config::merge(&mut kept, first.before);
        }
        self.changed.push(Change { step, before: kept });
        Ok(())
    }
}

impl Run {
    /// Has the run end after so many env steps, and lists that as a change if it has begun.
    pub(super) fn extend(&mut self, steps: u64) -> Result<()> {
        let done = self.algorithm.steps();
        let before = self.config.at(done)?;
        self.config.settings.steps = steps;
        self.config.changed.truncate(self.changes_passed);
        if done > 0 {
            let after = self.config.at(done)?;
            self.config.push_change(&before, &after, done)?;
            self.changes_passed = self.config.changed.len();
        }
        self.algorithm.set_total_steps(steps);
        Ok(())
    }

    /// Puts settings in force that the run's file lists from here on.
    pub(super) fn follow_changes(&mut self) -> Result<()> {
        let steps = self.algorithm.steps();
        let passed = self.config.passed(steps);
        if passed == self.changes_passed {
            return Ok(());
        }
        let before = self.config.at(self.config.changed[self.changes_passed].step.saturating_sub(1))?;
        let after = self.config.at(steps)?;
        self.changes_passed = passed;
        let mut same = before.clone();
        (same.settings.steps, same.settings.until) = (after.settings.steps, after.settings.until);
        if same == after {
            self.algorithm.set_total_steps(after.settings.steps);
        } else {
            let parts = self.algorithm.save()?;
            let pool = build_pool(&after);
            let mut algorithm = build_algorithm(&after, build_env(&after, &pool)?, Arc::clone(&pool))?;
            algorithm.load(&parts)?;
            self.algorithm = algorithm;
            self.judge = self.judge.moved(&after, self.plays(), pool)?;
        }
        if let Some(told) = describe(&before, &after, &format!("step {steps}, as run.toml says"))? {
            self.board.event(EventKind::Note, steps, told);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::TESTED;

    fn with(words: &[&str]) -> Config {
        let mut table = Table::new();
        words.iter().for_each(|word| config::assign(&mut table, word).unwrap());
        Config::resolve(&TESTED, "ppo", "cartpole", table).unwrap()
    }

    fn over(words: &[&str]) -> Table {
        let mut table = Table::new();
        words.iter().for_each(|word| config::assign(&mut table, word).unwrap());
        table
    }

    /// Going back through changes gives what was in force, also after the text was read again.
    #[test]
    fn changes_give_the_settings_of_any_step() {
        let first = with(&["steps=1000", "ppo.learning_rate=0.001"]);
        let mut second = with(&["steps=2000", "ppo.learning_rate=0.001"]);
        let told = second.note_change(&first, 500, &over(&["steps=2000"]), "step-500").unwrap();
        assert!(told.unwrap().contains("steps 1000 -> 2000"));
        let mut third = Config { changed: second.changed.clone(), ..with(&["steps=2000", "ppo.learning_rate=0.5"]) };
        third.note_change(&second, 1500, &over(&["ppo.learning_rate=0.5"]), "step-1500").unwrap();
        let third = Config::from_text(&TESTED, &third.to_text(), "run.toml").unwrap();
        let at = |step| third.at(step).unwrap();
        assert_eq!((at(0), at(499)), (first.clone(), first.clone()));
        assert_eq!((at(500), at(1499)), (at(501), Config { changed: Vec::new(), ..second.clone() }));
        assert_eq!(at(1500), with(&["steps=2000", "ppo.learning_rate=0.5"]));
        assert!(third.to_text().starts_with("# Settings were changed when 500 and 1500 env steps were done"));
        // Threads and checkpoints change no result.
        let mut same = with(&["steps=1000", "ppo.learning_rate=0.001", "threads=3", "checkpoint.keep=9"]);
        assert!(same.note_change(&first, 500, &over(&["threads=3"]), "step-500").unwrap().is_some());
        assert!(same.changed.is_empty());
    }

    /// Without schedules a longer run is the same run; what is changed beside its steps is listed as ever.
    #[test]
    fn more_steps_alone_are_a_change_only_to_schedules() {
        let plain = |words: &[&str]| with(&[&["ppo.anneal_lr=false"], words].concat());
        let first = plain(&["steps=1000"]);
        let mut second = plain(&["steps=2000"]);
        assert!(second.note_change(&first, 1000, &over(&["steps=2000"]), "step-1000").unwrap().is_some());
        assert!(second.changed.is_empty());
        let mut third = with(&["steps=3000"]);
        third.note_change(&second, 2000, &over(&["steps=3000", "ppo.anneal_lr=true"]), "step-2000").unwrap();
        let then = third.at(1999).unwrap();
        assert_eq!((third.changed.len(), then.settings.steps, then), (1, 2000, second));
        for words in [&["ppo.anneal_clip=true"][..], &["ppo.anneal_ent=true"]] {
            let mut more = plain(&[&["steps=2000"], words].concat());
            more.push_change(&plain(&[&["steps=1000"], words].concat()), &more.clone(), 1000).unwrap();
            assert_eq!(more.changed.len(), 1, "{words:?}");
        }
    }

    /// Changes at one step are one, which goes back to what was in force before the first.
    #[test]
    fn changes_at_one_step_are_one() {
        let words = ["steps=1000", "ppo.learning_rate=0.001"];
        let (first, mut second) = (with(&words), with(&["steps=1000", "ppo.learning_rate=0.5"]));
        second.note_change(&first, 500, &over(&["ppo.learning_rate=0.5"]), "step-500").unwrap();
        for steps in [2000, 3000] {
            let before = second.clone();
            second.settings.steps = steps;
            second.push_change(&before, &second.clone(), 500).unwrap();
        }
        assert_eq!(
            (second.changed.len(), second.at(499).unwrap(), second.at(500).unwrap().settings.steps),
            (1, first, 3000)
        );
    }

    /// Who goes back to an older checkpoint with new settings leaves later changes behind; without, they come again.
    #[test]
    fn an_older_checkpoint_forgets_later_changes_only_for_new_settings() {
        let first = with(&["steps=1000"]);
        let mut second = with(&["steps=2000"]);
        second.note_change(&first, 800, &over(&["steps=2000"]), "step-800").unwrap();
        let mut again = second.clone();
        assert_eq!(again.note_change(&first, 300, &Table::new(), "step-300").unwrap(), None);
        assert_eq!(again, second);
        again.settings.steps = 5000;
        again.note_change(&first, 300, &over(&["steps=5000"]), "step-300").unwrap();
        assert_eq!(again.changed.iter().map(|change| change.step).collect::<Vec<_>>(), [300]);
        assert_eq!((again.at(299).unwrap().settings.steps, again.at(300).unwrap().settings.steps), (1000, 5000));
    }

    /// A setting that is given for the whole run has no other value on the way.
    #[test]
    fn settings_over_a_file_hold_for_the_whole_run() {
        let first = with(&["steps=1000", "ppo.learning_rate=0.001"]);
        let mut second = with(&["steps=2000", "ppo.learning_rate=0.5"]);
        second.note_change(&first, 500, &over(&["steps=2000", "ppo.learning_rate=0.5"]), "step-500").unwrap();
        let mut file = config::parse(&second.to_text(), "run.toml").unwrap();
        forget_changes(&mut file, &over(&["steps=3000"]));
        let kept = file[KEY][0]["before"].as_table().unwrap();
        assert!(kept.contains_key("ppo") && !kept.contains_key("steps"), "{kept}");
        forget_changes(&mut file, &over(&["ppo.learning_rate=1"]));
        assert!(!file.contains_key(KEY));
    }
}
