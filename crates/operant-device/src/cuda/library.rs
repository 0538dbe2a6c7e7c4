//! Shared libraries: where they may lie, and their functions by name. A library once opened stays open.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A library of NVIDIA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Driver,
    Nvrtc,
    CublasLt,
    Cudnn,
}

impl Wanted {
    /// File names, newest first.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["libcuda.so.1", "libcuda.so"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            Self::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            Self::Cudnn => &["libcudnn.so.9", "libcudnn.so"],
        }
    }

    /// Its folder among the packages of PyPI, in CUDA 12's and older packages.
    fn package(self) -> &'static str {
        match self {
            Self::Driver => "",
            Self::Nvrtc => "cuda_nvrtc",
            Self::CublasLt => "cublas",
            Self::Cudnn => "cudnn",
        }
    }
}

/// An open library.
#[derive(Debug)]
pub(super) struct Library {
    handle: *mut c_void,
}

// SAFETY: a handle is a name for a library that stays open; looking a symbol up is thread-safe.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

#[cfg(unix)]
impl Library {
    fn open(path: &Path) -> Result<Self, String> {
        use std::os::unix::ffi::OsStrExt;
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte".to_owned())?;
        // SAFETY: the path is a C string. The initialisers that run are those of NVIDIA's libraries.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(Self { handle });
        }
        // SAFETY: `dlerror` gives null or a C string that lasts until the next call on this thread.
        let error = unsafe { libc::dlerror() };
        if error.is_null() {
            return Err("it cannot be opened".into());
        }
        // SAFETY: as above, and it is not null.
        Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned())
    }

    /// The address of a function.
    pub(super) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name is a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// The file that a function of this library came from.
    pub(super) fn path(&self, function: &CStr) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let address = self.symbol(function)?;
        // SAFETY: all fields may be zero.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is of this process and the struct is live.
        let known = unsafe { libc::dladdr(address, &mut info) };
        if known == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the loader keeps this name as long as the library, which is never closed.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
    }
}

#[cfg(not(unix))]
impl Library {
    fn open(_: &Path) -> Result<Self, String> {
        Err("libraries of CUDA are opened on Linux only".into())
    }

    /// The address of a function.
    pub(super) fn symbol(&self, _: &CStr) -> Option<*mut c_void> {
        None
    }

    /// The file that a function of this library came from.
    pub(super) fn path(&self, _: &CStr) -> Option<PathBuf> {
        None
    }
}

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Looks for libraries in this folder too, or below it if it is a `site-packages`. To be called before the first use.
pub fn add_folder(folder: &Path) {
    if let Ok(mut folders) = FOLDERS.lock()
        && !folders.iter().any(|known| known == folder)
    {
        folders.push(folder.to_owned());
    }
}

/// Opens a library from the first place that has it: `$OPERANT_CUDA_LIBS`, folders that were added, the packages of the
/// active Python, `$CUDA_PATH`, what the system's loader finds, the usual places.
pub(super) fn find(wanted: Wanted) -> Result<Library, String> {
    let mut refused = String::new();
    let mut open = |path: &Path| match Library::open(path) {
        Ok(library) => Some(library),
        Err(error) => {
            // A file that is there and cannot be opened says more than all that are not there.
            if path.is_absolute() && refused.is_empty() {
                refused = error;
            }
            None
        }
    };
    let folders = if wanted == Wanted::Driver { driver_folders() } else { folders(wanted) };
    let (named, usual) = folders;
    for folder in &named {
        for name in wanted.names() {
            let path = folder.join(name);
            if path.is_file() {
                prepare(wanted, folder);
                if let Some(library) = open(&path) {
                    return Ok(library);
                }
            }
        }
    }
    for name in wanted.names() {
        if let Some(library) = open(Path::new(name)) {
            return Ok(library);
        }
    }
    for folder in &usual {
        for name in wanted.names() {
            let path = folder.join(name);
            if path.is_file()
                && let Some(library) = open(&path)
            {
                return Ok(library);
            }
        }
    }
    Err(if refused.is_empty() { format!("{} was not found", wanted.names()[0]) } else { refused })
}

/// NVRTC looks for its built-in functions by file name alone: opened first, they are found where they lie.
fn prepare(wanted: Wanted, folder: &Path) {
    if wanted != Wanted::Nvrtc {
        return;
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files {
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libnvrtc-builtins.so") {
            let _ = Library::open(&file.path());
        }
    }
}

/// Folders named in the environment variable, separated as in `$PATH`.
fn named_in(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable)
        .map(|text| std::env::split_paths(&text).filter(|path| path.is_absolute()).collect())
        .unwrap_or_default()
}

fn driver_folders() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let usual = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
    (named_in("OPERANT_CUDA_LIBS"), usual.iter().map(PathBuf::from).collect())
}

/// Folders that come before the system's loader, and those that come after it.
fn folders(wanted: Wanted) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut named = named_in("OPERANT_CUDA_LIBS");
    let added = FOLDERS.lock().map(|folders| folders.clone()).unwrap_or_default();
    for folder in added.into_iter().chain(site_packages()) {
        named.push(folder.join("nvidia/cu13/lib"));
        named.push(folder.join("nvidia").join(wanted.package()).join("lib"));
        named.push(folder);
    }
    for toolkit in ["CUDA_PATH", "CUDA_HOME"].into_iter().flat_map(named_in) {
        named.extend(["lib64", "lib", "targets/x86_64-linux/lib"].map(|part| toolkit.join(part)));
    }
    let mut toolkits: Vec<PathBuf> = std::fs::read_dir("/usr/local")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda"))
        .map(|entry| entry.path())
        .collect();
    // `cuda` is the link to the toolkit in use, then the newest.
    toolkits.sort_by_key(|path| (path.ends_with("cuda"), path.clone()));
    let usual =
        toolkits.iter().rev().flat_map(|path| ["lib64", "targets/x86_64-linux/lib"].map(|part| path.join(part)));
    (named, usual.collect())
}

/// `site-packages` of the active Python: the virtual environment's, conda's, that of the first `python3` on the path, and
/// that of the environment in which this program is installed.
fn site_packages() -> Vec<PathBuf> {
    let mut roots = [named_in("VIRTUAL_ENV"), named_in("CONDA_PREFIX")].concat();
    let program = std::env::current_exe().ok();
    let python = named_in("PATH").into_iter().map(|folder| folder.join("python3")).find(|path| path.is_file());
    // `<root>/bin/python3`; a link is not followed, for it leads out of the environment.
    roots.extend([python, program].into_iter().flatten().filter_map(|path| Some(path.parent()?.parent()?.to_owned())));
    let mut found = Vec::new();
    for root in roots {
        for version in std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten() {
            let folder = version.path().join("site-packages");
            if version.file_name().to_string_lossy().starts_with("python") && !found.contains(&folder) {
                found.push(folder);
            }
        }
    }
    found
}

/// Declares a struct of C functions that return a status, filled from a library by name.
macro_rules! functions {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($function:ident($($argument:ty),* $(,)?);)+ }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        $vis struct $name {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)+
        }
        impl $name {
            /// All functions, or the name of the first that the library lacks.
            $vis fn load(library: &$crate::cuda::library::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($function: {
                        let name = concat!(stringify!($function), "\0");
                        let address = std::ffi::CStr::from_bytes_with_nul(name.as_bytes())
                            .ok()
                            .and_then(|name| library.symbol(name))
                            .ok_or(stringify!($function))?;
                        // SAFETY: the library's documentation gives the function of this name these arguments.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> std::ffi::c_int>(address)
                        }
                    },)+
                })
            }
        }
    };
}
pub(super) use functions;
