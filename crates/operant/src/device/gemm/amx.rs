//! Products of bf16 (as `u16` bits) in AMX tiles, summed in f32.
//!
//! A tile of C is 16 by 16; a chunk is the 32 terms of k that one instruction adds. A is row-major with `inner`
//! contiguous; B is packed in tiles of 16 pairs of rows by 16 columns. Rounding to bf16 is to nearest even, with
//! denormals read as zero, as AMX itself reads them.
//!
//! Invariant: an element of C is summed chunk by chunk in order, so it does not depend on `m` nor on the split of rows.
#![allow(unsafe_code)]

use super::{Init, Product, reach};

/// Terms of k that one tile instruction adds.
pub const CHUNK: usize = 32;
/// Rows and columns of a tile of C.
const TILE: usize = 16;
/// Elements of a tile of B.
const B_TILE: usize = CHUNK * TILE;

/// Whether this CPU has AMX for bf16 and the operating system lets this process use it (asked for once).
pub fn available() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    {
        static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *AVAILABLE.get_or_init(tiles::ask)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(operant_portable))))]
    false
}

fn require() {
    assert!(available(), "this machine has no AMX: ask `amx::available` first");
}

/// Elements of a packed B of `outer · inner` rows and `n` columns.
pub fn packed_len(outer: usize, inner: usize, n: usize) -> usize {
    n.div_ceil(TILE) * outer * inner.div_ceil(CHUNK) * B_TILE
}

/// Packs `B[o, p, j] = src[o·outer_stride + p·row + j·col]` for [`product`]. Fast if `row` or `col` is one.
///
/// # Panics
/// If `src` or `out` is too short, or without AMX.
#[expect(clippy::too_many_arguments)]
pub fn pack(
    outer: usize,
    inner: usize,
    n: usize,
    src: &[f32],
    outer_stride: usize,
    row: usize,
    col: usize,
    out: &mut [u16],
) {
    require();
    let reached = reach(&[(outer, outer_stride), (inner, row), (n, col)]);
    assert!(reached <= src.len(), "the source holds {} elements, wanted {reached}", src.len());
    let mut tiles = out[..packed_len(outer, inner, n)].chunks_exact_mut(B_TILE);
    for j in (0..n).step_by(TILE) {
        for o in 0..outer {
            for p in (0..inner).step_by(CHUNK) {
                let tile: &mut [u16; B_TILE] = tiles.next().unwrap().first_chunk_mut().unwrap();
                let (rows, columns) = (CHUNK.min(inner - p), TILE.min(n - j));
                let src = &src[o * outer_stride + p * row + j * col..];
                pack_tile(rows, columns, src, row, col, tile);
            }
        }
    }
}

/// Packs one tile; rows and columns beyond those given become zero.
fn pack_tile(rows: usize, columns: usize, src: &[f32], row: usize, col: usize, out: &mut [u16; B_TILE]) {
    debug_assert!((rows - 1) * row + (columns - 1) * col < src.len());
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    if col == 1 || row == 1 {
        // SAFETY: AMX was found, with which AVX-512 BF16 is asked for; `pack` checked that these elements are in `src`.
        unsafe {
            if col == 1 {
                tiles::pack_rows(rows, columns, src.as_ptr(), row, out);
            } else {
                tiles::pack_columns(rows, columns, src.as_ptr(), col, out);
            }
        }
        return;
    }
    for (at, to) in out.iter_mut().enumerate() {
        let (p, j) = (at / CHUNK * 2 + at % 2, at % CHUNK / 2);
        *to = if p < rows && j < columns { to_bf16(src[p * row + j * col]) } else { 0 };
    }
}

/// The nearest bf16, ties to even; a denormal becomes zero, a NaN a quiet NaN.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = if x.is_nan() {
        bits | 1 << 22
    } else if x.is_subnormal() {
        bits & 1 << 31
    } else {
        bits + 0x7fff + (bits >> 16 & 1)
    };
    (rounded >> 16) as u16
}

/// C = init + A·B, with B packed by [`pack`]; `a_inner`, `b_outer` and `b_inner` are not read (inner terms of A lie together).
///
/// A is read in whole chunks: the last of each row of an outer term reaches up to 31 elements past `inner`. They meet
/// zeros in B, so they must be finite, and `a` must hold them.
///
/// # Panics
/// If an operand is too short for the product, rows of C overlap, or without AMX.
pub fn product(p: &Product, a: &[u16], packed: &[u16], init: Init, c: &mut [f32]) {
    require();
    let reached = reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner.next_multiple_of(CHUNK), 1)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached} with whole chunks: {p:?}", a.len());
    let wanted = packed_len(p.outer, p.inner, p.n);
    assert!(wanted <= packed.len(), "the packed B holds {} elements, wanted {wanted}: {p:?}", packed.len());
    p.check_c(init, c.len());
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, and the operands checked.
    unsafe {
        tiles::product(p, a.as_ptr(), packed.as_ptr(), init, c.as_mut_ptr());
    }
}

/// Rounds rows of f32 to bf16: an A of [`product`]. Each row is filled up with zeros to whole chunks.
///
/// # Panics
/// If `src` or `dst` is too short, `dst_row` is shorter than a row's chunks, or without AMX.
pub fn rows_to_bf16(rows: usize, cols: usize, src: &[f32], src_row: usize, dst: &mut [u16], dst_row: usize) {
    require();
    let width = cols.next_multiple_of(CHUNK);
    check_rounding(reach(&[(rows, src_row), (cols, 1)]), src, reach(&[(rows, dst_row), (width, 1)]), dst);
    assert!(rows <= 1 || dst_row >= width, "rows of {width} elements overlap at a distance of {dst_row}");
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, with which AVX-512 BF16 is asked for, and both slices were checked.
    unsafe {
        tiles::rows_to_bf16(rows, cols, src.as_ptr(), src_row, dst.as_mut_ptr(), dst_row);
    }
}

/// Rounds and transposes: `dst[c·dst_row + r] = src[r·src_row + c]`, the A of a product whose sum runs over rows. Each row of
/// `dst` is filled up with zeros to whole chunks.
///
/// # Panics
/// If `src` or `dst` is too short, `dst_row` is shorter than a row's chunks, or without AMX.
pub fn transpose_to_bf16(rows: usize, cols: usize, src: &[f32], src_row: usize, dst: &mut [u16], dst_row: usize) {
    require();
    let width = rows.next_multiple_of(CHUNK);
    check_rounding(reach(&[(rows, src_row), (cols, 1)]), src, reach(&[(cols, dst_row), (width, 1)]), dst);
    assert!(cols <= 1 || dst_row >= width, "rows of {width} elements overlap at a distance of {dst_row}");
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, with which AVX-512 BF16 is asked for, and both slices were checked.
    unsafe {
        tiles::transpose_to_bf16(rows, cols, src.as_ptr(), src_row, dst.as_mut_ptr(), dst_row);
    }
}

fn check_rounding(read: usize, src: &[f32], written: usize, dst: &[u16]) {
    assert!(read <= src.len(), "the source holds {} elements, wanted {read}", src.len());
    assert!(written <= dst.len(), "the destination holds {} elements, wanted {written}", dst.len());
}

/// The instructions. Functions here need what [`ask`] asks for.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
mod tiles {
    use super::super::avx512::transpose16;
    use super::{B_TILE, CHUNK, Init, Product, TILE};
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// Asks the CPU for tiles and AVX-512 BF16, and Linux for the tiles' state
    /// (Intel SDM volume 1, 18.3; Linux, Documentation/arch/x86/xstate.rst).
    pub(super) fn ask() -> bool {
        const XSAVE: u32 = 1 << 27; // CPUID.1:ECX.OSXSAVE
        const TILES: u32 = 1 << 24 | 1 << 22; // CPUID.7:EDX.AMX-TILE, AMX-BF16
        const STATE: u64 = 1 << 18 | 1 << 17; // XCR0.TILEDATA, TILECFG
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        wide && __cpuid(1).ecx & XSAVE != 0
            && __cpuid_count(7, 0).edx & TILES == TILES
            // SAFETY: OSXSAVE says that `xgetbv` may be used.
            && unsafe { xcr0() } & STATE == STATE
            // SAFETY: this call takes two numbers and changes only which state the process may use.
            && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
    }

    /// # Safety
    /// The CPU has `xgetbv`.
    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: the caller's contract.
        unsafe { _xgetbv(0) }
    }

    // The compiler knows no type that lives in tiles, so it never touches them: they keep their values from one piece of
    // assembly to the next. Tiles 0 to 3 hold C; then come those of A, then those of B.

    /// The shape of all tiles, as `ldtilecfg` reads it: palette 1, bytes per row, rows.
    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Every tile is 64 bytes wide; those of A and C have `rows` rows (1 to 16), those of B, from `first_b` on, 16.
    unsafe fn configure(rows: usize, first_b: usize) {
        let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        for tile in 0..8 {
            config.bytes[tile] = 64;
            config.rows[tile] = if tile < first_b { rows as u8 } else { TILE as u8 };
        }
        // SAFETY: the CPU has AMX; no row count is zero.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, preserves_flags, readonly)) };
    }

    #[inline(always)]
    unsafe fn release() {
        // SAFETY: the CPU has AMX.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }

    #[inline(always)]
    unsafe fn zero<const T: usize>() {
        // SAFETY: the CPU has AMX and tiles are configured.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags, nomem)) };
    }

    /// Reads rows of 64 bytes, `stride` bytes apart.
    #[inline(always)]
    unsafe fn load<const T: usize>(from: *const u8, stride: usize) {
        // SAFETY: the caller lets these rows be read.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}*1]", t = const T, from = in(reg) from, stride = in(reg) stride,
                options(nostack, preserves_flags, readonly))
        };
    }

    /// Writes rows of 64 bytes, `stride` bytes apart.
    #[inline(always)]
    unsafe fn store<const T: usize>(to: *mut u8, stride: usize) {
        // SAFETY: the caller lets these rows be written.
        unsafe {
            asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to, stride = in(reg) stride,
                options(nostack, preserves_flags))
        };
    }

    /// C += A·B over one chunk.
    #[inline(always)]
    unsafe fn dot<const C: usize, const A: usize, const B: usize>() {
        // SAFETY: the CPU has AMX and tiles are configured.
        unsafe {
            asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nostack, preserves_flags, nomem))
        };
    }

    /// Where the operands of a block of C lie; strides in bytes.
    #[derive(Clone, Copy)]
    struct Block {
        outer: usize,
        chunks: usize,
        a: *const u8,
        a_row: usize,
        a_outer: usize,
        b: *const u8,
        b_panel: usize,
        c: *mut u8,
        c_row: usize,
        /// What sums begin with: rows `start_row` apart (0 for the same row in all), or zero if null.
        start: *const u8,
        start_row: usize,
    }

    /// Bytes of a row of any tile, and of 16 columns of C.
    const ROW: usize = 64;
    /// Bytes of a tile of B.
    const B_BYTES: usize = B_TILE * 2;

    /// Runs `$do` for each tile number in the list, with that number as a constant.
    macro_rules! block {
        ($name:ident, $(C $c:literal = A $a:literal at $row:literal * B $b:literal at $column:literal),+;
         $(load A $la:literal at $lrow:literal),+; $(load B $lb:literal at $lcolumn:literal),+) => {
            unsafe fn $name(block: &Block) {
                // SAFETY: the caller lets all that the block reaches be read and written.
                unsafe {
                    if block.start.is_null() {
                        $(zero::<$c>();)+
                    } else {
                        $(load::<$c>(block.start.add($row * TILE * block.start_row + $column * ROW), block.start_row);)+
                    }
                    let mut b = block.b;
                    for o in 0..block.outer {
                        let mut a = block.a.add(o * block.a_outer);
                        for _ in 0..block.chunks {
                            $(load::<$la>(a.add($lrow * TILE * block.a_row), block.a_row);)+
                            $(load::<$lb>(b.add($lcolumn * block.b_panel), ROW);)+
                            $(dot::<$c, $a, $b>();)+
                            a = a.wrapping_add(ROW);
                            b = b.wrapping_add(B_BYTES);
                        }
                    }
                    $(store::<$c>(block.c.add($row * TILE * block.c_row + $column * ROW), block.c_row);)+
                }
            }
        };
    }
    block!(block_2x2, C 0 = A 4 at 0 * B 6 at 0, C 1 = A 4 at 0 * B 7 at 1, C 2 = A 5 at 1 * B 6 at 0, C 3 = A 5 at 1 * B 7 at 1;
        load A 4 at 0, load A 5 at 1; load B 6 at 0, load B 7 at 1);
    block!(block_1x2, C 0 = A 4 at 0 * B 6 at 0, C 1 = A 4 at 0 * B 7 at 1;
        load A 4 at 0; load B 6 at 0, load B 7 at 1);
    block!(block_2x1, C 0 = A 4 at 0 * B 6 at 0, C 2 = A 5 at 1 * B 6 at 0;
        load A 4 at 0, load A 5 at 1; load B 6 at 0);
    block!(block_1x1, C 0 = A 4 at 0 * B 6 at 0; load A 4 at 0; load B 6 at 0);

    /// # Safety
    /// AMX was found; A, B, the bias and C hold what the product reaches.
    pub(super) unsafe fn product(p: &Product, a: *const u16, packed: *const u16, init: Init, c: *mut f32) {
        if p.m == 0 || p.n == 0 {
            return;
        }
        let chunks = p.inner.div_ceil(CHUNK);
        let whole = p.m / TILE * TILE;
        // SAFETY: the caller's contract; the blocks below cover C once.
        unsafe {
            for (from, to, rows) in [(0, whole, TILE), (whole, p.m, p.m - whole)] {
                if from == to {
                    continue;
                }
                configure(rows, 6);
                let mut i = from;
                while i < to {
                    let row_tiles = if to - i >= 2 * TILE { 2 } else { 1 };
                    for j in (0..p.n).step_by(2 * TILE) {
                        let columns = (2 * TILE).min(p.n - j);
                        let mut block = Block {
                            outer: p.outer,
                            chunks,
                            a: a.add(i * p.a_row).cast(),
                            a_row: p.a_row * 2,
                            a_outer: p.a_outer * 2,
                            b: packed.cast::<u8>().add(j / TILE * p.outer * chunks * B_BYTES),
                            b_panel: p.outer * chunks * B_BYTES,
                            c: c.add(i * p.c_row + j).cast(),
                            c_row: p.c_row * 4,
                            start: std::ptr::null(),
                            start_row: 0,
                        };
                        match init {
                            Init::Zero => {}
                            Init::Bias(bias) => block.start = bias.as_ptr().add(j).cast(),
                            Init::Accumulate => (block.start, block.start_row) = (block.c, block.c_row),
                        }
                        let run = match (row_tiles, columns.div_ceil(TILE)) {
                            (2, 2) => block_2x2,
                            (2, _) => block_2x1,
                            (_, 2) => block_1x2,
                            _ => block_1x1,
                        };
                        if columns.is_multiple_of(TILE) {
                            run(&block);
                        } else {
                            by_way_of_scratch(run, &block, rows * row_tiles, columns);
                        }
                    }
                    i += row_tiles * rows;
                }
            }
            release();
        }
    }

    /// Runs a block whose last tile has columns that are not C's.
    unsafe fn by_way_of_scratch(run: unsafe fn(&Block), block: &Block, rows: usize, columns: usize) {
        const WIDTH: usize = 2 * TILE;
        let mut scratch = [0.0_f32; WIDTH * WIDTH];
        let mut inner = *block;
        inner.c = scratch.as_mut_ptr().cast();
        inner.c_row = WIDTH * 4;
        // SAFETY: as the caller's block, but only `columns` of each row of the start and of C are touched.
        unsafe {
            if !block.start.is_null() {
                let start_rows = if block.start_row == 0 { 1 } else { rows };
                for r in 0..start_rows {
                    let from = block.start.add(r * block.start_row).cast::<f32>();
                    scratch.as_mut_ptr().add(r * WIDTH).copy_from_nonoverlapping(from, columns);
                }
                inner.start = inner.c;
                inner.start_row = if block.start_row == 0 { 0 } else { inner.c_row };
            }
            run(&inner);
            for r in 0..rows {
                let to = block.c.add(r * block.c_row).cast::<f32>();
                to.copy_from_nonoverlapping(scratch.as_ptr().add(r * WIDTH), columns);
            }
        }
    }

    /// The first `count` of 16 lanes; all if there are more.
    #[inline(always)]
    fn lanes(count: usize) -> __mmask16 {
        if count >= 16 { !0 } else { (1 << count) - 1 }
    }

    /// Rounds two registers: `low` to the low half.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn round(low: __m512, high: __m512) -> __m512i {
        // SAFETY: both are 64 bytes of any value.
        unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
    }

    /// Pairs of rows: word j of the result is (`even[j]`, `odd[j]`), rounded.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn round_pairs(even: __m512, odd: __m512) -> __m512i {
        // Half-words 2j and 2j + 1 are j of the low half and j of the high half.
        let order = _mm512_set_epi16(
            31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17,
            1, 16, 0,
        );
        _mm512_permutexvar_epi16(order, round(even, odd))
    }

    /// 32 rows of up to 16 columns as 16 rows of pairs.
    ///
    /// # Safety
    /// AMX was found; `rows` rows of `columns` values may be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn row_pairs(rows: usize, columns: usize, src: *const f32, row: usize) -> [__m512i; 16] {
        let mut pairs = [_mm512_setzero_si512(); 16];
        let mask = lanes(columns);
        for (r, pair) in pairs.iter_mut().enumerate() {
            let (even, odd) = (if 2 * r < rows { mask } else { 0 }, if 2 * r + 1 < rows { mask } else { 0 });
            let at = src.wrapping_add(2 * r * row);
            // SAFETY: lanes that are not the caller's are not read.
            *pair = unsafe {
                round_pairs(_mm512_maskz_loadu_ps(even, at), _mm512_maskz_loadu_ps(odd, at.wrapping_add(row)))
            };
        }
        pairs
    }

    /// # Safety
    /// As [`row_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn pack_rows(rows: usize, columns: usize, src: *const f32, row: usize, out: &mut [u16; B_TILE]) {
        // SAFETY: the caller's contract.
        let pairs = unsafe { row_pairs(rows, columns, src, row) };
        for (pair, to) in pairs.iter().zip(out.chunks_exact_mut(CHUNK)) {
            // SAFETY: 32 half-words are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *pair) };
        }
    }

    /// # Safety
    /// AMX was found; `columns` columns of `rows` values, `col` apart, may be read.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn pack_columns(
        rows: usize,
        columns: usize,
        src: *const f32,
        col: usize,
        out: &mut [u16; B_TILE],
    ) {
        let mut words = [_mm512_setzero_si512(); 16];
        let (low, high) = (lanes(rows), lanes(rows.saturating_sub(16)));
        for (j, word) in words.iter_mut().enumerate().take(columns) {
            let at = src.wrapping_add(j * col);
            // SAFETY: lanes that are not the caller's are not read.
            *word = unsafe { round(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at.wrapping_add(16))) };
        }
        for (pair, to) in transpose16(&words).iter().zip(out.chunks_exact_mut(CHUNK)) {
            // SAFETY: 32 half-words are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *pair) };
        }
    }

    /// # Safety
    /// AMX was found; the source holds these rows, the destination these rows in whole chunks.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn rows_to_bf16(
        rows: usize,
        cols: usize,
        src: *const f32,
        src_row: usize,
        dst: *mut u16,
        dst_row: usize,
    ) {
        for r in 0..rows {
            for c in (0..cols).step_by(CHUNK) {
                let at = src.wrapping_add(r * src_row + c);
                let (low, high) = (lanes(cols - c), lanes((cols - c).saturating_sub(16)));
                // SAFETY: lanes beyond the source are not read; the destination has whole chunks.
                unsafe {
                    let chunk = round(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at.wrapping_add(16)));
                    _mm512_storeu_si512(dst.add(r * dst_row + c).cast(), chunk);
                }
            }
        }
    }

    /// # Safety
    /// AMX was found; the source holds these rows, the destination `cols` rows of whole chunks.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn transpose_to_bf16(
        rows: usize,
        cols: usize,
        src: *const f32,
        src_row: usize,
        dst: *mut u16,
        dst_row: usize,
    ) {
        for r in (0..rows).step_by(CHUNK) {
            for c in (0..cols).step_by(TILE) {
                let columns = TILE.min(cols - c);
                // SAFETY: rows and columns of the source; rows `c..` of the destination have whole chunks.
                unsafe {
                    let pairs = row_pairs(CHUNK.min(rows - r), columns, src.add(r * src_row + c), src_row);
                    for (j, chunk) in transpose16(&pairs).iter().enumerate().take(columns) {
                        _mm512_storeu_si512(dst.add((c + j) * dst_row + r).cast(), *chunk);
                    }
                }
            }
        }
    }
}
