//! Growth's events read back from a run's words: changes of stages, and what episodes ended with.

use operant::telemetry::{Event, EventKind};

/// A slot's stage changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) env: usize,
    pub(crate) epoch: u32,
    pub(crate) slot: usize,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) blueprint: Option<String>,
}

/// An episode ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) env: usize,
    pub(crate) accuracy: f64,
    pub(crate) fossils: u32,
    pub(crate) parameters: u64,
}

/// The number and the rest of `env 3: …`.
pub(crate) fn of_env(text: &str) -> Option<(usize, &str)> {
    let (env, rest) = text.strip_prefix("env ")?.split_once(": ")?;
    Some((env.parse().ok()?, rest))
}

/// `env 0: epoch 1, slot 2: dormant to germinated conv_light`
pub(crate) fn change(event: &Event) -> Option<Change> {
    let (env, rest) = of_env(&event.text).filter(|_| event.kind == EventKind::Lifecycle)?;
    let (epoch, rest) = rest.strip_prefix("epoch ")?.split_once(", slot ")?;
    let (slot, rest) = rest.split_once(": ")?;
    let mut words = rest.split(' ');
    let (from, _, to) = (words.next()?.to_owned(), words.next()?, words.next()?.to_owned());
    let blueprint = words.next().map(str::to_owned);
    Some(Change { env, epoch: epoch.parse().ok()?, slot: slot.parse().ok()?, from, to, blueprint })
}

/// `env 0: accuracy 71.5 %, 2 fossils, 5840 parameters of seeds`
pub(crate) fn outcome(event: &Event) -> Option<Outcome> {
    let (env, rest) = of_env(&event.text).filter(|_| event.kind == EventKind::Outcome)?;
    let (accuracy, rest) = rest.strip_prefix("accuracy ")?.split_once(" %, ")?;
    let (fossils, rest) = rest.split_once(" fossils, ")?;
    let parameters = rest.strip_suffix(" parameters of seeds")?.parse().ok()?;
    Some(Outcome { env, accuracy: accuracy.parse().ok()?, fossils: fossils.parse().ok()?, parameters })
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant::env::growth::{Choice, Op};
    use operant::env::{Growth, HostEnv, Params, Told};
    use operant::lanes::rng::HostRng;

    /// What the env says is understood, to the last word.
    #[test]
    fn words_of_the_env_are_understood() {
        let mut env = Growth::default();
        for (name, value) in [("epochs", 3.0), ("train_samples", 16.0), ("val_samples", 8.0), ("side", 4.0)] {
            env.set(name, value).unwrap();
        }
        env.reset(&mut HostRng::new(1, 0, 0, 0));
        let (mut own, mut told) = (Told::default(), Told::default());
        let germinate = Choice { op: Op::Germinate as usize, slot: 1, blueprint: 6, ..Choice::default() };
        for choice in [germinate, Choice::default(), Choice::default()] {
            env.choose(&choice);
            env.tell(&mut own);
        }
        told.take(7, &mut own);
        let events: Vec<Event> = told.events.into_iter().map(|(kind, text)| Event::now(kind, 0, text)).collect();
        let changes: Vec<Change> = events.iter().filter_map(change).collect();
        let outcomes: Vec<Outcome> = events.iter().filter_map(outcome).collect();
        assert_eq!(changes.len() + outcomes.len(), events.len(), "{events:?}");
        let first = Change {
            env: 7,
            epoch: 1,
            slot: 1,
            from: "dormant".into(),
            to: "germinated".into(),
            blueprint: Some("conv_small".into()),
        };
        assert_eq!((&changes[0], outcomes.len()), (&first, 1));
        assert!((outcomes[0].env, outcomes[0].fossils) == (7, 0) && outcomes[0].parameters > 0);
        assert_eq!(change(&Event::now(EventKind::Note, 0, "env 0: epoch 1, slot 2: a to b")), None);
    }
}
