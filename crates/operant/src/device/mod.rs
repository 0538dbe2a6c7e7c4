//! The machine: worker threads, matrix products, allocation counting, CPU time and a line that describes it all.

pub mod alloc;
pub mod gemm;
mod machine;
mod pool;

pub use machine::{cpu_seconds, describe, threads_available};
pub use pool::CpuPool;
