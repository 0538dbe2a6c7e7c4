//! What of CUDA was found, what is missing and how to get it: `operant doctor`, and every failure to use a GPU.
#![allow(unsafe_code)]

use super::driver::{Driver, driver};
use super::gpu::{self, Gpu, GpuInfo, Params};
use super::library::{self, Wanted};
use super::memory::{Buffer, DevicePtr, size};
use super::nvrtc::nvrtc;
use super::{Graph, cache};
use operant_base::{Error, Result};
use operant_lanes::Math;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fmt;
use std::path::PathBuf;

/// The least compute capability that kernels are written for.
pub(super) const LEAST_CAPABILITY: (i32, i32) = (8, 0);

/// One library.
#[derive(Clone, Debug)]
pub struct Part {
    /// As people call it.
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Whether `--device cuda` needs it.
    pub needed: bool,
    /// Its version, if it was found.
    pub version: Option<String>,
    /// Where it lies.
    pub path: Option<PathBuf>,
    /// What is wrong and what to do about it.
    pub problem: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Driver, NVRTC, cuBLASLt, cuDNN.
    pub parts: Vec<Part>,
    /// GPUs with their free memory in bytes.
    pub gpus: Vec<(GpuInfo, usize)>,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
    /// What keeps `--device cuda` from working, with the remedy; empty if it works.
    pub problems: Vec<String>,
}

/// 13020 as "13.2".
pub(super) fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

pub(super) fn driver_missing(error: &str) -> String {
    format!(
        "NVIDIA driver: {error}; install the driver of your GPU (https://www.nvidia.com/drivers), or run on a machine that has one"
    )
}

pub(super) fn nvrtc_missing(error: &str) -> String {
    format!(
        "NVRTC: {error}; pip install nvidia-cuda-nvrtc, or install the CUDA toolkit, or name its folder in OPERANT_CUDA_LIBS"
    )
}

/// What is wrong with a compiler whose code this driver can't load.
pub(super) fn nvrtc_too_new(driver: &Driver, (major, minor): (i32, i32)) -> Option<String> {
    (major > driver.version / 1000).then(|| {
        format!(
            "NVRTC {major}.{minor} is newer than the driver, which is for CUDA {}; update the driver, or pip install nvidia-cuda-nvrtc-cu{}",
            version(driver.version),
            driver.version / 1000
        )
    })
}

pub(super) fn gpu_missing(index: usize, count: usize) -> String {
    match count {
        0 => "no GPU: the driver shows none; see that nvidia-smi lists it and CUDA_VISIBLE_DEVICES does not hide it"
            .into(),
        1 => format!("no GPU cuda:{index}: the driver shows one, cuda:0"),
        _ => format!("no GPU cuda:{index}: the driver shows {count}, cuda:0 to cuda:{}", count - 1),
    }
}

/// The error of `--device cuda`.
pub(super) fn unusable(problems: &[String]) -> Error {
    Error::Device(format!("cuda cannot be used here: {} (operant doctor)", problems.join("; ")))
}

/// A library that only tells its version, as one number.
fn versioned(
    wanted: Wanted,
    function: &CStr,
    words: fn(usize) -> String,
) -> (Option<String>, Option<PathBuf>, Option<String>) {
    match library::find(wanted) {
        Err(error) => (None, None, Some(error)),
        Ok(library) => match library.symbol(function) {
            None => (None, None, Some(format!("it has no {}", function.to_string_lossy()))),
            Some(address) => {
                // SAFETY: both libraries document this function as taking nothing and giving a size_t.
                let number =
                    unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn() -> usize>(address)() };
                (Some(words(number)), library.path(function), None)
            }
        },
    }
}

impl Report {
    /// Looks at this machine: opens every library, and runs a small kernel if there is a GPU.
    pub fn look() -> Self {
        let mut problems = Vec::new();
        let driver = driver();
        let nvrtc = nvrtc();
        let driver_problem = driver.as_ref().err().map(|error| driver_missing(error));
        let mut nvrtc_problem = nvrtc.as_ref().err().map(|error| nvrtc_missing(error));
        if let (Ok(driver), Ok(nvrtc)) = (&driver, &nvrtc) {
            nvrtc_problem = nvrtc_too_new(driver, nvrtc.version);
        }
        problems.extend(driver_problem.clone());
        problems.extend(nvrtc_problem.clone());
        let mut gpus = Vec::new();
        if let Ok(driver) = &driver {
            gpus = look_at_gpus(driver, &mut problems);
        }
        if problems.is_empty()
            && let Some((gpu, _)) = gpus.iter().find(|(gpu, _)| too_old(gpu).is_none())
            && let Err(error) = smoke(gpu.index)
        {
            problems.push(format!("kernels: {error}"));
        }
        let optional =
            |problem: Option<String>, package: &str| problem.map(|error| format!("{error}; pip install {package}"));
        let lt = versioned(Wanted::CublasLt, c"cublasLtGetVersion", |n| {
            format!("{}.{}.{}", n / 10000, n / 100 % 100, n % 100)
        });
        let cudnn =
            versioned(Wanted::Cudnn, c"cudnnGetVersion", |n| format!("{}.{}.{}", n / 10000, n / 100 % 100, n % 100));
        let parts = vec![
            Part {
                name: "driver",
                purpose: "runs kernels",
                needed: true,
                version: driver.as_ref().ok().map(|driver| format!("CUDA {}", version(driver.version))),
                path: driver.as_ref().ok().and_then(|driver| driver.path.clone()),
                problem: driver_problem,
            },
            Part {
                name: "NVRTC",
                purpose: "compiles kernels",
                needed: true,
                version: nvrtc.as_ref().ok().map(|nvrtc| format!("{}.{}", nvrtc.version.0, nvrtc.version.1)),
                path: nvrtc.as_ref().ok().and_then(|nvrtc| nvrtc.path.clone()),
                problem: nvrtc_problem,
            },
            Part {
                name: "cuBLASLt",
                purpose: "products of large networks",
                needed: false,
                version: lt.0,
                path: lt.1,
                problem: optional(lt.2, "nvidia-cublas"),
            },
            Part {
                name: "cuDNN",
                // Convolutions of growth and of operators are two and more times as fast by kernels of our own (docs/results.md).
                purpose: "not used",
                needed: false,
                version: cudnn.0,
                path: cudnn.1,
                problem: None,
            },
        ];
        Self { parts, gpus, cache: cache::folder(), problems }
    }

    /// Whether `--device cuda` works here.
    pub fn usable(&self) -> bool {
        self.problems.is_empty()
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let parts: serde_json::Map<String, Value> = self
            .parts
            .iter()
            .map(|part| {
                let Part { name, purpose, needed, version, path, problem } = part;
                let value = json!({
                    "found": version.is_some(), "needed": needed, "purpose": purpose, "version": version,
                    "path": text(path), "problem": problem,
                });
                (name.to_lowercase(), value)
            })
            .collect();
        let gpus: Vec<Value> = self
            .gpus
            .iter()
            .map(|(gpu, free)| {
                json!({
                    "device": format!("cuda:{}", gpu.index), "name": gpu.name,
                    "compute_capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                    "multiprocessors": gpu.multiprocessors, "memory_bytes": gpu.memory_bytes, "free_bytes": free,
                    "l2_bytes": gpu.l2_bytes,
                })
            })
            .collect();
        json!({
            "usable": self.usable(), "problems": self.problems, "gpus": gpus, "libraries": parts,
            "kernel_cache": text(&self.cache),
        })
    }
}

/// Why no kernel is written for a GPU, if so.
pub(super) fn too_old(gpu: &GpuInfo) -> Option<String> {
    let ((major, minor), (least, part)) = (gpu.capability, LEAST_CAPABILITY);
    let (index, name) = (gpu.index, &gpu.name);
    (gpu.capability < LEAST_CAPABILITY)
        .then(|| format!("cuda:{index}, {name}, has compute capability {major}.{minor}; wanted {least}.{part} or more"))
}

/// The GPUs with their free memory; notes if there is none that kernels can run on.
fn look_at_gpus(driver: &Driver, problems: &mut Vec<String>) -> Vec<(GpuInfo, usize)> {
    let gpus = match gpu::list(driver) {
        Ok(gpus) => gpus,
        Err(error) => {
            problems.push(error.to_string());
            return Vec::new();
        }
    };
    if gpus.is_empty() {
        problems.push(gpu_missing(0, 0));
    }
    let old: Vec<String> = gpus.iter().filter_map(too_old).collect();
    // One that can be used is enough: the others are named where they are asked for.
    if old.len() == gpus.len() {
        problems.extend(old);
    }
    let free = |gpu: &GpuInfo| Gpu::open_any(gpu.index, 1).and_then(|gpu| gpu.memory()).map_or(0, |(free, _)| free);
    gpus.into_iter()
        .map(|gpu| {
            let free = free(&gpu);
            (gpu, free)
        })
        .collect()
}

/// The argument of [`smoke`]'s kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Smoke {
    out: DevicePtr,
    add: u64,
}

impl Params for Smoke {}

/// Compiles, launches and reads back a small kernel, once by itself and once in a graph.
fn smoke(index: usize) -> Result<()> {
    const SOURCE: &str = "struct Smoke { unsigned long long *out, add; };
extern \"C\" __global__ void smoke(const Smoke a) { a.out[threadIdx.x] += threadIdx.x + a.add; }
";
    let gpu = Gpu::open(index)?;
    let kernel = gpu.load("doctor", SOURCE, Math::Strict)?.kernel::<Smoke>("smoke")?;
    let buffer = Buffer::<u64>::new(&gpu, 32, "a test", "nothing")?;
    let params = Smoke { out: buffer.pointer(), add: 7 };
    kernel.launch(1, 32, &params)?;
    Graph::record(&gpu, || kernel.launch(1, 32, &params))?.launch()?;
    let mut out = [0; 32];
    buffer.download(0, &mut out)?;
    let right = (0..32).all(|i| out[i as usize] == 2 * (i + 7));
    if right { Ok(()) } else { Err(Error::Device(format!("a small kernel gave wrong numbers: {out:?}"))) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cuda: {}\n", if self.usable() { "can be used" } else { "cannot be used here" })?;
        for (gpu, free) in &self.gpus {
            let (major, minor) = gpu.capability;
            writeln!(
                f,
                "cuda:{}  {}, compute capability {major}.{minor}, {} multiprocessors, {} ({} free)",
                gpu.index,
                gpu.name,
                gpu.multiprocessors,
                size(gpu.memory_bytes),
                size(*free)
            )?;
        }
        for part in &self.parts {
            let Part { name, purpose, version, path, problem, needed } = part;
            let version = version.as_deref().unwrap_or(if *needed { "missing" } else { "not found" });
            let path = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            writeln!(f, "{name:9} {version:12} {purpose:28} {path}")?;
            if let Some(problem) = problem.as_ref().filter(|_| !needed) {
                writeln!(f, "          {problem}")?;
            }
        }
        let cache =
            self.cache.as_ref().map_or("none: set HOME or XDG_CACHE_HOME".into(), |path| path.display().to_string());
        writeln!(f, "kernels   kept in {cache}")?;
        if !self.usable() {
            writeln!(f, "\nto use a GPU:")?;
            for problem in &self.problems {
                writeln!(f, "- {problem}")?;
            }
        }
        Ok(())
    }
}
