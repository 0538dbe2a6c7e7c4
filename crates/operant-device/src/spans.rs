//! Spans of time that one owner notes: totals by kind, and the spans themselves as far as there is room for them.
//!
//! Off, a note costs one branch. On, it reads the clock twice and allocates nothing: room is made before, and a span that
//! finds none is counted as dropped. Totals are of all spans, kept or dropped.

use super::thread_number;
use std::time::Instant;

/// One stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds from the origin to its start.
    pub start: u64,
    /// Nanoseconds that it lasted.
    pub nanoseconds: u64,
    /// What was done.
    pub kind: u32,
    /// The pool's number of the thread that did it; 0 is the caller's.
    pub thread: u32,
}

/// All spans of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Nanoseconds.
    pub nanoseconds: u64,
    /// Spans.
    pub calls: u64,
}

/// What one owner noted.
#[derive(Clone, Debug)]
pub struct Spans {
    on: bool,
    origin: Instant,
    totals: Vec<Total>,
    kept: Vec<Span>,
    dropped: u64,
}

impl Spans {
    /// For so many kinds; off.
    pub fn new(kinds: usize) -> Self {
        Self { on: false, origin: Instant::now(), totals: vec![Total::default(); kinds], kept: Vec::new(), dropped: 0 }
    }

    /// Forgets what was noted and begins, or stops. Only totals are kept.
    pub fn set_on(&mut self, on: bool) {
        self.start(self.origin, 0);
        self.on = on;
    }

    /// Forgets what was noted and begins, with room for so many spans, counted from `origin`.
    pub fn start(&mut self, origin: Instant, room: usize) {
        (self.on, self.origin, self.dropped) = (true, origin, 0);
        self.totals.fill(Total::default());
        self.kept = Vec::with_capacity(room);
    }

    /// Stops, and keeps what was noted.
    pub fn stop(&mut self) {
        self.on = false;
    }

    /// The time, if spans are noted: where one starts.
    #[inline]
    pub fn begin(&self) -> Option<Instant> {
        if self.on { Some(Instant::now()) } else { None }
    }

    /// Notes a span that ends now.
    #[inline]
    pub fn end(&mut self, kind: usize, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.note(kind, begun, Instant::now());
        }
    }

    /// Notes a span between two times, if spans are noted.
    pub fn note(&mut self, kind: usize, begun: Instant, ended: Instant) {
        if !self.on {
            return;
        }
        let start = begun.saturating_duration_since(self.origin).as_nanos() as u64;
        let nanoseconds = ended.saturating_duration_since(begun).as_nanos() as u64;
        let total = &mut self.totals[kind];
        (total.nanoseconds, total.calls) = (total.nanoseconds + nanoseconds, total.calls + 1);
        if self.kept.len() == self.kept.capacity() {
            self.dropped += 1;
        } else {
            self.kept.push(Span { start, nanoseconds, kind: kind as u32, thread: thread_number() as u32 });
        }
    }

    /// By kind.
    pub fn totals(&self) -> &[Total] {
        &self.totals
    }

    /// In the order in which they ended.
    pub fn kept(&self) -> &[Span] {
        &self.kept
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn totals_count_what_found_no_room() {
        let mut spans = Spans::new(2);
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        spans.note(0, at(0), at(1));
        assert!(spans.totals()[0].calls == 0 && spans.begin().is_none(), "off");
        spans.start(origin, 2);
        assert!(spans.begin().is_some());
        for (kind, begun, ended) in [(1, 3, 4), (0, 2, 5), (1, 6, 8)] {
            spans.note(kind, at(begun), at(ended));
        }
        let room = spans.kept.capacity();
        assert!(room == 2 && spans.kept().len() == 2 && spans.dropped() == 1);
        assert_eq!(spans.kept()[1], Span { start: 2_000_000, nanoseconds: 3_000_000, kind: 0, thread: 0 });
        assert_eq!(spans.totals()[1], Total { nanoseconds: 3_000_000, calls: 2 });
        spans.stop();
        spans.note(1, at(0), at(9));
        assert_eq!(spans.totals()[1].calls, 2);
        spans.set_on(true);
        assert!(spans.kept().is_empty() && spans.totals()[1].calls == 0);
    }
}
