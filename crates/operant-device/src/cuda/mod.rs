//! NVIDIA GPUs, found at run time: one build serves machines with and without one.
//!
//! - `library`: where the driver, NVRTC, cuBLASLt and cuDNN may lie, and how they are opened
//! - `driver`, `nvrtc`: the few functions of each that are called
//! - `blas`: matrix products by cuBLASLt
//! - `cache`: compiled kernels, kept per user
//! - `gpu`: a GPU with its stream; modules, kernels and launches
//! - `memory`, `graph`: buffers; recorded sequences of launches, events
//! - `tensor_map`: descriptions of tensors for the copy engine of Hopper GPUs
//! - `report`: what was found, what is missing and how to get it
//!
//! Invariant: a missing library is an error with its remedy, never a panic. Kernels touch device memory alone, so a wrong
//! kernel is a fault that the next call reports and never harms this process's memory.

mod blas;
mod cache;
mod driver;
mod gpu;
mod graph;
mod library;
mod memory;
mod nvrtc;
mod pool;
mod report;
mod tensor_map;

pub use blas::{Blas, Gemm, Matrix, Operands, Product};
pub use gpu::{Gpu, GpuInfo, Kernel, Module, Params};
pub use graph::{Event, Graph};
pub use library::add_folder;
pub use memory::{Buffer, DevicePtr, Element, HostBuffer};
pub use nvrtc::compile;
pub use report::{Part, Report};
pub use tensor_map::{TensorMap, TensorNumbers};
