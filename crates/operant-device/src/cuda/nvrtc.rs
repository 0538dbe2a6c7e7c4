//! NVRTC: CUDA C to machine code. No GPU is needed, so tests compile every kernel on any machine.
#![allow(unsafe_code)]

use super::library::{self, Wanted, functions};
use operant_base::{Error, Result};
use operant_lanes::Math;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

functions! {
    pub(super) struct Functions {
        nvrtcVersion(*mut c_int, *mut c_int);
        nvrtcCreateProgram(*mut *mut c_void, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        nvrtcCompileProgram(*mut c_void, c_int, *const *const c_char);
        nvrtcGetProgramLogSize(*mut c_void, *mut usize);
        nvrtcGetProgramLog(*mut c_void, *mut c_char);
        nvrtcGetCUBINSize(*mut c_void, *mut usize);
        nvrtcGetCUBIN(*mut c_void, *mut c_char);
        nvrtcDestroyProgram(*mut *mut c_void);
    }
}

/// The compiler.
pub(super) struct Nvrtc {
    call: Functions,
    /// Major and minor.
    pub(super) version: (i32, i32),
    pub(super) path: Option<PathBuf>,
}

/// The compiler, or why there is none: asked once.
pub(super) fn nvrtc() -> Result<&'static Nvrtc, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(Nvrtc::open).as_ref().map_err(Clone::clone)
}

/// How kernels are compiled. Strict: every operation rounds once, as IEEE 754 says, so results have the CPU's bits.
pub(super) fn options(math: Math) -> &'static [&'static str] {
    match math {
        Math::Strict => {
            &["--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--define-macro=FAST=0"]
        }
        Math::Fast => &["--fmad=true", "--prec-div=false", "--prec-sqrt=false", "--ftz=true", "--define-macro=FAST=1"],
    }
}

/// Machine code (cubin) of `source` for an architecture, as in `sm_90`. Needs NVRTC and no GPU.
pub fn compile(name: &str, source: &str, arch: &str, math: Math) -> Result<Vec<u8>> {
    nvrtc().map_err(Error::Device)?.compile(name, source, arch, math)
}

impl Nvrtc {
    fn open() -> Result<Self, String> {
        let library = library::find(Wanted::Nvrtc)?;
        let call = Functions::load(&library).map_err(|name| format!("NVRTC has no {name}: wanted version 12 or 13"))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to live ints.
        if unsafe { (call.nvrtcVersion)(&mut major, &mut minor) } != 0 {
            return Err("NVRTC does not tell its version".into());
        }
        Ok(Self { call, version: (major, minor), path: library.path(c"nvrtcVersion") })
    }

    pub(super) fn compile(&self, name: &str, source: &str, arch: &str, math: Math) -> Result<Vec<u8>> {
        let failed = |what: String| Error::Device(format!("kernels of {name} for {arch} do not compile: {what}"));
        let text = |text: &str| CString::new(text).map_err(|_| failed("a zero byte in the source".into()));
        let (source, file) = (text(source)?, text(&format!("{name}.cu"))?);
        let arch_option = text(&format!("--gpu-architecture={arch}"))?;
        let mut words = vec![arch_option];
        for option in options(math).iter().chain(&["--std=c++17"]) {
            words.push(text(option)?);
        }
        let words: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let mut program = Program { call: &self.call, handle: std::ptr::null_mut() };
        // SAFETY: the strings outlive the calls; the program is destroyed when it is dropped.
        let status = unsafe {
            let (none, names) = (std::ptr::null(), std::ptr::null());
            (self.call.nvrtcCreateProgram)(&mut program.handle, source.as_ptr(), file.as_ptr(), 0, none, names)
        };
        if status != 0 {
            return Err(failed(format!("NVRTC error {status}")));
        }
        // SAFETY: the program is live and the words outlive the call.
        let status = unsafe { (self.call.nvrtcCompileProgram)(program.handle, words.len() as c_int, words.as_ptr()) };
        if status != 0 {
            let log = program.bytes(self.call.nvrtcGetProgramLogSize, self.call.nvrtcGetProgramLog).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            // NVRTC 5: an option, as of an architecture that it does not know.
            let errors: Vec<&str> = log.lines().filter(|line| line.contains("error")).take(3).collect();
            let shown =
                if errors.is_empty() { log.trim_end_matches('\0').trim().to_owned() } else { errors.join("; ") };
            let (major, minor) = self.version;
            return Err(failed(format!("{shown} (NVRTC {major}.{minor}, error {status})")));
        }
        let cubin = program.bytes(self.call.nvrtcGetCUBINSize, self.call.nvrtcGetCUBIN);
        cubin.filter(|cubin| !cubin.is_empty()).ok_or_else(|| failed("NVRTC gave no machine code".into()))
    }
}

/// A program of NVRTC's.
struct Program<'a> {
    call: &'a Functions,
    handle: *mut c_void,
}

type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Bytes = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;

impl Program<'_> {
    /// What one pair of functions gives: its size, then its bytes.
    fn bytes(&self, size: Size, bytes: Bytes) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is live and the pointer is to a live usize.
        if unsafe { size(self.handle, &mut len) } != 0 {
            return None;
        }
        let mut memory = vec![0u8; len];
        // SAFETY: the memory has the size that was asked for.
        let status = unsafe { bytes(self.handle, memory.as_mut_ptr().cast()) };
        (status == 0).then_some(memory)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the program is live and not used again.
            let _ = unsafe { (self.call.nvrtcDestroyProgram)(&mut self.handle) };
        }
    }
}
