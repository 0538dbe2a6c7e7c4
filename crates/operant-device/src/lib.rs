//! The machine: worker threads, matrix products, GPUs, allocation counting, CPU time, spans of time, and a line that describes it all.

mod aligned;
pub mod alloc;
pub mod cuda;
mod folders;
pub mod gemm;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
pub mod images;
mod machine;
mod mapped;
mod parts;
mod pool;
mod prefetch;
mod spans;

pub use aligned::Aligned;
pub use folders::exchange_folders;
pub use machine::{
    Room, available_bytes, check_room, cpu_seconds, describe, resident_bytes, room, survive_file_size_limit,
    threads_available,
};
pub use mapped::MappedNumbers;
pub use parts::Part;
pub use parts::{PartPasses, PartWork, TwoPasses};
pub use pool::{CpuPool, Pass, thread_number};
use prefetch::Later;
pub use prefetch::{prefetch, prefetch_to_write, read_later};
pub use prefetch::{prefetch_all_to_write, prefetch_from};
pub use spans::{Span, Spans, Total};

use operant_base::{Error, Result};
use std::sync::Arc;

/// Where envs and networks live.
#[derive(Clone, Debug, Default)]
pub enum Device {
    /// The CPU's memory and threads.
    #[default]
    Cpu,
    /// A GPU's.
    Cuda(Arc<cuda::Gpu>),
}

impl Device {
    /// The device of this name: `cpu`, `cuda` (the first GPU) or `cuda:i`. A GPU that cannot be used says what is missing.
    pub fn named(name: &str) -> Result<Self> {
        Self::among(name, 1)
    }

    /// The same for one of so many runs that use it at once: each has its share of a GPU.
    pub fn among(name: &str, at_once: usize) -> Result<Self> {
        let open = |index| cuda::Gpu::open_among(index, at_once).map(Self::Cuda);
        Self::gpu_index(name)?.map_or(Ok(Self::Cpu), open)
    }

    /// The GPU that a name means, if it means one; says so if it means nothing. Opens nothing.
    pub fn gpu_index(name: &str) -> Result<Option<usize>> {
        let index = match name.split_once(':') {
            _ if name == "cpu" => return Ok(None),
            _ if name == "cuda" => Some(0),
            Some(("cuda", index)) => index.parse().ok(),
            _ => None,
        };
        let words = "cpu, cuda or cuda:i";
        index.map(Some).ok_or_else(|| match name.to_lowercase().as_str() {
            // Nearer to "cpu" by letters.
            "gpu" | "nvidia" => Error::Unknown(format!("unknown device \"{name}\"; did you mean \"cuda\"? ({words})")),
            _ => Error::unknown("device", name, ["cpu", "cuda", "cuda:0"], words),
        })
    }

    /// As a word for reports.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu => "cpu".into(),
            Self::Cuda(gpu) => format!("cuda:{}", gpu.info().index),
        }
    }
}
