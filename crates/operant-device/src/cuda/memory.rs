//! Memory of a GPU: taken when things are built, given back when they are dropped.
#![allow(unsafe_code)]

use super::driver::OUT_OF_MEMORY;
use super::gpu::Gpu;
use operant_base::{Error, Result};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a wait takes a core to itself.
const MOST_SPUN: Duration = Duration::from_millis(2);

/// An address in a GPU's memory, as kernels take it; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct DevicePtr(u64);

impl DevicePtr {
    /// No address: a kernel leaves out what it would write there.
    pub const NONE: Self = Self(0);

    /// An address that another library of this process gave.
    ///
    /// # Safety
    /// Where a kernel reads or writes through it, memory of that GPU lies there, as large as the kernel is told, until it is done.
    pub unsafe fn from_address(address: u64) -> Self {
        Self(address)
    }

    /// The address `bytes` further on.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// As a number, for other libraries.
    pub fn address(self) -> u64 {
        self.0
    }
}

/// What buffers hold.
///
/// # Safety
/// Any bits are a value, and there is no padding.
pub unsafe trait Element: Copy + Default + 'static {}
// SAFETY: numbers.
unsafe impl Element for u8 {}
// SAFETY: numbers.
unsafe impl Element for u16 {}
// SAFETY: numbers.
unsafe impl Element for i32 {}
// SAFETY: numbers.
unsafe impl Element for u32 {}
// SAFETY: numbers.
unsafe impl Element for i64 {}
// SAFETY: numbers.
unsafe impl Element for u64 {}
// SAFETY: numbers.
unsafe impl Element for f32 {}
// SAFETY: numbers.
unsafe impl Element for f64 {}

/// `len` elements in a GPU's memory.
#[derive(Debug)]
pub struct Buffer<T> {
    gpu: Arc<Gpu>,
    pointer: DevicePtr,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T: Element> Buffer<T> {
    /// Zeroed memory for `len` elements. `what` it is and the `setting` to lower are for the message if there is none.
    pub fn new(gpu: &Arc<Gpu>, len: usize, what: &str, setting: &str) -> Result<Self> {
        gpu.bind()?;
        // An empty buffer has an address too: kernels tell buffers from none by it.
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let address = gpu.allocate(bytes).map_err(|status| {
            if status != OUT_OF_MEMORY {
                return gpu.driver.check(&format!("allocate {what}"), status).err().unwrap_or_else(|| {
                    Error::Device(format!("cuda cannot allocate {what}: it says that nothing is wrong"))
                });
            }
            let (free, total) = gpu.memory().unwrap_or((0, gpu.info().memory_bytes));
            Error::Device(format!(
                "no GPU memory for {what}: asked for {}, {} of {} are free on {}; lower {setting}",
                size(bytes),
                size(free),
                size(total),
                gpu.info().name
            ))
        })?;
        Ok(Self { gpu: gpu.clone(), pointer: DevicePtr(address), len, of: PhantomData })
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it lies.
    pub fn pointer(&self) -> DevicePtr {
        self.pointer
    }

    /// Sets all bits to 0, in the order of the stream.
    pub fn zero(&self) -> Result<()> {
        self.gpu.bind()?;
        let (call, bytes) = (&self.gpu.driver.call, self.len * size_of::<T>());
        // SAFETY: the buffer has that many bytes.
        let status = unsafe { (call.cuMemsetD8Async)(self.pointer.0, 0, bytes, self.gpu.stream) };
        self.gpu.driver.check("clear memory", status)
    }

    /// Copies from the host to the front of the buffer, whose elements may be of another kind.
    pub fn upload<U: Element>(&self, from: &[U]) -> Result<()> {
        self.upload_at(0, from)
    }

    /// The same from the buffer's element `first` on.
    pub fn upload_at<U: Element>(&self, first: usize, from: &[U]) -> Result<()> {
        let (bytes, before) = (size_of_val(from), first * size_of::<T>());
        let all = self.len * size_of::<T>();
        assert!(before + bytes <= all, "{bytes} bytes from byte {before} on for a buffer of {all}");
        self.gpu.bind()?;
        let (call, to) = (&self.gpu.driver.call, self.pointer.offset(before));
        // SAFETY: both sides have that many bytes, and the wait below keeps `from` alive until they are copied.
        let status = unsafe { (call.cuMemcpyHtoDAsync_v2)(to.0, from.as_ptr().cast(), bytes, self.gpu.stream) };
        self.gpu.driver.check("copy to the GPU", status)?;
        self.gpu.synchronize()
    }

    /// Copies all of another buffer of the same length, after all work that came before.
    pub fn copy_from(&self, from: &Self) -> Result<()> {
        assert_eq!(self.len, from.len, "elements of two buffers");
        self.copy_part(0, from, self.len)
    }

    /// Copies all of it to another buffer of the same length, after all work of this one's stream that came before.
    pub fn copy_to(&self, to: &Self) -> Result<()> {
        assert_eq!(self.len, to.len, "elements of two buffers");
        self.copy_in_stream(to.pointer, self.pointer, self.len)
    }

    /// Copies `count` elements from `first` on from the same place of another buffer, after all work that came before.
    pub fn copy_part(&self, first: usize, from: &Self, count: usize) -> Result<()> {
        assert!(first + count <= self.len.min(from.len), "{count} elements from {first} on of {}", self.len);
        let [to, from] = [self.pointer, from.pointer].map(|buffer| buffer.offset(first * size_of::<T>()));
        self.copy_in_stream(to, from, count)
    }

    /// In the order of this buffer's stream. Both places are in live buffers that have so many elements there.
    fn copy_in_stream(&self, to: DevicePtr, from: DevicePtr, count: usize) -> Result<()> {
        self.gpu.bind()?;
        let (call, bytes) = (&self.gpu.driver.call, count * size_of::<T>());
        // SAFETY: those who call this have looked at the lengths.
        let status = unsafe { (call.cuMemcpyDtoDAsync_v2)(to.0, from.0, bytes, self.gpu.stream) };
        self.gpu.driver.check("copy memory", status)
    }

    /// Copies elements from `first` on to the host, after all work that came before.
    pub fn download(&self, first: usize, to: &mut [T]) -> Result<()> {
        assert!(first + to.len() <= self.len, "{} elements from {first} on of {}", to.len(), self.len);
        self.gpu.bind()?;
        let (call, from) = (&self.gpu.driver.call, self.pointer.offset(first * size_of::<T>()));
        // SAFETY: both sides have that many bytes, any bits are a T, and the wait below ends the copy.
        let status =
            unsafe { (call.cuMemcpyDtoHAsync_v2)(to.as_mut_ptr().cast(), from.0, size_of_val(to), self.gpu.stream) };
        self.gpu.driver.check("copy from the GPU", status)?;
        self.gpu.synchronize()
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.gpu.free(self.pointer.0, (self.len * size_of::<T>()).max(1));
    }
}

/// `len` elements in the host's memory that kernels read and write: what is small, or is used once, goes between the two without a copy.
#[derive(Debug)]
pub struct HostBuffer<T> {
    gpu: Arc<Gpu>,
    host: *mut T,
    pointer: DevicePtr,
    len: usize,
}

// SAFETY: the memory is this buffer's alone, and any thread may read it.
unsafe impl<T: Send> Send for HostBuffer<T> {}

impl<T: Element> HostBuffer<T> {
    /// Zeroed memory for `len` elements; `what` it is is for the message if there is none. All of these grow with `num_envs`.
    pub fn new(gpu: &Arc<Gpu>, len: usize, what: &str) -> Result<Self> {
        /// Kernels may use it.
        const MAPPED: u32 = 2;
        gpu.bind()?;
        let (mut host, mut address) = (std::ptr::null_mut(), 0);
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        // SAFETY: the pointer is live.
        let status = unsafe { (gpu.driver.call.cuMemHostAlloc)(&mut host, bytes, MAPPED) };
        if status == OUT_OF_MEMORY {
            return Err(Error::Device(format!(
                "no page-locked host memory for {what}: asked for {}; lower num_envs, or raise the limit (ulimit -l)",
                size(bytes)
            )));
        }
        gpu.driver.check(&format!("allocate {what} in the host's memory"), status)?;
        let mut buffer = Self { gpu: gpu.clone(), host: host.cast(), pointer: DevicePtr::NONE, len };
        // SAFETY: the memory has that many elements, of which zeroed bits are a value.
        unsafe { std::ptr::write_bytes(buffer.host, 0, len) };
        // SAFETY: the memory was allocated for this; the pointer is live.
        let status = unsafe { (gpu.driver.call.cuMemHostGetDevicePointer_v2)(&mut address, host, 0) };
        gpu.driver.check(&format!("find {what} in the host's memory"), status)?;
        buffer.pointer = DevicePtr(address);
        Ok(buffer)
    }

    /// Where kernels reach it.
    pub fn pointer(&self) -> DevicePtr {
        self.pointer
    }

    /// The elements. The caller has waited for the kernels that write them.
    pub fn slice(&self) -> &[T] {
        // SAFETY: it has so many elements, and nobody writes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.host, self.len) }
    }

    /// The elements, to be written. The caller has waited for the kernels that use them.
    pub fn slice_mut(&mut self) -> &mut [T] {
        // SAFETY: it has so many elements, and nobody else uses them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.host, self.len) }
    }

    /// Waits until a kernel under way has written element `at` so that `there` holds; what it wrote before is there by then.
    /// Quicker than an event by what the driver takes to notice one; what takes long is left to the driver.
    pub fn wait_for(&self, at: usize, there: impl Fn(T) -> bool) -> Result<()> {
        assert!(at < self.len, "element {at} of {}", self.len);
        // SAFETY: it has the element; volatile, because the compiler does not know who writes it.
        let seen = || there(unsafe { self.host.add(at).read_volatile() });
        let started = Instant::now();
        while !seen() {
            (0..8).for_each(|_| std::hint::spin_loop());
            if started.elapsed() > MOST_SPUN {
                self.gpu.synchronize()?;
                if !seen() {
                    return Err(Error::Device("cuda did all its work, and what was waited for is not there".into()));
                }
            }
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        Ok(())
    }

    /// Copies its front. The caller has waited for the kernels that write it.
    pub fn read(&self, to: &mut [T]) {
        assert!(to.len() <= self.len, "{} elements of {}", to.len(), self.len);
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: it has so many elements; volatile, because the compiler does not know who writes them.
            *to = unsafe { self.host.add(i).read_volatile() };
        }
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        // Kernels that write it may be under way.
        if self.gpu.bind().is_ok() && self.gpu.synchronize().is_ok() {
            // SAFETY: it was allocated once and is not used again.
            let _ = unsafe { (self.gpu.driver.call.cuMemFreeHost)(self.host.cast()) };
        }
    }
}

/// Bytes as people read them.
pub(super) fn size(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{bytes} bytes"),
    }
}
