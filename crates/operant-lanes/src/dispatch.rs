//! Which lanes a program runs on: asked once of the CPU, then a call per range of work.
//!
//! `--cfg operant_portable` leaves the x86 instructions out: the engine as other CPUs have it, compiled in the tests.
#![allow(unsafe_code)]

use super::Simd;
#[cfg(any(not(target_arch = "x86_64"), operant_portable, feature = "portable"))]
use super::portable::Portable;
use super::tiles::has_tiles;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
use super::{avx2::Avx2, avx512::Avx512};
use operant_base::Error;

/// Work that runs at whatever width it is given. Mark `run` and all that it calls `#[inline(always)]`: that is what
/// compiles it with the wide instructions.
pub trait Kernel {
    /// What `run` gives back.
    type Out;
    /// A type of the module that the machine code belongs to: `Self`, or what a kernel that wraps another's work wraps.
    /// The compiler makes the code of different modules side by side, and anew only where a module changed.
    type Home: ?Sized;
    /// Which maths it is compiled for.
    const MATHS: Maths = Maths::Both;
    /// Whether it is compiled as array code, in builds that have that. Unit tests on x86-64 leave it out: they compile their crate once more,
    /// and need AVX2.
    const PORTABLE: bool = true;
    /// Does the work on lanes `L`.
    fn run<L: Simd>(self) -> Self::Out;
}

/// The maths that a kernel is compiled for: each takes as long to build as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maths {
    /// Both, as they are asked for.
    Both,
    /// Strict, whichever is asked for: nothing in the code could be fused, or nobody asks for the other.
    Strict,
    /// Fast, whichever is asked for.
    Fast,
}

impl Maths {
    /// Networks are always fast; checks compare with strict results too.
    pub const OF_NETWORKS: Self = if cfg!(feature = "check") { Self::Both } else { Self::Fast };
}

/// Where wide instructions begin. The code of a trait's own methods is filed under the module of `Self`: free functions
/// here would put all kernels of the engine into one unit of compilation.
trait Entry {
    #[inline(never)]
    #[cfg(any(not(target_arch = "x86_64"), operant_portable, feature = "portable"))]
    fn portable<K: Kernel, const WIDTH: usize>(kernel: K) -> K::Out {
        if const { K::PORTABLE } { kernel.run::<Portable<WIDTH>>() } else { left_out() }
    }

    #[cfg(not(any(not(target_arch = "x86_64"), operant_portable, feature = "portable")))]
    fn portable<K: Kernel, const WIDTH: usize>(_: K) -> K::Out {
        left_out()
    }

    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    #[target_feature(enable = "avx2,fma,bmi2,popcnt")]
    unsafe fn avx2<K: Kernel, const FUSE: bool>(kernel: K) -> K::Out {
        kernel.run::<Avx2<FUSE>>()
    }

    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    #[target_feature(enable = "avx2,fma,bmi2,popcnt,avx512f,avx512dq,avx512bw,avx512vl")]
    unsafe fn avx512<K: Kernel, const FUSE: bool>(kernel: K) -> K::Out {
        kernel.run::<Avx512<FUSE>>()
    }
}

impl<T: ?Sized> Entry for T {}

/// Whether kernels are compiled as array code too: everywhere but on x86-64, where they would be a third of a build and nearly
/// all CPUs have AVX2. The feature `portable` has them there as well.
pub const HAS_PORTABLE: bool = cfg!(any(not(target_arch = "x86_64"), operant_portable, feature = "portable"));

/// The message for a CPU without AVX2 and for a request of one lane.
const LEFT_OUT: &str = "this build runs only on AVX2 and AVX-512, in 8 or 16 lanes; build with --features portable for one lane or another CPU";

#[cold]
fn left_out() -> ! {
    panic!("{LEFT_OUT}")
}

/// Refuses a CPU that this build has no code for.
pub fn check_cpu() -> operant_base::Result<()> {
    Backend::checked(Width::Auto, Math::Strict).map(drop)
}

/// Lanes asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Width {
    /// The widest that this CPU has registers for.
    #[default]
    Auto,
    /// One lane: the reference.
    One,
    /// Eight lanes.
    Eight,
    /// Sixteen lanes; eight where the CPU has no registers for them, unless checks are compiled (the feature `check`).
    Sixteen,
}

/// Whether `mul_add` may round once, and `reciprocal` and `rsqrt` need not round correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Math {
    /// Same bits on every width, CPU and device.
    #[default]
    Strict,
    /// Fused multiply-add and tables of reciprocals where the CPU has them: results differ in the last bits from strict mode.
    Fast,
}

/// The instructions that a [`Backend`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// One lane of array code.
    Portable1,
    /// Eight lanes of array code.
    Portable8,
    /// Sixteen lanes of array code, for checks.
    Portable16,
    /// Eight lanes in AVX2's registers.
    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    Avx2,
    /// Sixteen lanes in AVX-512's registers.
    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    Avx512,
}

/// Sixteen lanes without registers for them: a check of other lanes, that no program should run.
#[cfg(feature = "check")]
const PORTABLE_16: Isa = Isa::Portable16;
#[cfg(not(feature = "check"))]
const PORTABLE_16: Isa = Isa::Portable8;

/// Lanes that this CPU can run: holding one is the proof that its instructions were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    isa: Isa,
    math: Math,
    /// Whether f32 is multiplied on AMX tiles.
    tiles: bool,
}

#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

impl Backend {
    /// The best code of this width on this CPU.
    pub fn new(width: Width, math: Math) -> Self {
        Self { isa: Self::best(width), math, tiles: false }
    }

    /// The same; an error where this build has no code for it.
    pub fn checked(width: Width, math: Math) -> operant_base::Result<Self> {
        let backend = Self::new(width, math);
        match backend.isa {
            Isa::Portable1 | Isa::Portable8 if !HAS_PORTABLE => Err(Error::Invalid(LEFT_OUT.into())),
            _ => Ok(backend),
        }
    }

    /// The fastest code on this CPU: widest lanes, fused multiply-add, tiles.
    pub fn fast() -> Self {
        let widest = Self::new(Width::Auto, Math::Fast);
        Self { tiles: widest.width() == 16 && has_tiles(), ..widest }
    }

    /// The instruction set of this [`name`](Self::name) in fast mode: `amx` (AVX-512 with tiles), `avx512`, `avx2` or `portable`.
    pub fn named(name: &str) -> operant_base::Result<Self> {
        const NAMES: [&str; 4] = ["amx", "avx512", "avx2", "portable"];
        let (width, lacks) = match name {
            "amx" if Self::fast().tiles => return Ok(Self::fast()),
            "amx" => (Width::Sixteen, "avx512f, avx512_bf16, amx_tile and amx_bf16, and Linux"),
            "avx512" => (Width::Sixteen, "avx512f, avx512dq, avx512bw and avx512vl"),
            "avx2" => (Width::Eight, "avx2, fma, bmi2 and popcnt"),
            "portable" if HAS_PORTABLE => return Ok(Self { math: Math::Fast, ..Self::portable(Width::Eight) }),
            "portable" => return Err(Error::Invalid(LEFT_OUT.into())),
            _ => return Err(Error::unknown("instruction set", name, NAMES, "one of amx, avx512, avx2, portable")),
        };
        let backend = Self::new(width, Math::Fast);
        if backend.name() == name {
            return Ok(backend);
        }
        let widest = Self::fast().name();
        Err(Error::Invalid(format!(
            "instruction set \"{name}\" is not on this cpu or not in this build, which has \"{widest}\"; wanted a cpu with {lacks}; ask for \"{widest}\""
        )))
    }

    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    fn best(width: Width) -> Isa {
        match width {
            Width::One => Isa::Portable1,
            Width::Auto | Width::Sixteen if has_avx512() => Isa::Avx512,
            Width::Auto | Width::Eight if has_avx2() => Isa::Avx2,
            // Checks have sixteen lanes of array code.
            Width::Sixteen if has_avx2() && !cfg!(feature = "check") => Isa::Avx2,
            Width::Auto | Width::Eight => Isa::Portable8,
            Width::Sixteen => PORTABLE_16,
        }
    }

    #[cfg(any(not(target_arch = "x86_64"), operant_portable))]
    fn best(width: Width) -> Isa {
        match width {
            Width::One => Isa::Portable1,
            Width::Auto | Width::Eight => Isa::Portable8,
            Width::Sixteen => PORTABLE_16,
        }
    }

    /// Array code of this width, on any CPU where [`HAS_PORTABLE`]: what the tests hold the wide instructions against.
    pub fn portable(width: Width) -> Self {
        let isa = match width {
            Width::One => Isa::Portable1,
            Width::Auto | Width::Eight => Isa::Portable8,
            Width::Sixteen => PORTABLE_16,
        };
        Self { isa, math: Math::Strict, tiles: false }
    }

    /// The instruction set, for code that has its own kernels.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Lanes per value.
    pub fn width(self) -> usize {
        match self.isa {
            Isa::Portable1 => 1,
            Isa::Portable8 => 8,
            Isa::Portable16 => 16,
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx2 => 8,
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx512 => 16,
        }
    }

    /// Whether products of f32 run on tiles.
    #[inline(always)]
    pub fn tiles(self) -> bool {
        self.tiles
    }

    /// The same without tiles.
    #[inline(always)]
    pub fn without_tiles(self) -> Self {
        Self { tiles: false, ..self }
    }

    /// Whether results may differ in the last bits from strict mode.
    pub fn math(self) -> Math {
        self.math
    }

    /// The instruction set, as a word for reports.
    pub fn name(self) -> &'static str {
        match self.isa {
            _ if self.tiles => "amx",
            Isa::Portable1 => "scalar",
            Isa::Portable8 | Isa::Portable16 => "portable",
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx512 => "avx512",
        }
    }

    /// Runs a kernel on these lanes.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        // Constants, so that what a kernel does not need is not compiled.
        if const { matches!(K::MATHS, Maths::Strict) } {
            return self.run_with::<K, false>(kernel);
        }
        if const { matches!(K::MATHS, Maths::Fast) } {
            return self.run_with::<K, true>(kernel);
        }
        match self.math {
            Math::Strict => self.run_with::<K, false>(kernel),
            Math::Fast => self.run_with::<K, true>(kernel),
        }
    }

    fn run_with<K: Kernel, const FUSE: bool>(self, kernel: K) -> K::Out {
        match self.isa {
            Isa::Portable1 => <K::Home as Entry>::portable::<K, 1>(kernel),
            Isa::Portable8 => <K::Home as Entry>::portable::<K, 8>(kernel),
            #[cfg(feature = "check")]
            Isa::Portable16 => <K::Home as Entry>::portable::<K, 16>(kernel),
            #[cfg(not(feature = "check"))]
            Isa::Portable16 => left_out(),
            // SAFETY: a `Backend` with this set is only made after the CPU was asked for these features.
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx2 => unsafe { <K::Home as Entry>::avx2::<K, FUSE>(kernel) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx512 => unsafe { <K::Home as Entry>::avx512::<K, FUSE>(kernel) },
        }
    }

    /// Runs a kernel in fast mode on the nearest of three lane types (AVX-512, AVX2, four portable lanes), whatever width
    /// and math this backend has: a large kernel then compiles three times and not seven.
    pub fn run_fast<K: Kernel>(self, kernel: K) -> K::Out {
        match self.isa {
            // SAFETY: a `Backend` with this set is only made after the CPU was asked for these features.
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx2 => unsafe { <K::Home as Entry>::avx2::<K, true>(kernel) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
            Isa::Avx512 => unsafe { <K::Home as Entry>::avx512::<K, true>(kernel) },
            // Four lanes fill a register of the least that x86-64 and aarch64 have.
            _ => <K::Home as Entry>::portable::<K, 4>(kernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Float;
    use super::*;

    /// Width, and whether `mul_add` rounds once.
    struct Probe;

    impl Kernel for Probe {
        type Out = (usize, bool);
        type Home = Self;
        #[inline(always)]
        fn run<L: Simd>(self) -> (usize, bool) {
            let x = L::F::from(1.0 + f32::EPSILON);
            let lost = x.mul_add(x, -(x * x));
            (L::WIDTH, L::mask_bits(lost.eq(0.0)) == 0)
        }
    }

    #[test]
    fn fast_runs_take_the_nearest_of_three() {
        for (width, math) in [(Width::One, Math::Strict), (Width::Sixteen, Math::Strict), (Width::Auto, Math::Fast)] {
            assert_eq!(Backend { math, ..Backend::portable(width) }.run_fast(Probe), (4, false));
        }
        for width in [Width::Eight, Width::Sixteen] {
            let (strict, fast) = (Backend::new(width, Math::Strict), Backend::new(width, Math::Fast));
            assert_eq!(strict.run_fast(Probe), fast.run_fast(Probe));
            if strict.name() != "portable" {
                assert_eq!(strict.run_fast(Probe), (strict.width(), true));
            }
        }
    }

    #[test]
    fn names_force_an_instruction_set() {
        assert_eq!(Backend::named("portable").unwrap().name(), "portable");
        let widest = Backend::fast();
        assert_eq!(Backend::named(widest.name()), Ok(widest));
        for name in ["amx", "avx512", "avx2"] {
            match Backend::named(name) {
                Ok(backend) => assert_eq!((backend.name(), backend.math()), (name, Math::Fast)),
                Err(error) => assert!(error.to_string().contains(widest.name()), "{error}"),
            }
        }
        let message = Backend::named("avx521").unwrap_err().to_string();
        assert!(message.contains("did you mean \"avx512\"?"), "{message}");
    }
}
