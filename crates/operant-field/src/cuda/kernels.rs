//! The kernels of operators: their text, their arguments and how many threads they take.

use super::first::{FIRST_AT_ONCE, FIRST_SHARED, FirstArgs, SURVEY_THREADS, SURVEYORS, SurveyArgs, survey_shared};
use operant_base::{Error, Result};
use operant_device::cuda::{DevicePtr, Gpu, Kernel, Params, TensorMap, TensorNumbers};
use operant_lanes::Math;
use operant_nn::Precision;
use std::fmt::Write;
use std::sync::Arc;

/// `ConvArgs` of `convolve.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct ConvArgs {
    pub x: TensorMap,
    pub w: TensorMap,
    pub to: TensorMap,
    pub y: DevicePtr,
    pub bias: DevicePtr,
    pub parts: DevicePtr,
    pub images: u32,
    pub side: u32,
    pub outputs: u32,
    pub rows_per_op: u32,
    pub kernel: u32,
    pub origin: u32,
    pub chunks: u32,
    pub tiles: u32,
    pub blocks_n: u32,
    pub a_slots: u32,
    pub b_slots: u32,
    pub resident: u32,
    pub counted: u32,
    pub paired: u32,
    pub log_tiles: u32,
    pub log_columns: u32,
    pub op_magic: u32,
    pub block_magic: u32,
    pub passes: u32,
}
impl Params for ConvArgs {}

/// `GatherArgs` of `convolve.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct GatherArgs {
    pub parts: DevicePtr,
    pub affine: DevicePtr,
    pub sums: DevicePtr,
    pub norm: DevicePtr,
    pub padded: u32,
    pub parts_per_image: u32,
    pub channels: u32,
    pub norm_channels: u32,
    pub rows_per_op: u32,
    pub share: f32,
}
impl Params for GatherArgs {}

/// `FinishArgs` of `finish.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct FinishArgs {
    pub y: DevicePtr,
    pub past: DevicePtr,
    pub out: DevicePtr,
    pub norm: DevicePtr,
    pub keys: DevicePtr,
    pub clock: DevicePtr,
    pub dropped: DevicePtr,
    pub side: u32,
    pub channels: u32,
    pub padded: u32,
    pub border: u32,
    pub past_is_activation: u32,
    pub log_channels: u32,
    pub layer: u32,
    pub act: u32,
    pub rows_per_op: u32,
    pub octets: u32,
    pub log_side: u32,
    pub images: u32,
}
impl Params for FinishArgs {}

impl FinishArgs {
    /// Whether `wide.cu` is for it: a warp's rows of 64 numbers lie in one row of an image.
    pub(super) fn is_wide(&self, precision: Precision) -> bool {
        Self::serves(self.channels as usize, self.side as usize, precision)
    }

    /// The same for a shape.
    pub(super) fn serves(channels: usize, side: usize, precision: Precision) -> bool {
        numbers(precision).bytes() == 2
            && matches!(channels, 64 | 128 | 256)
            && side * channels >= 64 * WIDE_ROWS as usize
    }

    /// Rows of 64 numbers that a warp of `wide.cu` has at once.
    pub(super) fn rows_at_once(&self) -> u32 {
        if self.past == DevicePtr::NONE { WIDE_ROWS } else { WIDE_ROWS / 2 }
    }

    /// Blocks of `wide.cu`: all that run at once, unless there is less to do.
    fn wide_blocks(&self, at_once: u32) -> u32 {
        let tiles = self.images * self.side * self.side * (self.channels / 64) / self.rows_at_once();
        tiles.div_ceil(WIDE_WARPS).min(at_once)
    }
}

/// `Norms` of `wide.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Norms {
    pub sums: DevicePtr,
    pub clear: DevicePtr,
    pub affine: DevicePtr,
    pub share: f64,
    pub cleared: u32,
    pub unused: u32,
}

impl Norms {
    /// For kernels that read scales and shifts which others made.
    pub(super) fn must_be_none(&self) -> Result<()> {
        if self.sums == DevicePtr::NONE {
            return Ok(());
        }
        Err(Error::Invalid("sums as whole numbers in front of a kernel that makes no norms of them".into()))
    }

    /// Scales and shifts are made by a kernel of their own, or once.
    pub(super) const MADE: Self = Self {
        sums: DevicePtr::NONE,
        clear: DevicePtr::NONE,
        affine: DevicePtr::NONE,
        share: 0.0,
        cleared: 0,
        unused: 0,
    };
}

/// `WideArgs` of `wide.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct WideArgs {
    pub y: TensorMap,
    pub past: TensorMap,
    pub out: TensorMap,
    pub f: FinishArgs,
    pub n: Norms,
}
impl Params for WideArgs {}

/// `PastArgs` of `past.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct PastArgs {
    pub y: TensorMap,
    pub x: TensorMap,
    pub w: TensorMap,
    pub out: TensorMap,
    pub f: FinishArgs,
    pub n: Norms,
    pub bias: DevicePtr,
    pub chunks: u32,
    pub unused: u32,
}
impl Params for PastArgs {}

impl PastArgs {
    /// Pixels of a team of four warps, and outputs of a product.
    pub(super) const AT_ONCE: usize = 64;

    /// Whether `past.cu` is for a 1×1 convolution of this many channels in and out past a block.
    pub(super) fn serves(inputs: usize, outputs: usize, grid: usize, precision: Precision) -> bool {
        let served = matches!(inputs, 64 | 128) && matches!(outputs, 128 | 256);
        served && grid >= Self::AT_ONCE && numbers(precision).bytes() == 2
    }

    /// The output whose weights lie at this place: of a pair of 64 channels first the first half of each sixteen.
    pub(super) fn output_at(place: usize) -> usize {
        let (pair, half, sixteen, which) = (place / 128, place / 64 % 2, place / 8 % 8, place % 8);
        pair * 128 + sixteen * 16 + half * 8 + which
    }

    /// Blocks: as many for each pair of 64 channels as run at once, unless there is less to do.
    fn blocks(&self, at_once: u32) -> u32 {
        let (pairs, tiles) = (self.f.channels / 128, self.f.images * self.f.side.pow(2) / Self::AT_ONCE as u32);
        (at_once / pairs).clamp(1, tiles) * pairs
    }
}

/// `LastArgs` of `finish.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LastArgs {
    pub f: FinishArgs,
    pub weight: DevicePtr,
    pub by_lane: DevicePtr,
    pub bias: DevicePtr,
    pub scales: DevicePtr,
    pub factor: DevicePtr,
    pub correlated: DevicePtr,
    pub update: DevicePtr,
    pub state: DevicePtr,
    pub output: DevicePtr,
    pub trace: DevicePtr,
    pub state_len: u64,
    pub clamp: f32,
    pub field_channels: u32,
    pub law: u32,
    pub noise_layer: u32,
    pub steps: u32,
    pub lanes: u32,
    pub trace_slots: u32,
    pub unused: u32,
}
impl Params for LastArgs {}

impl LastArgs {
    /// Whether Gaussian noise comes behind the way back.
    fn is_behind(&self) -> bool {
        self.law == 0
    }

    /// Whether `wide.cu` is for it: noise comes behind, or is white, a number each.
    pub(super) fn is_wide(&self, precision: Precision) -> bool {
        let served = self.is_behind() || self.law != 2 && self.correlated == DevicePtr::NONE;
        self.f.is_wide(precision) && self.field_channels <= 4 && served
    }
}

/// `WideLastArgs` of `wide.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct WideLastArgs {
    pub y: TensorMap,
    pub past: TensorMap,
    pub last: LastArgs,
    pub n: Norms,
}
impl Params for WideLastArgs {}

/// `UnfoldArgs` of `finish.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct UnfoldArgs {
    pub state: DevicePtr,
    pub out: DevicePtr,
    pub clock: DevicePtr,
    pub images: u32,
    pub side: u32,
    pub field_channels: u32,
    pub kernel: u32,
    pub padded: u32,
    pub split: u32,
    pub magic: u32,
    pub log_side: u32,
}
impl Params for UnfoldArgs {}

/// `StemArgs` of `stem.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct StemArgs {
    pub conv: ConvArgs,
    pub state: DevicePtr,
    pub clock: DevicePtr,
    pub field_channels: u32,
    pub unused: [u32; 11],
}
impl Params for StemArgs {}

impl StemArgs {
    /// Whether `stem.cu` is for convolutions of this many channels in and out with kernels of this side.
    pub(super) fn serves(field_channels: usize, outputs: usize, kernel: usize, precision: Precision) -> bool {
        kernel == 3 && field_channels <= 3 && outputs <= 64 && numbers(precision).bytes() == 2
    }
}

/// `NormaliseArgs` of `finish.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct NormaliseArgs {
    pub state: DevicePtr,
    pub trace: DevicePtr,
    pub clock: DevicePtr,
    pub state_len: u64,
    pub side: u32,
    pub field_channels: u32,
    pub clamp: f32,
    pub trace_slots: u32,
}
impl Params for NormaliseArgs {}

/// `CorrelateArgs` of `finish.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct CorrelateArgs {
    pub modes: DevicePtr,
    pub from: DevicePtr,
    pub to: DevicePtr,
    pub keys: DevicePtr,
    pub clock: DevicePtr,
    pub images: u32,
    pub side: u32,
    pub channels: u32,
    pub rows: u32,
    pub columns: u32,
    pub layer: u32,
}
impl Params for CorrelateArgs {}

/// One launch. A list has a few dozen, made once.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Step {
    Unfold(UnfoldArgs),
    Stem(StemArgs),
    /// And rows.
    Survey(SurveyArgs, u32),
    First(FirstArgs),
    /// Place in [`TILES`].
    Convolve(usize, ConvArgs),
    /// And rows.
    Gather(GatherArgs, u32),
    Join(GatherArgs, u32),
    /// And pixels of all rows.
    Finish(FinishArgs, u32),
    FinishWide(WideArgs),
    FinishPast(PastArgs),
    Last(LastArgs, u32),
    LastWide(WideLastArgs),
    /// And channels of all rows.
    Normalise(NormaliseArgs, u32),
    DrawModes(CorrelateArgs),
    Correlate(CorrelateArgs),
}

impl Step {
    /// In words, for profiles.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Unfold(_) => "unfold".into(),
            Self::Stem(a) => format!("stem to {}", a.conv.outputs),
            Self::Survey(..) => "survey".into(),
            Self::First(a) => format!("first to {}", a.f.channels),
            Self::Convolve(_, a) => format!("convolve {}x{} to {}", a.kernel, a.kernel, a.outputs),
            Self::Gather(..) => "gather".into(),
            Self::Join(..) => "join".into(),
            Self::Finish(a, _) | Self::FinishWide(WideArgs { f: a, .. }) => format!("finish {}", a.channels),
            Self::FinishPast(a) => format!("finish {} with what comes past", a.f.channels),
            Self::Last(a, _) | Self::LastWide(WideLastArgs { last: a, .. }) => {
                format!("finish {} and step", a.f.channels)
            }
            Self::Normalise(..) => "normalise".into(),
            Self::DrawModes(_) => "draw modes".into(),
            Self::Correlate(_) => "correlate".into(),
        }
    }
}

/// For `divided` of `convolve.cu`; `__umulhi` by it alone divides numbers below 2¹⁶ by n, if that is 2 or more.
pub(super) fn magic(n: u32) -> u32 {
    (u32::MAX / n).wrapping_add(1)
}

/// A kernel that convolves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    name: &'static str,
    /// Of a tile.
    pub outputs: usize,
    /// Warpgroups that multiply.
    pub groups: usize,
    /// Channels by pixels, for numbers of two bytes.
    pub turned: bool,
}

/// From few outputs to many; behind them two for 3×3 taps.
pub(super) const TILES: [Tile; 7] = [
    Tile { name: "turned_64", outputs: 64, groups: 2, turned: true },
    Tile { name: "turned_128", outputs: 128, groups: 2, turned: true },
    Tile { name: "convolve_64", outputs: 64, groups: 4, turned: false },
    Tile { name: "convolve_128", outputs: 128, groups: 4, turned: false },
    Tile { name: "convolve_256", outputs: 256, groups: 2, turned: false },
    Tile { name: "tall", outputs: 64, groups: 2, turned: true },
    Tile { name: "tall_128", outputs: 128, groups: 2, turned: true },
];
/// The places there of kernels of `tall.cu`, whose tiles are of this shape: from 64 channels to 64 at most, and from any number to more.
pub(super) const TALL: usize = 5;
pub(super) const TALL_128: usize = 6;
pub(super) const TALL_COLUMNS: usize = 8;
pub(super) const TALL_ROWS: usize = 32;

impl Tile {
    /// Of any kernel.
    pub(super) const LEAST_PART: usize = 64;

    /// The place in [`TILES`] of the kernel for so many outputs.
    pub(super) fn place(outputs: usize, numbers: TensorNumbers) -> usize {
        let turned = numbers.bytes() == 2;
        let fits = |tile: &Self| outputs <= tile.outputs && tile.turned == turned;
        TILES.iter().position(fits).unwrap_or(if turned { 1 } else { 4 })
    }

    /// Rows of 16 pixels.
    pub(super) fn rows(self) -> usize {
        if self.turned { 16 } else { 8 }
    }

    /// Pixels whose sums leave together.
    pub(super) fn part(self) -> usize {
        if self.turned { 256 } else { Self::LEAST_PART }
    }
}

/// Shared memory of a block on Hopper GPUs, in bytes.
pub(super) const SHARED: usize = 227 << 10;
/// Teams of the first convolution, and their 256 pixels' neighbourhoods, weights, and room to write from.
const STEM_TEAMS: u32 = 3;
const STEM_SHARED: usize = 1024 + STEM_TEAMS as usize * 128 * (256 + 64 + 256);
/// Teams of `past.cu`.
const PAST_TEAMS: u32 = 4;
/// Threads of kernels between convolutions, and their pixels.
const THREADS: u32 = 256;
const PIXELS: u32 = 128;
/// Warps of those of `wide.cu`, and rows of 64 numbers that each has at once, if nothing comes past them.
const WIDE_WARPS: u32 = 4;
const WIDE_ROWS: u32 = 32;
/// Bytes of an image's scales and shifts there.
const WIDE_NORMS: usize = 2048;
/// Sums that convolutions add to as whole numbers are multiples of two to the power of minus this.
pub(super) const WHOLE_BITS: u32 = 20;
/// Their shared memory: two times those rows and a barrier for each warp, and an image's scales and shifts; for the last layer normals of
/// noise and sums of 32 pixels besides.
const WIDE_SHARED: usize = 1024 + WIDE_WARPS as usize * 2 * (WIDE_ROWS as usize * 128 + 8) + WIDE_NORMS;
const LAST_SHARED: usize = WIDE_SHARED + WIDE_WARPS as usize * 4 * (192 + 128);
/// Kernels of `wide.cu` and, for last layers of more channels, of `last.cu`: their names for 64 channels and for more, and blocks of them that run at once on a multiprocessor.
const FINISH: [(&str, u32); 2] = [("finish_64", 6), ("finish_wide", 6)];
const LAST_WHITE: [(&str, u32); 2] = [("white_64", 4), ("white_wide", 4)];
const LAST_BEHIND: [(&str, u32); 2] = [("behind_64", 5), ("behind_wide", 4)];
/// Channels that a block gathers.
const GATHERED: u32 = 16;
/// Pixels of a block that unfolds.
const UNFOLDED: u32 = 64;

fn kind(precision: Precision) -> usize {
    match precision {
        Precision::Bf16 => 0,
        Precision::F16 => 1,
        Precision::Tf32 => 2,
        Precision::F32 => 3,
    }
}

/// How numbers of tensors lie in memory.
pub(super) fn numbers(precision: Precision) -> TensorNumbers {
    match precision {
        Precision::Bf16 => TensorNumbers::Bf16,
        Precision::F16 => TensorNumbers::F16,
        Precision::Tf32 | Precision::F32 => TensorNumbers::F32,
    }
}

/// Products of 64 rows by n columns and 32 bytes of both operands' rows; `keep` adds to what is there.
fn multiply(precision: Precision, n: usize) -> String {
    let (depth, name, flags) = match precision {
        Precision::Bf16 => (16, "bf16", ", 0, 0"),
        Precision::F16 => (16, "f16", ", 0, 0"),
        Precision::Tf32 | Precision::F32 => (8, "tf32", ""),
    };
    let count = n / 2;
    let places: Vec<String> = (0..count).map(|i| format!("%{i}")).collect();
    let results: Vec<String> = (0..count).map(|i| format!("\"+f\"(d[{i}])")).collect();
    format!(
        "template <> __device__ __forceinline__ void multiply<{n}>(float (&d)[{count}], u64 left, u64 right, int keep) {{\n\
         asm volatile(\"{{.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\nwgmma.mma_async.sync.aligned.m64n{n}k{depth}.f32.{name}.{name} \
         {{{}}}, %{}, %{}, p, 1, 1{flags};}}\" : {} : \"l\"(left), \"l\"(right), \"r\"(keep));\n}}\n",
        count + 2,
        places.join(", "),
        count,
        count + 1,
        results.join(", "),
    )
}

/// All kernels for a precision, in CUDA C for `sm_90a`.
pub fn source(precision: Precision) -> String {
    let sizes = [
        ("KIND", kind(precision)),
        ("CONV_BYTES", size_of::<ConvArgs>()),
        ("GATHER_BYTES", size_of::<GatherArgs>()),
        ("FINISH_BYTES", size_of::<FinishArgs>()),
        ("LAST_BYTES", size_of::<LastArgs>()),
        ("WIDE_BYTES_OF_ARGS", size_of::<WideArgs>()),
        ("WIDE_LAST_BYTES", size_of::<WideLastArgs>()),
        ("PAST_BYTES", size_of::<PastArgs>()),
        ("UNFOLD_BYTES", size_of::<UnfoldArgs>()),
        ("STEM_BYTES", size_of::<StemArgs>()),
        ("SURVEY_BYTES", size_of::<SurveyArgs>()),
        ("FIRST_BYTES", size_of::<FirstArgs>()),
        ("NORMALISE_BYTES", size_of::<NormaliseArgs>()),
        ("CORRELATE_BYTES", size_of::<CorrelateArgs>()),
        ("WHOLE_BITS", WHOLE_BITS as usize),
        ("WIDE_NORMS", WIDE_NORMS),
    ];
    let mut text = String::new();
    for (name, value) in sizes {
        // Writing to a string does not fail.
        let _ = writeln!(text, "#define {name} {value}");
    }
    text += include_str!("numbers.cu");
    text += "template <int N> __device__ void multiply(float (&d)[N / 2], u64 left, u64 right, int keep);\n";
    for n in [64, 128, 256] {
        text += &multiply(precision, n);
    }
    text + include_str!("convolve.cu")
        + include_str!("tall.cu")
        + include_str!("finish.cu")
        + include_str!("wide.cu")
        + include_str!("last.cu")
        + include_str!("past.cu")
        + include_str!("stem.cu")
        + include_str!("first.cu")
}

/// Those of `wide.cu`, `last.cu`, `past.cu`, `stem.cu` and `first.cu`.
#[derive(Debug)]
struct Wide {
    stem: Kernel<StemArgs>,
    survey: Kernel<SurveyArgs>,
    first: Kernel<FirstArgs>,
    past: Kernel<PastArgs>,
    /// For 64 channels, and for more.
    finish: [Kernel<WideArgs>; 2],
    last_white: [Kernel<WideLastArgs>; 2],
    last_behind: [Kernel<WideLastArgs>; 2],
}

/// Loaded kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    unfold: Kernel<UnfoldArgs>,
    /// By place in [`TILES`].
    convolve: Vec<Option<Kernel<ConvArgs>>>,
    gather: Kernel<GatherArgs>,
    join: Kernel<GatherArgs>,
    finish: Kernel<FinishArgs>,
    last: Kernel<LastArgs>,
    /// For numbers of two bytes.
    wide: Option<Wide>,
    normalise: Kernel<NormaliseArgs>,
    draw_modes: Kernel<CorrelateArgs>,
    correlate: Kernel<CorrelateArgs>,
    /// Blocks that run at once, one per multiprocessor.
    blocks: u32,
}

impl Kernels {
    /// For operators whose last layer has so many channels, and whose field is of this side and so many.
    pub(super) fn load(
        gpu: &Arc<Gpu>,
        precision: Precision,
        channels: usize,
        (side, of_field): (usize, usize),
    ) -> Result<Self> {
        let name = format!("field operators in {}", precision.name());
        let module = gpu.load_for("sm_90a", &name, &source(precision), Math::Fast)?;
        let convolve = |tile: &Tile| match tile.turned == (numbers(precision).bytes() == 2) {
            true => module.kernel(tile.name)?.with_shared(SHARED).map(Some),
            false => Ok(None),
        };
        let drawn = (64 * channels.next_multiple_of(64)).max(PIXELS as usize * of_field) * size_of::<f32>();
        let finish = |place: usize| module.kernel(FINISH[place].0)?.with_shared(WIDE_SHARED);
        let last = |name: &str| module.kernel(name)?.with_shared(LAST_SHARED);
        let wide = || {
            Ok::<_, Error>(Wide {
                stem: module.kernel("stem")?.with_shared(STEM_SHARED)?,
                survey: module.kernel("survey")?.with_shared(survey_shared(side, of_field))?,
                first: module.kernel("first")?.with_shared(FIRST_SHARED)?,
                past: module.kernel("finish_past")?.with_shared(SHARED)?,
                finish: [finish(0)?, finish(1)?],
                last_white: [last(LAST_WHITE[0].0)?, last(LAST_WHITE[1].0)?],
                last_behind: [last(LAST_BEHIND[0].0)?, last(LAST_BEHIND[1].0)?],
            })
        };
        Ok(Self {
            unfold: module.kernel("unfold")?,
            convolve: TILES.iter().map(convolve).collect::<Result<_>>()?,
            gather: module.kernel("gather")?,
            join: module.kernel("join")?,
            finish: module.kernel("finish")?,
            last: module.kernel("finish_last")?.with_shared(drawn)?,
            wide: (numbers(precision).bytes() == 2).then(wide).transpose()?,
            normalise: module.kernel("normalise")?,
            draw_modes: module.kernel("draw_modes")?,
            correlate: module.kernel("correlate")?,
            blocks: gpu.info().multiprocessors as u32,
        })
    }

    /// One after the other, some of which begin while the one before ends (`wait_before` in `numbers.cu`).
    pub(super) fn launch_all(&self, list: &[Step]) -> Result<()> {
        let mut before: Option<&Step> = None;
        for step in list {
            // Without sums, what lies between convolutions reads results at once: those of the kernel before the one before it.
            let early = match step {
                Step::Gather(..) | Step::Convolve(..) => before.is_some(),
                Step::FinishWide(WideArgs { n, .. })
                | Step::FinishPast(PastArgs { n, .. })
                | Step::LastWide(WideLastArgs { n, .. }) => match before {
                    Some(Step::Gather(..)) => true,
                    Some(Step::Convolve(..)) => n.sums != DevicePtr::NONE,
                    _ => false,
                },
                Step::First(..) => matches!(before, Some(Step::Survey(..))),
                _ => false,
            };
            self.launch(step, early)?;
            before = Some(step);
        }
        Ok(())
    }

    pub(super) fn launch(&self, step: &Step, early: bool) -> Result<()> {
        let many = |threads: u64| threads.div_ceil(u64::from(THREADS)).clamp(1, 1 << 20) as u32;
        let wide =
            || self.wide.as_ref().ok_or_else(|| Error::Invalid(format!("{} is not for these numbers", step.name())));
        match step {
            Step::Unfold(a) => self.unfold.launch(a.images * a.side * a.side / UNFOLDED, THREADS, a),
            Step::Stem(a) => {
                let tiles = a.conv.images * a.conv.tiles;
                wide()?.stem.launch(tiles.min(self.blocks), 128 * STEM_TEAMS, a)
            }
            Step::Survey(a, rows) => wide()?.survey.launch(rows * SURVEYORS as u32, SURVEY_THREADS, a),
            Step::First(a) => start(&wide()?.first, a.blocks(FIRST_AT_ONCE * self.blocks), 128, a, early),
            Step::Convolve(place, a) => {
                let blocks = (a.images * a.tiles * a.blocks_n).min(self.blocks);
                let threads = 128 * TILES[*place].groups as u32 + 32;
                match &self.convolve[*place] {
                    Some(kernel) if a.paired == 1 && early => kernel.launch_pairs_early(blocks & !1, threads, a),
                    Some(kernel) if a.paired == 1 => kernel.launch_pairs(blocks & !1, threads, a),
                    Some(kernel) => start(kernel, blocks, threads, a, early),
                    None => Err(Error::Invalid(format!("{} is not for these numbers", TILES[*place].name))),
                }
            }
            Step::Gather(a, rows) => {
                // `SLICES` of `convolve.cu`.
                let slices = if self.wide.is_some() { 8 } else { 32 };
                start(&self.gather, rows * (a.padded / GATHERED), 32 * slices, a, early)
            }
            Step::Join(a, rows) => self.join.launch(*rows, THREADS, a),
            Step::Finish(a, pixels) => self.finish.launch(pixels / PIXELS, THREADS, a),
            Step::FinishWide(a) => {
                let place = usize::from(a.f.channels > 64);
                let blocks = a.f.wide_blocks(FINISH[place].1 * self.blocks);
                start(&wide()?.finish[place], blocks, 32 * WIDE_WARPS, a, early)
            }
            Step::FinishPast(a) => start(&wide()?.past, a.blocks(self.blocks), 128 * PAST_TEAMS, a, early),
            Step::Last(a, pixels) => self.last.launch(pixels / PIXELS, THREADS, a),
            Step::LastWide(a) => {
                let place = usize::from(a.last.f.channels > 64);
                let (last, about) = match a.last.is_behind() {
                    true => (&wide()?.last_behind, LAST_BEHIND),
                    false => (&wide()?.last_white, LAST_WHITE),
                };
                let blocks = a.last.f.wide_blocks(about[place].1 * self.blocks);
                start(&last[place], blocks, 32 * WIDE_WARPS, a, early)
            }
            Step::Normalise(a, channels) => self.normalise.launch(*channels, THREADS, a),
            Step::DrawModes(a) => {
                let count = u64::from(a.images) * u64::from(a.rows * a.columns * a.channels).div_ceil(64) * 16;
                self.draw_modes.launch(many(count), THREADS, a)
            }
            Step::Correlate(a) => {
                let count = u64::from(a.images) * u64::from(a.rows) * u64::from(a.side / 4) * u64::from(a.channels);
                self.correlate.launch(many(count), THREADS, a)
            }
        }
    }
}

fn start<P: Params>(kernel: &Kernel<P>, blocks: u32, threads: u32, params: &P, early: bool) -> Result<()> {
    if early { kernel.launch_early(blocks, threads, params) } else { kernel.launch(blocks, threads, params) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels for a special case are no others', however many outputs there are.
    #[test]
    fn outputs_have_their_kernels() {
        let of = |outputs, numbers| TILES[Tile::place(outputs, numbers)].name;
        assert_eq!([64, 96, 512].map(|n| of(n, TensorNumbers::Bf16)), ["turned_64", "turned_128", "turned_128"]);
        assert_eq!(
            [128, 256, 512].map(|n| of(n, TensorNumbers::F32)),
            ["convolve_128", "convolve_256", "convolve_256"]
        );
        assert_eq!([TILES[TALL].name, TILES[TALL_128].name], ["tall", "tall_128"]);
    }

    #[test]
    fn weights_of_what_comes_past_lie_once_each() {
        for outputs in [128, 256] {
            let mut found: Vec<usize> = (0..outputs).map(PastArgs::output_at).collect();
            assert_eq!(found[..9], [0, 1, 2, 3, 4, 5, 6, 7, 16]);
            assert_eq!((found[32], found[64]), (64, 8));
            found.sort_unstable();
            assert!(found.into_iter().eq(0..outputs));
        }
    }
}
