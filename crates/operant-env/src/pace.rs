//! Whether a step is worth sharing among threads: asked of the clock, not guessed from the number of envs.

use std::time::Instant;

/// Most parts that a step is split into.
pub(super) const MAX_PARTS: usize = 64;
/// Work worth handing to another thread, in nanoseconds: two threads were measured to break even with one where a step
/// takes 4 to 13 µs alone, depending on the env (docs/results.md).
const MIN_PART_NS: f64 = 5_000.0;
/// Steps that are timed before the first is shared.
const TIMED_STEPS: u32 = 8;

/// How long steps take on one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    always_split: bool,
    fastest_ns: f64,
    timed: u32,
}

impl Pace {
    /// With `always_split` every step is shared by all threads.
    pub(super) fn new(always_split: bool) -> Self {
        Self { always_split, fastest_ns: f64::INFINITY, timed: 0 }
    }

    /// Parts that the next step is worth splitting into.
    pub(super) fn parts(&self, threads: usize) -> usize {
        let most = threads.min(MAX_PARTS);
        if self.always_split {
            most
        } else if self.timed < TIMED_STEPS {
            1
        } else {
            most.min((self.fastest_ns / MIN_PART_NS) as usize).max(1)
        }
    }

    /// The time, if the step about to begin is to be timed.
    pub(super) fn start(&self, threads: usize) -> Option<Instant> {
        (threads > 1 && !self.always_split && self.timed < TIMED_STEPS).then(Instant::now)
    }

    /// Notes the end of a step that began at `start`.
    pub(super) fn note(&mut self, start: Option<Instant>) {
        if let Some(start) = start {
            self.fastest_ns = self.fastest_ns.min(start.elapsed().as_nanos() as f64);
            self.timed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn after_steps_of(time: Duration) -> Pace {
        let mut pace = Pace::new(false);
        for _ in 0..TIMED_STEPS {
            assert_eq!(pace.parts(8), 1, "nothing is shared before it was timed");
            assert!(pace.start(8).is_some());
            pace.note(Instant::now().checked_sub(time));
        }
        pace
    }

    #[test]
    fn short_steps_stay_on_one_thread_and_long_ones_are_shared() {
        assert_eq!(after_steps_of(Duration::from_nanos(900)).parts(8), 1);
        assert!((2..=4).contains(&after_steps_of(Duration::from_micros(13)).parts(8)));
        let long = after_steps_of(Duration::from_millis(5));
        assert_eq!((long.parts(8), long.parts(1), long.parts(1000)), (8, 1, MAX_PARTS));
        assert!(long.start(8).is_none(), "timing ends");
        assert_eq!(Pace::new(true).parts(3), 3);
    }
}
