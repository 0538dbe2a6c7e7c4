//! A GPU: its primary context, which other libraries of this process share, and one stream of work.
//!
//! Everything is done in the order of that stream; who opens the GPU again has another stream, in the same context and with the
//! same compiled kernels. Launching allocates nothing.
#![allow(unsafe_code)]

use super::driver::{
    CAPABILITY_MAJOR, CAPABILITY_MINOR, Driver, Handle, L2_BYTES, LOCAL_BYTES, LaunchAttribute, LaunchConfig,
    MOST_SHARED_BYTES, MOST_SHARED_OF_BLOCK, MULTIPROCESSORS, NON_BLOCKING, OUT_OF_MEMORY, REGISTERS, driver,
};
use super::nvrtc::{self, nvrtc};
use super::pool::{self, Piece, Pool};
use super::{cache, report};
use operant_base::{Error, Result};
use operant_lanes::Math;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number: the i of `cuda:i`.
    pub index: usize,
    /// As NVIDIA calls it.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Memory, in bytes.
    pub memory_bytes: usize,
    /// Second-level cache, in bytes.
    pub l2_bytes: usize,
    /// The most shared memory that a block may have, in bytes.
    pub shared_bytes: usize,
}

impl GpuInfo {
    /// The architecture for which kernels are compiled.
    pub fn arch(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

/// A GPU's primary context, which all who opened it in this process share.
struct Context {
    driver: &'static Driver,
    device: c_int,
    handle: Handle,
    /// Kernels that are loaded, by all that decided their code.
    code: Mutex<HashMap<String, Arc<Mutex<Weak<Code>>>>>,
    /// Memory of small buffers.
    pool: Mutex<Pool>,
    /// Held by all who record a graph, and alone by who waits for all of the GPU's work.
    recordings: RwLock<()>,
}

// SAFETY: as for `Gpu`.
unsafe impl Send for Context {}
// SAFETY: as for `Gpu`.
unsafe impl Sync for Context {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    fn of(driver: &'static Driver, device: c_int) -> Result<Arc<Self>> {
        static OPEN: Mutex<Vec<(c_int, Weak<Context>)>> = Mutex::new(Vec::new());
        let mut open = lock(&OPEN);
        open.retain(|(_, context)| context.strong_count() > 0);
        let found = open.iter().find(|(of, _)| *of == device).and_then(|(_, context)| context.upgrade());
        if let Some(context) = found {
            return Ok(context);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is live; what is retained is released in `drop`.
        let status = unsafe { (driver.call.cuDevicePrimaryCtxRetain)(&mut handle, device) };
        driver.check("use the GPU", status)?;
        let (code, pool) = (Mutex::default(), Mutex::default());
        let context = Arc::new(Self { driver, device, handle, code, pool, recordings: RwLock::default() });
        open.push((device, Arc::downgrade(&context)));
        Ok(context)
    }

    /// Makes it the one that this thread's calls are for.
    fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self`.
        self.driver.check("switch to the GPU", unsafe { (self.driver.call.cuCtxSetCurrent)(self.handle) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let blocks = lock(&self.pool).drain();
        if self.bind().is_ok() {
            for block in blocks {
                // SAFETY: it was allocated once, and the buffers in it, which keep this context, are gone.
                let _ = unsafe { (self.driver.call.cuMemFree_v2)(block) };
            }
        }
        // SAFETY: it was retained once.
        let _ = unsafe { (self.driver.call.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// A GPU that can be used.
pub struct Gpu {
    pub(super) driver: &'static Driver,
    info: GpuInfo,
    context: Arc<Context>,
    pub(super) stream: Handle,
    /// How many share it evenly.
    at_once: usize,
    /// While a graph is recorded: what it launches, to be kept as long as the graph.
    pub(super) recording: Mutex<Option<Vec<Module>>>,
}

// SAFETY: the driver's functions may be called from any thread; what they need of the thread, the context, is set before.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gpu").field(&self.info).finish()
    }
}

/// The GPUs that the driver shows.
pub(super) fn list(driver: &Driver) -> Result<Vec<GpuInfo>> {
    let mut count = 0;
    // SAFETY: the pointer is to a live int.
    driver.check("count GPUs", unsafe { (driver.call.cuDeviceGetCount)(&mut count) })?;
    (0..count).map(|index| info(driver, index).map(|(info, _)| info)).collect()
}

fn info(driver: &Driver, index: c_int) -> Result<(GpuInfo, c_int)> {
    let (mut device, mut memory_bytes, mut name) = (0, 0, [0u8; 256]);
    // SAFETY: all pointers are live; the name has 256 bytes, of which the driver ends the text with a zero.
    unsafe {
        driver.check("find the GPU", (driver.call.cuDeviceGet)(&mut device, index))?;
        driver.check("name the GPU", (driver.call.cuDeviceGetName)(name.as_mut_ptr().cast(), 255, device))?;
        driver.check("ask for memory", (driver.call.cuDeviceTotalMem_v2)(&mut memory_bytes, device))?;
    }
    let attribute = |which| -> Result<i32> {
        let mut value = 0;
        // SAFETY: the pointer is to a live int.
        driver.check("describe the GPU", unsafe { (driver.call.cuDeviceGetAttribute)(&mut value, which, device) })?;
        Ok(value)
    };
    let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let info = GpuInfo {
        index: index as usize,
        name,
        capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
        multiprocessors: attribute(MULTIPROCESSORS)? as usize,
        memory_bytes,
        l2_bytes: attribute(L2_BYTES)? as usize,
        shared_bytes: attribute(MOST_SHARED_OF_BLOCK)? as usize,
    };
    Ok((info, device))
}

impl Gpu {
    /// What GPU number 0 is, or in a few words why it cannot be used. Opens the driver and the compiler, nothing on the GPU.
    pub fn first() -> Result<GpuInfo, String> {
        let driver = driver().map_err(|_| "no NVIDIA driver here")?;
        let info = list(driver).ok().and_then(|gpus| gpus.into_iter().next()).ok_or("the driver shows no GPU")?;
        let (least, part) = report::LEAST_CAPABILITY;
        if info.capability < report::LEAST_CAPABILITY {
            return Err(format!("{} has compute capability below {least}.{part}", info.name));
        }
        let nvrtc = nvrtc().map_err(|_| "a GPU, but no NVRTC to compile for it: operant doctor")?;
        match report::nvrtc_too_new(driver, nvrtc.version) {
            Some(_) => Err("a GPU, but an NVRTC that is newer than its driver: operant doctor".to_owned()),
            None => Ok(info),
        }
    }

    /// GPU number `index`, or what is missing and how to get it.
    pub fn open(index: usize) -> Result<Arc<Self>> {
        Self::open_among(index, 1)
    }

    /// The same for one of so many that use it at once: kernels that would take all of it leave the others their share. No result
    /// depends on that.
    pub fn open_among(index: usize, at_once: usize) -> Result<Arc<Self>> {
        let gpu = Self::open_any(index, at_once)?;
        match report::too_old(&gpu.info) {
            Some(problem) => Err(report::unusable(&[problem])),
            None => Ok(gpu),
        }
    }

    /// The same of a GPU that kernels may not be written for.
    pub(super) fn open_any(index: usize, at_once: usize) -> Result<Arc<Self>> {
        let (driver, nvrtc) = match (driver(), nvrtc()) {
            (Ok(driver), Ok(nvrtc)) => (driver, nvrtc),
            (driver, nvrtc) => {
                let missing = driver.err().map(|error| report::driver_missing(&error));
                let problems = missing.into_iter().chain(nvrtc.err().map(|error| report::nvrtc_missing(&error)));
                return Err(report::unusable(&problems.collect::<Vec<_>>()));
            }
        };
        if let Some(problem) = report::nvrtc_too_new(driver, nvrtc.version) {
            return Err(report::unusable(&[problem]));
        }
        let gpus = list(driver)?;
        if index >= gpus.len() {
            return Err(report::unusable(&[report::gpu_missing(index, gpus.len())]));
        }
        let (info, device) = info(driver, index as c_int)?;
        Self::with_stream(info, Context::of(driver, device)?, at_once)
    }

    /// The same GPU with a stream of its own.
    pub fn second_stream(&self) -> Result<Arc<Self>> {
        Self::with_stream(self.info.clone(), Arc::clone(&self.context), self.at_once)
    }

    fn with_stream(info: GpuInfo, context: Arc<Context>, at_once: usize) -> Result<Arc<Self>> {
        let (driver, mut stream) = (context.driver, std::ptr::null_mut());
        context.bind()?;
        // SAFETY: the pointer is live; what is created is destroyed in `drop`.
        driver.check("create a stream", unsafe { (driver.call.cuStreamCreate)(&mut stream, NON_BLOCKING) })?;
        Ok(Arc::new(Self { driver, info, context, stream, at_once: at_once.max(1), recording: Mutex::new(None) }))
    }

    /// How many use it at once, this one among them.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// What it is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// One line: name, capability, memory, driver.
    pub fn describe(&self) -> String {
        let GpuInfo { name, capability: (major, minor), memory_bytes, .. } = &self.info;
        let version = self.driver.version;
        let (cuda, nvrtc) = (report::version(version), nvrtc().map_or((0, 0), |nvrtc| nvrtc.version));
        format!(
            "{name}, compute capability {major}.{minor}, {:.0} GB, driver for CUDA {cuda}, NVRTC {}.{}",
            *memory_bytes as f64 / 1e9,
            nvrtc.0,
            nvrtc.1
        )
    }

    /// Makes this GPU the one that this thread's calls are for.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    /// Held while a graph is recorded: no other thread waits for all of the GPU's work meanwhile, which would spoil the recording.
    pub(super) fn while_recording(&self) -> RwLockReadGuard<'_, ()> {
        self.context.recordings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its stream as a number, for other libraries of this process.
    pub fn stream_address(&self) -> u64 {
        self.stream as u64
    }

    /// Zeroed memory of so many bytes, or the driver's word for why there is none.
    pub(super) fn allocate(&self, bytes: usize) -> Result<u64, c_int> {
        let own = |bytes: usize| -> Result<u64, c_int> {
            let mut address = 0;
            // SAFETY: the pointer is to a live u64.
            match unsafe { (self.driver.call.cuMemAlloc_v2)(&mut address, bytes) } {
                0 => Ok(address),
                status => Err(status),
            }
        };
        let zero = |at: u64, bytes: usize| -> Result<(), c_int> {
            // SAFETY: so many bytes lie there.
            match unsafe { (self.driver.call.cuMemsetD8Async)(at, 0, bytes, self.stream) } {
                0 => Ok(()),
                status => Err(status),
            }
        };
        if bytes > pool::MOST {
            let at = own(bytes)?;
            return zero(at, bytes).map(|()| at);
        }
        let mut pool = lock(&self.context.pool);
        let mut found = pool.take(bytes);
        if found.is_none() && pool.waits() {
            // To wait for all would spoil what others record: then there is another block.
            let recordings = self.context.recordings.try_write();
            // SAFETY: the context is live and current.
            if recordings.is_ok() && unsafe { (self.driver.call.cuCtxSynchronize)() } == 0 {
                pool.settle();
                found = pool.take(bytes);
            }
        }
        if found.is_none() {
            let len = pool::BLOCK;
            let (block, len) =
                own(len).map(|block| (block, len)).or_else(|_| own(bytes).map(|block| (block, bytes)))?;
            zero(block, len)?;
            // Others use it in streams of their own.
            // SAFETY: the stream is live.
            match unsafe { (self.driver.call.cuStreamSynchronize)(self.stream) } {
                0 => pool.add(block, len),
                status => return Err(status),
            }
            found = pool.take(bytes);
        }
        match found {
            Some(Piece { at, fresh: true }) => Ok(at),
            Some(Piece { at, .. }) => zero(at, bytes).map(|()| at),
            None => Err(OUT_OF_MEMORY),
        }
    }

    /// Takes back what [`Self::allocate`] gave.
    pub(super) fn free(&self, address: u64, bytes: usize) {
        if bytes <= pool::MOST {
            return lock(&self.context.pool).give(address, bytes);
        }
        if self.bind().is_ok() {
            // Work that uses it may be under way; freeing waits for that.
            // SAFETY: it was allocated once and is not used again.
            let _ = unsafe { (self.driver.call.cuMemFree_v2)(address) };
        }
    }

    /// Free and total memory, in bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are live.
        let status = unsafe { (self.driver.call.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.driver.check("ask for free memory", status)?;
        Ok((free, total))
    }

    /// Waits for all work, and tells of the first fault in it.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream is live.
        self.driver.check("finish its work", unsafe { (self.driver.call.cuStreamSynchronize)(self.stream) })
    }

    /// Waits for all work of this process on the GPU, that of other libraries included.
    pub fn synchronize_all(&self) -> Result<()> {
        self.bind()?;
        let _none_is_recorded = self.context.recordings.write();
        // SAFETY: the context is live and current.
        self.driver.check("finish all work", unsafe { (self.driver.call.cuCtxSynchronize)() })
    }

    /// Compiles kernels for this GPU, or takes them from the cache. `name` is for messages and file names.
    pub fn load(self: &Arc<Self>, name: &str, source: &str, math: Math) -> Result<Module> {
        self.load_for(&self.info.arch(), name, source, math)
    }

    /// The same for an architecture's own instructions, as in `sm_90a`.
    pub fn load_for(self: &Arc<Self>, arch: &str, name: &str, source: &str, math: Math) -> Result<Module> {
        let compiler = nvrtc().map_err(Error::Device)?;
        let (major, minor) = compiler.version;
        let key = format!("{arch}\nNVRTC {major}.{minor}\n{}\n{source}", nvrtc::options(math).join(" "));
        let place = Arc::clone(lock(&self.context.code).entry(key.clone()).or_default());
        // Held until the code is there: others that want the same wait for it.
        let mut place = lock(&place);
        if let Some(code) = place.upgrade() {
            return Ok(Module { gpu: Arc::clone(self), code });
        }
        let cubin = cache::cached(name, &key, || compiler.compile(name, source, arch, math))?;
        self.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the machine code is whole (checked by the cache) and is copied by the call.
        let status = unsafe { (self.driver.call.cuModuleLoadData)(&mut handle, cubin.as_ptr().cast()) };
        self.driver.check(&format!("load the kernels of {name}"), status)?;
        let code = Arc::new(Code { context: Arc::clone(&self.context), handle });
        *place = Arc::downgrade(&code);
        Ok(Module { gpu: Arc::clone(self), code })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_ok() && !self.stream.is_null() {
            // SAFETY: the stream is live and not used again.
            let _ = unsafe { (self.driver.call.cuStreamDestroy_v2)(self.stream) };
        }
    }
}

/// Compiled kernels on a GPU, launched on one stream of it.
#[derive(Debug, Clone)]
pub struct Module {
    gpu: Arc<Gpu>,
    code: Arc<Code>,
}

struct Code {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: as for `Gpu`.
unsafe impl Send for Code {}
// SAFETY: as for `Gpu`.
unsafe impl Sync for Code {}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Code")
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the module is live and its kernels, which keep it, are gone.
            let _ = unsafe { (self.context.driver.call.cuModuleUnload)(self.handle) };
        }
    }
}

/// The one argument of a kernel: a `#[repr(C)]` struct of numbers and device pointers, the same as in CUDA C.
pub trait Params: Copy {}

/// A kernel whose argument is a `P`.
#[derive(Debug)]
pub struct Kernel<P> {
    module: Module,
    function: Handle,
    /// Bytes of a block's shared memory that are not fixed in the kernel's text.
    shared_bytes: u32,
    params: PhantomData<fn(P)>,
}

// SAFETY: as for `Gpu`; the function lives as long as its module.
unsafe impl<P> Send for Kernel<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Kernel<P> {}

impl Module {
    /// The same kernels, launched on another stream of the same GPU.
    pub fn on(&self, gpu: &Arc<Gpu>) -> Self {
        Self { gpu: Arc::clone(gpu), code: Arc::clone(&self.code) }
    }

    /// The kernel of this name, which takes one `P`.
    pub fn kernel<P: Params>(&self, name: &str) -> Result<Kernel<P>> {
        let (gpu, handle) = (&self.gpu, &self.code.handle);
        let driver = gpu.driver;
        gpu.bind()?;
        let text = CString::new(name).map_err(|_| Error::Device(format!("kernel \"{name}\": not a name")))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is live and the name is a C string.
        let status = unsafe { (driver.call.cuModuleGetFunction)(&mut function, *handle, text.as_ptr()) };
        driver.check(&format!("find the kernel {name}"), status)?;
        // A launch copies as many bytes as the kernel's argument has: a smaller P would be read beyond its end.
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function and the pointers are live.
        let status = unsafe { (driver.call.cuFuncGetParamInfo)(function, 0, &mut offset, &mut size) };
        let one = status == 0 && size == size_of::<P>();
        if !one {
            let wanted = size_of::<P>();
            return Err(Error::Device(format!("kernel {name} does not take one argument of {wanted} bytes")));
        }
        Ok(Kernel { module: self.clone(), function, shared_bytes: 0, params: PhantomData })
    }
}

impl<P: Params> Kernel<P> {
    /// The same kernel with so many bytes of `extern __shared__` memory per block.
    pub fn with_shared(mut self, bytes: usize) -> Result<Self> {
        let gpu = &self.module.gpu;
        gpu.bind()?;
        let bytes = i32::try_from(bytes).map_err(|_| Error::Device(format!("{bytes} bytes of shared memory")))?;
        // Threads share loaded code: none may write a limit that another has raised since it was read.
        static LIMIT: Mutex<()> = Mutex::new(());
        let _alone = lock(&LIMIT);
        let mut most = 0;
        // SAFETY: the function and the pointer are live.
        let status = unsafe { (gpu.driver.call.cuFuncGetAttribute)(&mut most, MOST_SHARED_BYTES, self.function) };
        gpu.driver.check("ask of a kernel", status)?;
        // Others may use the same code with more.
        // SAFETY: the function is live.
        let status = unsafe { (gpu.driver.call.cuFuncSetAttribute)(self.function, MOST_SHARED_BYTES, bytes.max(most)) };
        gpu.driver.check(&format!("have {bytes} bytes of shared memory per block"), status)?;
        self.shared_bytes = bytes as u32;
        Ok(self)
    }

    /// Starts blocks that wait for each other: an error unless all fit the GPU at once.
    pub fn launch_together(&self, blocks: u32, threads: u32, params: &P) -> Result<()> {
        self.start(blocks, threads, params, &mut [LaunchAttribute::cooperative()])
    }

    /// Starts `blocks` × `threads` threads after all work that came before.
    pub fn launch(&self, blocks: u32, threads: u32, params: &P) -> Result<()> {
        self.start(blocks, threads, params, &mut [])
    }

    /// Starts blocks in pairs that may write to each other's shared memory; their number is even. Needs compute capability 9.0.
    pub fn launch_pairs(&self, blocks: u32, threads: u32, params: &P) -> Result<()> {
        self.start(blocks, threads, params, &mut [LaunchAttribute::paired()])
    }

    /// Both [`launch_pairs`](Self::launch_pairs) and [`launch_early`](Self::launch_early).
    pub fn launch_pairs_early(&self, blocks: u32, threads: u32, params: &P) -> Result<()> {
        if self.module.gpu.at_once > 1 {
            return self.launch_pairs(blocks, threads, params);
        }
        self.start(blocks, threads, params, &mut [LaunchAttribute::paired(), LaunchAttribute::programmatic()])
    }

    /// Starts as soon as every block of the kernel before has said that it may (`griddepcontrol.launch_dependents`) or has
    /// ended: every block of this one waits for that kernel's end itself (`griddepcontrol.wait`) before it reads or writes what
    /// others do. The same as [`launch`](Self::launch) on GPUs before compute capability 9.0, and where others use the GPU at
    /// once: blocks that wait keep theirs out.
    pub fn launch_early(&self, blocks: u32, threads: u32, params: &P) -> Result<()> {
        self.launch_on(&self.module.gpu, true, blocks, threads, params)
    }

    /// [`launch`](Self::launch), or if `early` [`launch_early`](Self::launch_early), on the stream of `gpu`: the same GPU. What a graph
    /// records there is kept where its own stream's is.
    pub fn launch_on(&self, gpu: &Gpu, early: bool, blocks: u32, threads: u32, params: &P) -> Result<()> {
        if !early || gpu.info.capability < (9, 0) || gpu.at_once > 1 {
            return self.start_on(gpu, blocks, threads, params, &mut []);
        }
        self.start_on(gpu, blocks, threads, params, &mut [LaunchAttribute::programmatic()])
    }

    fn start(&self, blocks: u32, threads: u32, params: &P, attributes: &mut [LaunchAttribute]) -> Result<()> {
        self.start_on(&self.module.gpu, blocks, threads, params, attributes)
    }

    fn start_on(
        &self,
        on: &Gpu,
        blocks: u32,
        threads: u32,
        params: &P,
        attributes: &mut [LaunchAttribute],
    ) -> Result<()> {
        let gpu = &self.module.gpu;
        gpu.bind()?;
        let config = LaunchConfig {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: self.shared_bytes,
            stream: on.stream,
            attributes: attributes.as_mut_ptr(),
            attribute_count: attributes.len() as u32,
        };
        if let Ok(mut recording) = gpu.recording.lock()
            && let Some(modules) = &mut *recording
            && !modules.iter().any(|module| Arc::ptr_eq(&module.code, &self.module.code))
        {
            modules.push(self.module.clone());
        }
        let mut arguments = [std::ptr::from_ref(params).cast_mut().cast::<c_void>()];
        // SAFETY: the function is live and takes one argument of P's size (checked by `Module::kernel`), which is copied.
        let status = unsafe {
            let extra = std::ptr::null_mut();
            (gpu.driver.call.cuLaunchKernelEx)(&config, self.function, arguments.as_mut_ptr(), extra)
        };
        gpu.driver.check("launch a kernel", status)
    }

    /// Registers per thread, and bytes of slow local memory per thread (0 unless registers did not suffice).
    pub fn resources(&self) -> Result<(i32, i32)> {
        let driver = self.module.gpu.driver;
        let (mut registers, mut local) = (0, 0);
        // SAFETY: the function and the pointers are live.
        unsafe {
            driver
                .check("ask of a kernel", (driver.call.cuFuncGetAttribute)(&mut registers, REGISTERS, self.function))?;
            driver
                .check("ask of a kernel", (driver.call.cuFuncGetAttribute)(&mut local, LOCAL_BYTES, self.function))?;
        }
        Ok((registers, local))
    }
}
