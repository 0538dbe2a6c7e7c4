//! Recorded sequences of launches, which start as one; and marks in a stream, to time what lies between.
#![allow(unsafe_code)]

use super::driver::{Handle, THREAD_LOCAL};
use super::gpu::{Gpu, Module};
use operant_base::Result;
use std::sync::Arc;

/// Launches, with their arguments, that start again as one.
pub struct Graph {
    gpu: Arc<Gpu>,
    handle: Handle,
    /// The code that it launches. Its buffers are the caller's to keep: without them it is a fault on the GPU.
    _modules: Vec<Module>,
}

// SAFETY: as for `Gpu`.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Graph {
    /// Records what `body` launches, without running it. `body` may not wait or copy from or to the host.
    pub fn record(gpu: &Arc<Gpu>, body: impl FnOnce() -> Result<()>) -> Result<Self> {
        let driver = gpu.driver;
        gpu.bind()?;
        let held = gpu.while_recording();
        // SAFETY: the stream is live.
        let status = unsafe { (driver.call.cuStreamBeginCapture_v2)(gpu.stream, THREAD_LOCAL) };
        driver.check("begin a graph", status)?;
        let modules = |now| gpu.recording.lock().map(|mut recording| std::mem::replace(&mut *recording, now));
        let _ = modules(Some(Vec::new()));
        let recorded = body();
        let modules = modules(None).ok().flatten().unwrap_or_default();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture has begun; it is ended also when the body failed.
        let ended = unsafe { (driver.call.cuStreamEndCapture)(gpu.stream, &mut graph) };
        drop(held);
        let mut handle = std::ptr::null_mut();
        let built = recorded.and_then(|()| {
            driver.check("end a graph", ended)?;
            // SAFETY: the graph is live.
            let status = unsafe { (driver.call.cuGraphInstantiateWithFlags)(&mut handle, graph, 0) };
            driver.check("build a graph", status)
        });
        if !graph.is_null() {
            // SAFETY: it is live, and what was built from it does not need it.
            let _ = unsafe { (driver.call.cuGraphDestroy)(graph) };
        }
        built?;
        Ok(Self { gpu: gpu.clone(), handle, _modules: modules })
    }

    /// Starts all of it after all work that came before.
    pub fn launch(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both are live.
        let status = unsafe { (self.gpu.driver.call.cuGraphLaunch)(self.handle, self.gpu.stream) };
        self.gpu.driver.check("launch a graph", status)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: it is live and not used again; work under way is finished first by the driver.
            let _ = unsafe { (self.gpu.driver.call.cuGraphExecDestroy)(self.handle) };
        }
    }
}

/// A mark in a stream's work.
pub struct Event {
    gpu: Arc<Gpu>,
    handle: Handle,
}

// SAFETY: as for `Gpu`.
unsafe impl Send for Event {}
// SAFETY: as for `Gpu`.
unsafe impl Sync for Event {}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Event")
    }
}

impl Event {
    /// A mark that is not set yet.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is live.
        gpu.driver.check("create an event", unsafe { (gpu.driver.call.cuEventCreate)(&mut handle, 0) })?;
        Ok(Self { gpu: gpu.clone(), handle })
    }

    /// Sets it behind all work so far.
    pub fn record(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both are live.
        let status = unsafe { (self.gpu.driver.call.cuEventRecord)(self.handle, self.gpu.stream) };
        self.gpu.driver.check("record an event", status)
    }

    /// Sets it behind all work so far, and has work from now on in another stream of the same GPU wait for it.
    pub fn precede(&self, other: &Gpu) -> Result<()> {
        self.record()?;
        self.hold_back(other)
    }

    /// Has work from now on in another stream of the same GPU wait for it as it was set last.
    pub fn hold_back(&self, other: &Gpu) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the event and the stream are live.
        let status = unsafe { (self.gpu.driver.call.cuStreamWaitEvent)(other.stream, self.handle, 0) };
        self.gpu.driver.check("have a stream wait", status)
    }

    /// Has another stream of this GPU, by its number, wait for all of our work so far. 1 and 2 are the driver's default streams.
    ///
    /// # Safety
    /// The number is 1, 2, or that of a live stream of this GPU.
    pub unsafe fn hold(&self, stream: u64) -> Result<()> {
        self.record()?;
        // SAFETY: the event is live, and the caller promises that the stream is.
        let status = unsafe { (self.gpu.driver.call.cuStreamWaitEvent)(stream as Handle, self.handle, 0) };
        self.gpu.driver.check("have a stream wait", status)
    }

    /// Has our work from now on wait for all that another stream of this GPU has been given.
    ///
    /// # Safety
    /// The number is 1, 2, or that of a live stream of this GPU.
    pub unsafe fn follow(&self, stream: u64) -> Result<()> {
        self.gpu.bind()?;
        let call = &self.gpu.driver.call;
        // SAFETY: the event and our stream are live, and the caller promises that the other is.
        let recorded = unsafe { (call.cuEventRecord)(self.handle, stream as Handle) };
        self.gpu.driver.check("record an event", recorded)?;
        // SAFETY: both are live.
        let status = unsafe { (call.cuStreamWaitEvent)(self.gpu.stream, self.handle, 0) };
        self.gpu.driver.check("wait for a stream", status)
    }

    /// Waits until the work before it is done.
    pub fn wait(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the event is live.
        self.gpu.driver.check("wait for an event", unsafe { (self.gpu.driver.call.cuEventSynchronize)(self.handle) })
    }

    /// Waits for `self`, and tells the GPU's seconds since `earlier`.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        self.gpu.bind()?;
        let driver = self.gpu.driver;
        let mut milliseconds = 0.0;
        // SAFETY: both events and the pointer are live.
        unsafe {
            driver.check("wait for an event", (driver.call.cuEventSynchronize)(self.handle))?;
            let status = (driver.call.cuEventElapsedTime)(&mut milliseconds, earlier.handle, self.handle);
            driver.check("time events", status)?;
        }
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: it is live and not used again.
            let _ = unsafe { (self.gpu.driver.call.cuEventDestroy_v2)(self.handle) };
        }
    }
}
