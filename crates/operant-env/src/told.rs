//! What envs tell beside rewards: events in words, and numbers of which a run keeps means.

use operant_base::telemetry::EventKind;

/// Events and numbers that nobody has taken yet.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Events: kind and text.
    pub events: Vec<(EventKind, String)>,
    /// Name, sum and count of each number.
    numbers: Vec<(&'static str, f64, u32)>,
}

impl Told {
    /// Adds an event.
    pub fn event(&mut self, kind: EventKind, text: String) {
        self.events.push((kind, text));
    }

    /// Adds to the mean of a number; without a value it is only made known. An env names all that it will ever tell at once,
    /// when its episode begins, so that a run has a place for each.
    pub fn number(&mut self, name: &'static str, value: Option<f32>) {
        self.add(name, value.map_or(0.0, f64::from), u32::from(value.is_some()));
    }

    fn add(&mut self, name: &'static str, sum: f64, count: u32) {
        match self.numbers.iter_mut().find(|number| number.0 == name) {
            Some(known) => (known.1, known.2) = (known.1 + sum, known.2 + count),
            None => self.numbers.push((name, sum, count)),
        }
    }

    /// Takes all that another holds, of the env of this number; the other keeps the names of its numbers.
    pub fn take(&mut self, env: usize, other: &mut Self) {
        self.events.extend(other.events.drain(..).map(|(kind, text)| (kind, format!("env {env}: {text}"))));
        for (name, sum, count) in &mut other.numbers {
            self.add(name, std::mem::take(sum), std::mem::take(count));
        }
    }

    /// Forgets all but the names of numbers.
    pub fn clear(&mut self) {
        self.events.clear();
        self.numbers.iter_mut().for_each(|(_, sum, count)| (*sum, *count) = (0.0, 0));
    }

    /// Names of numbers, in the order of their means.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.numbers.iter().map(|number| number.0)
    }

    /// Means of numbers since the last call; NaN where nothing was told.
    pub fn take_means(&mut self) -> impl Iterator<Item = f64> {
        self.numbers.iter_mut().map(|(_, sum, count)| std::mem::take(sum) / f64::from(std::mem::take(count)))
    }
}
