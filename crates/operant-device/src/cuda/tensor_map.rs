//! Descriptions of tensors of five axes, by which the copy engine of Hopper GPUs brings boxes of them into shared memory.
#![allow(unsafe_code)]

use super::gpu::Gpu;
use super::memory::DevicePtr;
use operant_base::Result;
use std::sync::Arc;

/// `CUtensorMap`: passed to kernels by value.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorNumbers {
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
}

impl TensorNumbers {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }
}

impl TensorMap {
    /// Axes that lie one after the other, the nearest first; a box has 128 bytes of the first, whose sixteen-byte parts are
    /// swizzled as matrix products want them. Beyond the tensor there are zeros.
    pub fn new(
        gpu: &Arc<Gpu>,
        numbers: TensorNumbers,
        at: DevicePtr,
        sizes: [usize; 5],
        boxed: [usize; 5],
    ) -> Result<Self> {
        /// `CU_TENSOR_MAP_SWIZZLE_128B`
        const SWIZZLE_128: i32 = 3;
        /// `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`
        const WHOLE_LINES: i32 = 3;
        let kind = match numbers {
            TensorNumbers::F16 => 6,
            TensorNumbers::F32 => 7,
            TensorNumbers::Bf16 => 9,
        };
        let sizes = sizes.map(|size| size as u64);
        let mut strides = [sizes[0] * numbers.bytes() as u64; 4];
        for axis in 1..4 {
            strides[axis] = strides[axis - 1] * sizes[axis];
        }
        let (boxed, steps) = (boxed.map(|size| size as u32), [1u32; 5]);
        let mut map = Self::default();
        gpu.bind()?;
        // SAFETY: all pointers are to live arrays of five or four numbers, the first to 128 aligned bytes.
        let status = unsafe {
            (gpu.driver.call.cuTensorMapEncodeTiled)(
                std::ptr::from_mut(&mut map).cast(),
                kind,
                5,
                at.address(),
                sizes.as_ptr(),
                strides.as_ptr(),
                boxed.as_ptr(),
                steps.as_ptr(),
                0,
                SWIZZLE_128,
                WHOLE_LINES,
                0,
            )
        };
        gpu.driver.check("describe a tensor", status)?;
        Ok(map)
    }
}
