//! The CUDA driver API: the functions that are called, and their errors as words.
//!
//! Own declarations of forty functions: they open from any path, a missing one is an error and not a panic, and a launch
//! allocates nothing.
#![allow(unsafe_code)]

use super::library::{self, Wanted, functions};
use operant_base::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// A handle of the driver's.
pub(super) type Handle = *mut c_void;

/// `CU_DEVICE_ATTRIBUTE_…`
pub(super) const MULTIPROCESSORS: c_int = 16;
pub(super) const MOST_SHARED_OF_BLOCK: c_int = 97;
pub(super) const CAPABILITY_MAJOR: c_int = 75;
pub(super) const CAPABILITY_MINOR: c_int = 76;
pub(super) const L2_BYTES: c_int = 38;
/// `CU_FUNC_ATTRIBUTE_…`
pub(super) const REGISTERS: c_int = 4;
pub(super) const LOCAL_BYTES: c_int = 3;
pub(super) const MOST_SHARED_BYTES: c_int = 8;
/// `CU_STREAM_NON_BLOCKING`
pub(super) const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`
pub(super) const THREAD_LOCAL: c_int = 1;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
const PROGRAMMATIC: c_uint = 6;
/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const COOPERATIVE: c_uint = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
const CLUSTER: c_uint = 4;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// Statuses after which a context is of no more use: an uncorrectable memory error, and from `CUDA_ERROR_ILLEGAL_ADDRESS` and
/// `CUDA_ERROR_LAUNCH_TIMEOUT` to `CUDA_ERROR_LAUNCH_FAILED` what kernels may do wrong.
const FAULTS: [c_int; 10] = [214, 700, 702, 710, 714, 715, 716, 717, 718, 719];

/// `CUlaunchAttribute`
#[repr(C)]
pub(super) struct LaunchAttribute {
    id: c_uint,
    pad: c_uint,
    /// A union of 64 bytes.
    value: [u64; 8],
}

impl LaunchAttribute {
    /// The kernel may begin before the one before it ended; it waits in its own code.
    pub(super) fn programmatic() -> Self {
        Self { id: PROGRAMMATIC, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// All blocks run at once, so that they can wait for each other.
    pub(super) fn cooperative() -> Self {
        Self { id: COOPERATIVE, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Neighbouring blocks run together in pairs, and may write to each other's shared memory.
    pub(super) fn paired() -> Self {
        // x, y and z of 32 bits.
        Self { id: CLUSTER, pad: 0, value: [2 | 1 << 32, 1, 0, 0, 0, 0, 0, 0] }
    }
}

/// `CUlaunchConfig`
#[repr(C)]
pub(super) struct LaunchConfig {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) stream: Handle,
    pub(super) attributes: *mut LaunchAttribute,
    pub(super) attribute_count: c_uint,
}

functions! {
    pub(super) struct Functions {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(c_int, *mut *const c_char);
        cuGetErrorString(c_int, *mut *const c_char);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut c_int, c_int);
        cuDeviceGetName(*mut c_char, c_int, c_int);
        cuDeviceGetAttribute(*mut c_int, c_int, c_int);
        cuDeviceTotalMem_v2(*mut usize, c_int);
        cuDevicePrimaryCtxRetain(*mut Handle, c_int);
        cuDevicePrimaryCtxRelease_v2(c_int);
        cuCtxSetCurrent(Handle);
        cuCtxSynchronize();
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut u64, usize);
        cuMemFree_v2(u64);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Handle);
        cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Handle);
        cuMemcpyDtoDAsync_v2(u64, u64, usize, Handle);
        cuMemsetD8Async(u64, u8, usize, Handle);
        cuStreamCreate(*mut Handle, c_uint);
        cuStreamDestroy_v2(Handle);
        cuStreamSynchronize(Handle);
        cuStreamWaitEvent(Handle, Handle, c_uint);
        cuStreamBeginCapture_v2(Handle, c_int);
        cuStreamEndCapture(Handle, *mut Handle);
        cuGraphInstantiateWithFlags(*mut Handle, Handle, u64);
        cuGraphLaunch(Handle, Handle);
        cuGraphExecDestroy(Handle);
        cuGraphDestroy(Handle);
        cuEventCreate(*mut Handle, c_uint);
        cuEventRecord(Handle, Handle);
        cuEventSynchronize(Handle);
        cuEventElapsedTime(*mut f32, Handle, Handle);
        cuEventDestroy_v2(Handle);
        cuModuleLoadData(*mut Handle, *const c_void);
        cuModuleUnload(Handle);
        cuModuleGetFunction(*mut Handle, Handle, *const c_char);
        cuFuncGetAttribute(*mut c_int, c_int, Handle);
        cuFuncSetAttribute(Handle, c_int, c_int);
        cuFuncGetParamInfo(Handle, usize, *mut usize, *mut usize);
        cuTensorMapEncodeTiled(*mut c_void, c_int, c_uint, u64, *const u64, *const u64, *const u32, *const u32, c_int, c_int, c_int, c_int);
        cuLaunchKernelEx(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
    }
}

/// The driver, initialised.
pub(super) struct Driver {
    pub(super) call: Functions,
    /// 13000 for 13.0.
    pub(super) version: i32,
    pub(super) path: Option<PathBuf>,
}

/// The driver, or why there is none: asked once.
pub(super) fn driver() -> Result<&'static Driver, String> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
}

impl Driver {
    fn open() -> Result<Self, String> {
        let library = library::find(Wanted::Driver)?;
        let call = Functions::load(&library)
            .map_err(|name| format!("the driver has no {name}: it is older than CUDA 12.4; update it"))?;
        let driver = Self { call, version: 0, path: library.path(c"cuInit") };
        let mut version = 0;
        // SAFETY: plain calls; the pointer is to a live i32.
        unsafe {
            driver.words("initialise", (driver.call.cuInit)(0))?;
            driver.words("ask for its version", (driver.call.cuDriverGetVersion)(&mut version))?;
        }
        Ok(Self { version, ..driver })
    }

    /// A status as words.
    fn words(&self, what: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the pointer is live; the driver sets it to a C string that is never freed, or to null.
            let known = unsafe { function(status, &mut text) } == 0 && !text.is_null();
            // SAFETY: as above.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.call.cuGetErrorName).unwrap_or_else(|| format!("error {status}"));
        let why = text(self.call.cuGetErrorString).unwrap_or_default();
        Err(format!("cuda cannot {what}: {why} ({name})"))
    }

    /// A status as an error of the engine.
    pub(super) fn check(&self, what: &str, status: c_int) -> Result<()> {
        let kind = if FAULTS.contains(&status) { Error::DeviceFault } else { Error::Device };
        self.words(what, status).map_err(kind)
    }
}
