//! Matrix products by cuBLASLt, which is looked for when it is first wanted.
//!
//! A [`Product`] is described once; the library's first choice of an algorithm for it is kept, so that the same product has the
//! same bits in every run. Launching allocates nothing and can be recorded in a [`Graph`](super::Graph).
#![allow(unsafe_code)]

use super::gpu::Gpu;
use super::library::{self, Wanted, functions};
use super::memory::{Buffer, DevicePtr};
use operant_base::{Error, Result};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

type Handle = *mut c_void;

/// `CUBLAS_COMPUTE_32F`, `…_32F_FAST_TF32`
const COMPUTE_F32: c_int = 68;
const COMPUTE_TF32: c_int = 77;
/// `CUDA_R_32F`, `CUDA_R_16F`, `CUDA_R_16BF`
const F32: c_int = 0;
const F16: c_int = 2;
const BF16: c_int = 14;
/// `CUBLASLT_MATMUL_DESC_…`
const TRANSPOSE_A: c_int = 3;
const TRANSPOSE_B: c_int = 4;
/// `CUBLASLT_MATRIX_LAYOUT_…`
const BATCH_COUNT: c_int = 5;
const BATCH_OFFSET: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`
const WORKSPACE: c_int = 1;
/// What NVIDIA recommends for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Choice {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

functions! {
    struct Functions {
        cublasLtCreate(*mut Handle);
        cublasLtDestroy(Handle);
        cublasLtMatmulDescCreate(*mut Handle, c_int, c_int);
        cublasLtMatmulDescDestroy(Handle);
        cublasLtMatmulDescSetAttribute(Handle, c_int, *const c_void, usize);
        cublasLtMatrixLayoutCreate(*mut Handle, c_int, u64, u64, i64);
        cublasLtMatrixLayoutDestroy(Handle);
        cublasLtMatrixLayoutSetAttribute(Handle, c_int, *const c_void, usize);
        cublasLtMatmulPreferenceCreate(*mut Handle);
        cublasLtMatmulPreferenceDestroy(Handle);
        cublasLtMatmulPreferenceSetAttribute(Handle, c_int, *const c_void, usize);
        cublasLtMatmulAlgoGetHeuristic(Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Choice, *mut c_int);
        cublasLtMatmul(Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void, Handle, *mut c_void, Handle, *const c_void, *mut c_void, usize, Handle);
    }
}

fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let open = || {
        let library = library::find(Wanted::CublasLt)?;
        Functions::load(&library).map_err(|name| format!("it has no {name}"))
    };
    FUNCTIONS.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn check(what: &str, status: c_int) -> Result<()> {
    let why = match status {
        0 => return Ok(()),
        1 => "it is not initialised",
        3 => "no memory",
        7 => "an invalid value",
        8 => "not for this GPU",
        13 => "execution failed",
        15 => "not supported",
        _ => "an error of its own",
    };
    Err(Error::Device(format!("cuBLASLt cannot {what}: {why} (status {status})")))
}

/// What products multiply; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// 32 bits.
    F32,
    /// 32 bits of which products read 19.
    Tf32,
    /// 16 bits, 8 of them an exponent.
    Bf16,
    /// 16 bits, 5 of them an exponent.
    F16,
}

impl Operands {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if matches!(self, Self::Bf16 | Self::F16) { 2 } else { 4 }
    }
}

/// A row-major matrix, or several at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Numbers from one row to the next.
    pub pitch: usize,
    /// Numbers from one matrix to the next; 0: all are the same.
    pub stride: usize,
    /// Whether it is read transposed.
    pub turned: bool,
}

/// `D[m, n] = A[m, k] · B[k, n]`, or that added to D, for `count` triples of matrices.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows of D.
    pub m: usize,
    /// Columns of D.
    pub n: usize,
    /// Terms of a sum.
    pub k: usize,
    /// Left operand.
    pub a: Matrix,
    /// Right operand.
    pub b: Matrix,
    /// Result.
    pub d: Matrix,
    /// Triples.
    pub count: usize,
    /// What A and B hold.
    pub operands: Operands,
    /// Whether D is f32 whatever the operands are.
    pub wide: bool,
}

/// cuBLASLt on a GPU.
pub struct Blas {
    gpu: Arc<Gpu>,
    call: &'static Functions,
    handle: Handle,
    workspace: Buffer<u8>,
}

// SAFETY: the library's handle may be used from any thread; its state is the algorithm's, which is fixed.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blas")
    }
}

impl Blas {
    /// Whether the library is there, or how to get it. Opens it, nothing on a GPU.
    pub fn available() -> Result<()> {
        functions().map(drop).map_err(|error| {
            Error::Device(format!(
                "cuBLASLt, which multiplies for networks of this size: {error}; pip install nvidia-cublas, or install the CUDA \
                 toolkit, or name its folder in OPERANT_CUDA_LIBS (operant doctor)"
            ))
        })
    }

    /// On a GPU.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        Self::available()?;
        let call = functions().map_err(Error::Device)?;
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is live; the GPU's context is current.
        check("begin", unsafe { (call.cublasLtCreate)(&mut handle) })?;
        let workspace = Buffer::new(gpu, WORKSPACE_BYTES, "room for matrix products", "num_envs")?;
        Ok(Arc::new(Self { gpu: Arc::clone(gpu), call, handle, workspace }))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: it was created once and is not used again.
            let _ = unsafe { (self.call.cublasLtDestroy)(self.handle) };
        }
    }
}

/// A handle and the function that ends it.
struct Owned {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was created once by the library and is not used again.
        let _ = unsafe { (self.destroy)(self.handle) };
    }
}

/// A product with the algorithm that was chosen for it.
pub struct Gemm {
    blas: Arc<Blas>,
    description: Owned,
    /// Of the right operand, the left one and the result, as columns.
    layouts: [Owned; 3],
    algorithm: [u64; 8],
    flops: f64,
}

// SAFETY: descriptions are plain memory of the library's, not changed after they are made.
unsafe impl Send for Gemm {}
// SAFETY: as above.
unsafe impl Sync for Gemm {}

impl std::fmt::Debug for Gemm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gemm({} FLOP)", self.flops)
    }
}

impl Gemm {
    /// Has the library choose an algorithm.
    pub fn new(blas: &Arc<Blas>, product: &Product) -> Result<Self> {
        let call = blas.call;
        blas.gpu.bind()?;
        let compute = if product.operands == Operands::Tf32 { COMPUTE_TF32 } else { COMPUTE_F32 };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is live.
        check("describe a product", unsafe { (call.cublasLtMatmulDescCreate)(&mut handle, compute, F32) })?;
        let description = Owned { handle, destroy: call.cublasLtMatmulDescDestroy };
        // The library counts by columns: rows of D are its columns, so it multiplies B, turned, by A, turned.
        for (attribute, turned) in [(TRANSPOSE_A, product.b.turned), (TRANSPOSE_B, product.a.turned)] {
            let word = c_int::from(turned);
            let word: *const c_int = &word;
            // SAFETY: the description and the word are live; the attribute is an int.
            let set = unsafe {
                (call.cublasLtMatmulDescSetAttribute)(description.handle, attribute, word.cast(), size_of::<c_int>())
            };
            check("describe a product", set)?;
        }
        let kind = match product.operands {
            Operands::Bf16 => BF16,
            Operands::F16 => F16,
            Operands::F32 | Operands::Tf32 => F32,
        };
        let sides = |matrix: &Matrix, rows: usize, columns: usize| match matrix.turned {
            true => (rows, columns),
            false => (columns, rows),
        };
        let layouts = [
            layout(call, kind, sides(&product.b, product.k, product.n), &product.b, product.count)?,
            layout(call, kind, sides(&product.a, product.m, product.k), &product.a, product.count)?,
            layout(call, if product.wide { F32 } else { kind }, (product.n, product.m), &product.d, product.count)?,
        ];
        // SAFETY: the pointer is live.
        check("choose an algorithm", unsafe { (call.cublasLtMatmulPreferenceCreate)(&mut handle) })?;
        let preference = Owned { handle, destroy: call.cublasLtMatmulPreferenceDestroy };
        let bytes: *const usize = &WORKSPACE_BYTES;
        // SAFETY: the preference and the number are live; the attribute is a u64.
        let set = unsafe {
            (call.cublasLtMatmulPreferenceSetAttribute)(preference.handle, WORKSPACE, bytes.cast(), size_of::<usize>())
        };
        check("choose an algorithm", set)?;
        let (mut choice, mut found) = (Choice::default(), 0);
        let [b, a, d] = [0, 1, 2].map(|i| layouts[i].handle);
        // SAFETY: all descriptions are live, and there is room for the one choice that is asked for.
        let status = unsafe {
            (call.cublasLtMatmulAlgoGetHeuristic)(
                blas.handle,
                description.handle,
                b,
                a,
                d,
                d,
                preference.handle,
                1,
                &mut choice,
                &mut found,
            )
        };
        check("choose an algorithm", status)?;
        check("choose an algorithm", if found > 0 { choice.state } else { 15 })?;
        let flops = 2.0 * (product.m * product.n * product.k * product.count) as f64;
        Ok(Self { blas: Arc::clone(blas), description, layouts, algorithm: choice.algorithm, flops })
    }

    /// Floating-point operations of a launch.
    pub fn flops(&self) -> f64 {
        self.flops
    }

    /// Multiplies after all work that came before; with `adds` the result is added to what D holds.
    pub fn launch(&self, a: DevicePtr, b: DevicePtr, d: DevicePtr, adds: bool) -> Result<()> {
        let blas = &*self.blas;
        blas.gpu.bind()?;
        let (one, beta) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
        let (one, beta): (*const f32, *const f32) = (&one, &beta);
        let pointer = |address: DevicePtr| address.address() as *mut c_void;
        let [layout_b, layout_a, layout_d] = [0, 1, 2].map(|i| self.layouts[i].handle);
        // SAFETY: descriptions and factors are live; matrices are device memory, where a wrong size is the GPU's fault to report.
        let status = unsafe {
            (blas.call.cublasLtMatmul)(
                blas.handle,
                self.description.handle,
                one.cast(),
                pointer(b),
                layout_b,
                pointer(a),
                layout_a,
                beta.cast(),
                pointer(d),
                layout_d,
                pointer(d),
                layout_d,
                self.algorithm.as_ptr().cast(),
                pointer(blas.workspace.pointer()),
                WORKSPACE_BYTES,
                blas.gpu.stream,
            )
        };
        check("multiply", status)
    }
}

/// A matrix as the library has it: rows and columns by columns.
fn layout(
    call: &'static Functions,
    kind: c_int,
    (rows, columns): (usize, usize),
    matrix: &Matrix,
    count: usize,
) -> Result<Owned> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: the pointer is live.
    let status = unsafe {
        (call.cublasLtMatrixLayoutCreate)(&mut handle, kind, rows as u64, columns as u64, matrix.pitch as i64)
    };
    check("describe a matrix", status)?;
    let layout = Owned { handle, destroy: call.cublasLtMatrixLayoutDestroy };
    if count > 1 {
        let (count, stride) = (count as i32, matrix.stride as i64);
        let (count, stride): (*const i32, *const i64) = (&count, &stride);
        // SAFETY: the layout and the numbers are live; the attributes are an i32 and an i64.
        unsafe {
            let set = call.cublasLtMatrixLayoutSetAttribute;
            check("describe matrices", set(layout.handle, BATCH_COUNT, count.cast(), 4))?;
            check("describe matrices", set(layout.handle, BATCH_OFFSET, stride.cast(), 8))?;
        }
    }
    Ok(layout)
}
