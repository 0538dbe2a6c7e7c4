//! The machine: worker threads, matrix products, allocation counting, CPU time, spans of time, and a line that describes it all.

mod aligned;
pub mod alloc;
pub mod gemm;
mod machine;
mod pool;
mod spans;

pub use aligned::Aligned;
pub use machine::{available_bytes, cpu_seconds, describe, resident_bytes, threads_available};
pub use pool::{CpuPool, thread_number};
pub use spans::{Span, Spans, Total};
