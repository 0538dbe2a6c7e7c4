//! Passes over memory for op bodies: a function of lanes applied to every element, sums, column sums.
//!
//! Functions are values of types that implement [`Unary`], [`Binary`] or [`Ternary`], not closures: a closure can't be forced
//! inline, and one that is not runs without the wide instructions.

use super::op::Act;
use super::precision::Precision;
use super::real::Real;
use operant_lanes::{Float, Lanes, Vectors, select};

/// Lanes of the widest registers.
const MOST_LANES: usize = 16;

/// y = f(x).
pub trait Unary: Copy {
    /// In every lane.
    fn apply<L: Lanes>(self, x: L::F) -> L::F;
}

/// y = f(a, b).
pub trait Binary: Copy {
    /// In every lane.
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F;
}

/// y = f(a, b, c).
pub trait Ternary: Copy {
    /// In every lane.
    fn apply<L: Lanes>(self, a: L::F, b: L::F, c: L::F) -> L::F;
}

/// `y = f(x)` for slices of one length.
#[inline(always)]
pub fn map<R: Real, L: Vectors<R>, F: Unary>(f: F, x: &[R], y: &mut [R]) {
    let x = &x[..y.len()];
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        L::write(f.apply::<L>(L::read(&x[at..])), &mut y[at..]);
    }
    if whole < y.len() {
        L::write_part(f.apply::<L>(L::read_part(&x[whole..])), &mut y[whole..]);
    }
}

/// `y = f(y)`.
#[inline(always)]
pub fn map_in_place<R: Real, L: Vectors<R>, F: Unary>(f: F, y: &mut [R]) {
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        let value = f.apply::<L>(L::read(&y[at..]));
        L::write(value, &mut y[at..]);
    }
    if whole < y.len() {
        let value = f.apply::<L>(L::read_part(&y[whole..]));
        L::write_part(value, &mut y[whole..]);
    }
}

/// `y = f(a, b)`.
#[inline(always)]
pub fn map2<R: Real, L: Vectors<R>, F: Binary>(f: F, a: &[R], b: &[R], y: &mut [R]) {
    let (a, b) = (&a[..y.len()], &b[..y.len()]);
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        L::write(f.apply::<L>(L::read(&a[at..]), L::read(&b[at..])), &mut y[at..]);
    }
    if whole < y.len() {
        L::write_part(f.apply::<L>(L::read_part(&a[whole..]), L::read_part(&b[whole..])), &mut y[whole..]);
    }
}

/// `y = f(y, x)`.
#[inline(always)]
pub fn update<R: Real, L: Vectors<R>, F: Binary>(f: F, x: &[R], y: &mut [R]) {
    let x = &x[..y.len()];
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        let value = f.apply::<L>(L::read(&y[at..]), L::read(&x[at..]));
        L::write(value, &mut y[at..]);
    }
    if whole < y.len() {
        let value = f.apply::<L>(L::read_part(&y[whole..]), L::read_part(&x[whole..]));
        L::write_part(value, &mut y[whole..]);
    }
}

/// `y = f(a, b, c)`.
#[inline(always)]
pub fn map3<R: Real, L: Vectors<R>, F: Ternary>(f: F, a: &[R], b: &[R], c: &[R], y: &mut [R]) {
    let (a, b, c) = (&a[..y.len()], &b[..y.len()], &c[..y.len()]);
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        L::write(f.apply::<L>(L::read(&a[at..]), L::read(&b[at..]), L::read(&c[at..])), &mut y[at..]);
    }
    if whole < y.len() {
        let (a, b, c) = (L::read_part(&a[whole..]), L::read_part(&b[whole..]), L::read_part(&c[whole..]));
        L::write_part(f.apply::<L>(a, b, c), &mut y[whole..]);
    }
}

/// `y = f(y, a, b)`.
#[inline(always)]
pub fn update2<R: Real, L: Vectors<R>, F: Ternary>(f: F, a: &[R], b: &[R], y: &mut [R]) {
    let (a, b) = (&a[..y.len()], &b[..y.len()]);
    let whole = y.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        let value = f.apply::<L>(L::read(&y[at..]), L::read(&a[at..]), L::read(&b[at..]));
        L::write(value, &mut y[at..]);
    }
    if whole < y.len() {
        let value = f.apply::<L>(L::read_part(&y[whole..]), L::read_part(&a[whole..]), L::read_part(&b[whole..]));
        L::write_part(value, &mut y[whole..]);
    }
}

/// Sum of all elements, in a fixed order.
#[inline(always)]
pub fn sum<R: Real, L: Vectors<R>>(x: &[R]) -> R {
    let mut lanes = [L::F::from(0.0); 4];
    let step = 4 * L::LANES;
    let whole = x.len() / step * step;
    for at in (0..whole).step_by(step) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = *lane + L::read(&x[at + i * L::LANES..]);
        }
    }
    for (i, part) in x[whole..].chunks(L::LANES).enumerate() {
        lanes[i] = lanes[i] + L::read_part(part);
    }
    L::sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
}

/// Σ a·b, in a fixed order.
#[inline(always)]
pub fn dot<R: Real, L: Vectors<R>>(a: &[R], b: &[R]) -> R {
    let b = &b[..a.len()];
    let mut lanes = [L::F::from(0.0); 4];
    let step = 4 * L::LANES;
    let whole = a.len() / step * step;
    for at in (0..whole).step_by(step) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            let at = at + i * L::LANES;
            *lane = L::read(&a[at..]).mul_add(L::read(&b[at..]), *lane);
        }
    }
    for (i, (a, b)) in a[whole..].chunks(L::LANES).zip(b[whole..].chunks(L::LANES)).enumerate() {
        lanes[i] = L::read_part(a).mul_add(L::read_part(b), lanes[i]);
    }
    L::sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
}

/// `out[j] += Σ_rows x[row, j]` for dense rows as long as `out`.
#[inline(always)]
pub fn add_columns<R: Real, L: Vectors<R>>(x: &[R], out: &mut [R]) {
    let n = out.len();
    if (1..=4).contains(&n) && L::LANES.is_multiple_of(n) {
        return add_few_columns::<R, L>(x, out);
    }
    let rows = x.len() / n.max(1);
    let mut at = 0;
    while at + 4 * L::LANES <= n {
        let mut lanes = [L::F::from(0.0); 4];
        for row in 0..rows {
            let x = &x[row * n + at..][..4 * L::LANES];
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane = *lane + L::read(&x[i * L::LANES..]);
            }
        }
        for (i, lane) in lanes.into_iter().enumerate() {
            let to = &mut out[at + i * L::LANES..];
            let value = L::read(to) + lane;
            L::write(value, to);
        }
        at += 4 * L::LANES;
    }
    while at < n {
        let width = L::LANES.min(n - at);
        let mut lane = L::F::from(0.0);
        for row in 0..rows {
            lane = lane + L::read_part(&x[row * n + at..][..width]);
        }
        let to = &mut out[at..at + width];
        let value = L::read_part(to) + lane;
        L::write_part(value, to);
        at += width;
    }
}

/// [`add_columns`] of columns that divide a register: each of its lanes is always of one column.
#[inline(always)]
fn add_few_columns<R: Real, L: Vectors<R>>(x: &[R], out: &mut [R]) {
    let mut lanes = [L::F::from(0.0); 4];
    let step = 4 * L::LANES;
    let whole = x.len() / step * step;
    for at in (0..whole).step_by(step) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = *lane + L::read(&x[at + i * L::LANES..]);
        }
    }
    for (i, part) in x[whole..].chunks(L::LANES).enumerate() {
        lanes[i] = lanes[i] + L::read_part(part);
    }
    let mut sums = [R::default(); MOST_LANES];
    L::write((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]), &mut sums);
    let n = out.len();
    for (i, sum) in sums[..L::LANES].iter().enumerate() {
        out[i % n] += *sum;
    }
}

/// [`activation_gradient`] from the output, and its column sums added to `sums`: rows are as long as `sums`, whose length
/// is a multiple of four registers.
#[inline(always)]
pub fn gradient_and_columns<R: Real, L: Vectors<R>>(act: Act, y: &[R], dy: &[R], dx: &mut [R], sums: &mut [R]) {
    match act {
        Act::Relu => map_and_columns::<R, L, _>(Relu, y, dy, dx, sums),
        Act::Tanh => map_and_columns::<R, L, _>(Tanh, y, dy, dx, sums),
        Act::Sigmoid => map_and_columns::<R, L, _>(Sigmoid, y, dy, dx, sums),
        Act::Identity | Act::Gelu | Act::Silu => unreachable!("has no gradient from its output"),
    }
}

#[inline(always)]
fn map_and_columns<R: Real, L: Vectors<R>, F: Ternary>(f: F, y: &[R], dy: &[R], dx: &mut [R], sums: &mut [R]) {
    let n = sums.len();
    let rows = dx.len() / n.max(1);
    for at in (0..n).step_by(4 * L::LANES) {
        let mut lanes = [L::F::from(0.0); 4];
        for row in 0..rows {
            let from = row * n + at;
            let (y, dy) = (&y[from..][..4 * L::LANES], &dy[from..][..4 * L::LANES]);
            let dx = &mut dx[from..][..4 * L::LANES];
            for (i, lane) in lanes.iter_mut().enumerate() {
                let y = L::read(&y[i * L::LANES..]);
                let value = f.apply::<L>(y, y, L::read(&dy[i * L::LANES..]));
                *lane = *lane + value;
                L::write(value, &mut dx[i * L::LANES..]);
            }
        }
        for (i, lane) in lanes.into_iter().enumerate() {
            let to = &mut sums[at + i * L::LANES..];
            let value = L::read(to) + lane;
            L::write(value, to);
        }
    }
}

/// a + b.
#[derive(Clone, Copy, Debug)]
pub struct Plus;
impl Binary for Plus {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        a + b
    }
}

#[inline(always)]
fn silu_gradient<L: Lanes>(x: L::F) -> L::F {
    let s = x.sigmoid();
    s + x * (s - s * s)
}

macro_rules! activations {
    ($($name:ident |$x:ident| $forward:expr; |$gx:ident, $gy:ident| $gradient:expr;)+) => {
        $(
            /// An activation, and with three arguments `dy·f′` from its input, its output and the gradient.
            #[derive(Clone, Copy, Debug)]
            pub(super) struct $name;
            impl Unary for $name {
                #[inline(always)]
                fn apply<L: Lanes>(self, $x: L::F) -> L::F {
                    $forward
                }
            }
            impl Ternary for $name {
                #[inline(always)]
                fn apply<L: Lanes>(self, $gx: L::F, $gy: L::F, dy: L::F) -> L::F {
                    dy * $gradient
                }
            }
        )+
    };
}

// A NaN stays a NaN in all of them, so that it is found.
activations! {
    Identity |x| x; |_x, _y| L::F::from(1.0);
    Relu |x| L::F::from(0.0).max(x); |_x, y| select::<_, L::F>(y.le(0.0), 0.0, 1.0);
    Tanh |x| x.tanh_fast(); |_x, y| L::F::from(1.0) - y * y;
    Sigmoid |x| x.sigmoid(); |_x, y| y - y * y;
    Gelu |x| x.gelu(); |x, _y| x.gelu_grad();
    Silu |x| x.silu(); |x, _y| silu_gradient::<L>(x);
}

/// Runs an expression with the value of an activation's own type.
macro_rules! with_activation {
    ($act:expr, $f:ident => $run:expr) => {{
        use $crate::elementwise::{Gelu, Identity, Relu, Sigmoid, Silu, Tanh};
        use $crate::op::Act;
        match $act {
            Act::Identity => {
                let $f = Identity;
                $run
            }
            Act::Relu => {
                let $f = Relu;
                $run
            }
            Act::Tanh => {
                let $f = Tanh;
                $run
            }
            Act::Sigmoid => {
                let $f = Sigmoid;
                $run
            }
            Act::Gelu => {
                let $f = Gelu;
                $run
            }
            Act::Silu => {
                let $f = Silu;
                $run
            }
        }
    }};
}
pub(super) use with_activation;

/// [`Tanh`] for products that read bf16.
#[derive(Clone, Copy, Debug)]
struct CoarseTanh;
impl Unary for CoarseTanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F) -> L::F {
        x.tanh_coarse()
    }
}

impl Act {
    /// Whether the derivative is taken from the input; else it is from the output.
    pub fn needs_input(self) -> bool {
        matches!(self, Self::Gelu | Self::Silu)
    }
}

/// Applies an activation in place.
#[inline(always)]
pub fn activate<R: Real, L: Vectors<R>>(act: Act, y: &mut [R]) {
    match act {
        Act::Identity => {}
        Act::Relu => map_in_place::<R, L, _>(Relu, y),
        Act::Tanh => map_in_place::<R, L, _>(Tanh, y),
        Act::Sigmoid => map_in_place::<R, L, _>(Sigmoid, y),
        Act::Gelu => map_in_place::<R, L, _>(Gelu, y),
        Act::Silu => map_in_place::<R, L, _>(Silu, y),
    }
}

/// Applies an activation in place, as exactly as the precision of products asks for.
#[inline(always)]
pub fn activate_for<R: Real, L: Vectors<R>>(act: Act, precision: Precision, y: &mut [R]) {
    match (act, precision) {
        (Act::Tanh, Precision::Bf16) => map_in_place::<R, L, _>(CoarseTanh, y),
        _ => activate::<R, L>(act, y),
    }
}

/// `dx = dy·f′`, from the input or the output as [`Act::needs_input`] says; the other may be any slice as long.
#[inline(always)]
pub fn activation_gradient<R: Real, L: Vectors<R>>(act: Act, x: &[R], y: &[R], dy: &[R], dx: &mut [R]) {
    match act {
        Act::Identity => dx.copy_from_slice(&dy[..dx.len()]),
        Act::Relu => map3::<R, L, _>(Relu, y, y, dy, dx),
        Act::Tanh => map3::<R, L, _>(Tanh, y, y, dy, dx),
        Act::Sigmoid => map3::<R, L, _>(Sigmoid, y, y, dy, dx),
        Act::Gelu => map3::<R, L, _>(Gelu, x, x, dy, dx),
        Act::Silu => map3::<R, L, _>(Silu, x, x, dy, dx),
    }
}
