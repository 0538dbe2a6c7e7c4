//! The machine: worker threads, allocation counting, CPU time and a line that describes it all.

pub mod alloc;
mod machine;
mod pool;

pub use machine::{cpu_seconds, describe, threads_available};
pub use pool::CpuPool;
