//! Cuts a product into blocks that fit registers.
//!
//! For every panel of columns, rows of A pass by a stretch of B that stays in the L1 cache; C carries the sums from one
//! stretch of k to the next, which changes no bits. Rows are dealt evenly to blocks.
#![allow(unsafe_code)]

use super::block::{Block, BlockFn, Start};
use super::narrow::{self, Columns};
use super::{Family, Init, LINE, Product, Stretch, elements, packed_len, reach, stretches};
use crate::Later;

/// Elements of B that stay in the L1 cache while rows of A pass by: 32 of 48 kB.
const L1_ELEMENTS: usize = 8192;

/// The right operand.
#[derive(Clone, Copy)]
pub(super) enum Right<'a> {
    /// Rows as the product says.
    Rows(&'a [f32]),
    /// By [`super::pack`].
    Packed(&'a [f32]),
}

/// Operands that were found to hold what the product reaches.
struct Checked<'a> {
    family: &'a Family,
    p: &'a Product,
    a: *const f32,
    b: Right<'a>,
    c: *mut f32,
}

/// Checks the operands, panics if one is too short, and computes.
pub(super) fn run(family: &Family, p: &Product, a: &[f32], b: Right, init: Init, c: &mut [f32]) {
    let reached = reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner, p.a_inner)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached}: {p:?}", a.len());
    let (held, reached) = match b {
        Right::Rows(b) => (b.len(), reach(&[(p.outer, p.b_outer), (p.inner, p.b_inner), (p.n, 1)])),
        Right::Packed(b) => (b.len(), packed_len(elements(&[p.outer, p.inner]), p.n)),
    };
    assert!(reached <= held, "B holds {held} elements, wanted {reached}: {p:?}");
    p.check_c(init, c.len());
    if p.m == 0 || p.n == 0 {
        return;
    }
    let start = match init {
        Init::Zero => Start::Zero,
        Init::Bias(bias) => Start::Row(bias.as_ptr()),
        Init::Accumulate => Start::C,
    };
    let checked = Checked { family, p, a: a.as_ptr(), b, c: c.as_mut_ptr() };
    match narrow::width(p, family.lanes) {
        Some(width) => checked.few_columns(width, start),
        None => checked.stretches(start),
    }
}

impl Checked<'_> {
    fn stretches(&self, start: Start) {
        let p = self.p;
        // B is read only once or twice if the rows fit two blocks.
        let longest = if p.m > 12 { L1_ELEMENTS / self.family.panel } else { usize::MAX };
        for part in stretches(p.outer, p.inner, longest) {
            self.columns(part, if part.is_first() { start } else { Start::C });
        }
    }

    /// Where column `j` of B begins in a stretch, with its outer and inner stride.
    fn right(&self, part: Stretch, j: usize) -> (*const f32, usize, usize) {
        let (p, panel) = (self.p, self.family.panel);
        match self.b {
            Right::Rows(b) => {
                (b.as_ptr().wrapping_add(part.o * p.b_outer + part.q * p.b_inner + j), p.b_outer, p.b_inner)
            }
            Right::Packed(b) => {
                let first = j / panel * panel;
                let width = panel.min((p.n - first).next_multiple_of(LINE));
                let row = part.o * p.inner + part.q;
                let at = first * p.outer * p.inner + row * width + (j - first);
                (b.as_ptr().wrapping_add(at), p.inner * width, width)
            }
        }
    }

    /// Adds a stretch to all of C.
    fn columns(&self, part: Stretch, start: Start) {
        let (family, p) = (self.family, self.p);
        let mut j = 0;
        while j < p.n {
            let (b, b_outer, b_inner) = self.right(part, j);
            let left_in_panel = family.panel - j % family.panel;
            let whole = family.row_panels * family.panel;
            let one_row = p.m == 1 && left_in_panel == family.panel && p.n - j >= whole;
            let most = if one_row { whole } else { left_in_panel.min(family.blocks.len() * family.lanes) };
            let columns = most.min(p.n - j);
            let vectors = columns.div_ceil(family.lanes);
            let block = Block {
                outer: part.outers,
                inner: part.inners,
                a: self.a.wrapping_add(part.o * p.a_outer + part.q * p.a_inner),
                a_row: p.a_row,
                a_outer: p.a_outer,
                a_inner: p.a_inner,
                b,
                b_outer,
                b_inner,
                b_panel: if matches!(self.b, Right::Packed(_)) {
                    family.panel * p.outer * p.inner
                } else {
                    family.panel
                },
                c: self.c.wrapping_add(j),
                c_row: p.c_row,
                start: start.at(j),
                last: columns - (vectors - 1) * family.lanes,
            };
            self.rows(block, if one_row { &family.row } else { family.blocks[vectors - 1] });
            j += columns;
        }
    }

    /// Computes all rows of a block that is given for the first, by kernels for 1, 2, … rows.
    fn rows(&self, mut block: Block, kernels: &[BlockFn]) {
        let p = self.p;
        let blocks = p.m.div_ceil(kernels.len());
        // The first blocks have a row more than the others where rows can't be dealt evenly.
        let (least, more) = (p.m / blocks, p.m % blocks);
        let mut later = Later::take();
        for number in 0..blocks {
            let rows = least + usize::from(number < more);
            // SAFETY: a `Family` is used only by a backend of this CPU, and operands hold what the product reaches, of which
            // these are rows that no block before had, and some columns.
            unsafe { kernels[rows - 1](&block) };
            later.ask::<8>();
            block.a = block.a.wrapping_add(rows * p.a_row);
            block.c = block.c.wrapping_add(rows * p.c_row);
        }
    }

    fn few_columns(&self, width: usize, start: Start) {
        let p = self.p;
        let (b, b_outer, b_inner) = self.right(Stretch { o: 0, outers: p.outer, q: 0, inners: p.inner }, 0);
        let mut columns = Columns::new();
        let block = Block {
            outer: p.outer,
            inner: p.inner,
            a: self.a,
            a_row: p.a_row,
            a_outer: p.a_outer,
            a_inner: p.a_inner,
            // SAFETY: B holds what the product reaches.
            b: unsafe { columns.turn(p, width, b, b_outer, b_inner) },
            b_outer: width,
            b_inner: p.outer * width,
            b_panel: 0,
            c: self.c,
            c_row: p.c_row,
            start,
            last: 0,
        };
        self.rows(block, self.family.narrow[p.n - 1]);
    }
}
