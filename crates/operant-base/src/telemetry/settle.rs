//! Waits until what the loop sampled so far is in files, so that a checkpoint is never ahead of the curve that leads to it.
//!
//! Invariant: a sink that did not answer in time is not asked again before it has answered, so one that hangs costs a run
//! one limit and not one at every checkpoint.

use super::Board;
use super::drain::Message;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

impl Board {
    /// Has every sink that keeps files write what was published before this call, and waits for that, for `limit` at most.
    /// Gives the names of those that took longer; they are passed over until they have caught up.
    pub fn settle(&mut self, limit: Duration) -> Vec<&str> {
        let (answer, answers) = mpsc::channel();
        let mut waiting = Vec::new();
        for (index, (sink, sender)) in self.sinks.iter().zip(self.senders.iter()).enumerate() {
            if !sink.keeps_files || sink.asked.load(Ordering::Relaxed) != sink.answered.load(Ordering::Acquire) {
                continue;
            }
            // A sink that failed has no receiver any more.
            if sender.send(Message::Settle(answer.clone())).is_ok() {
                sink.asked.fetch_add(1, Ordering::Relaxed);
                waiting.push(index);
            }
        }
        drop(answer);
        let deadline = Instant::now() + limit;
        while !waiting.is_empty() {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(index) => waiting.retain(|other| *other != index),
                // Those that have not answered failed, which their drops say.
                Err(mpsc::RecvTimeoutError::Disconnected) => waiting.clear(),
                Err(mpsc::RecvTimeoutError::Timeout) => break,
            }
        }
        waiting.iter().map(|index| self.sinks[*index].name.as_str()).collect()
    }
}
