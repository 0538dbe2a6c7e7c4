//! The recorder: lanes whose values are nodes of an expression graph, printed as C.
//!
//! Running generic lane code on [`Sym`] inside [`Recording::record`] notes every operation once (equal expressions
//! share a node). The printed code uses the vocabulary of `PRELUDE`, so that another prelude makes it CUDA C.

use super::{Float, Int, Lanes, Mask, Select, math, rng};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// The recorder's lanes.
#[derive(Clone, Copy, Debug)]
pub struct Sym;

/// A recorded f32.
#[derive(Clone, Copy, Debug)]
pub struct F(u32);
/// A recorded i32.
#[derive(Clone, Copy, Debug)]
pub struct I(u32);
/// A recorded truth value.
#[derive(Clone, Copy, Debug)]
pub struct M(u32);

impl Lanes for Sym {
    type F = F;
    type I = I;
    type M = M;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Type {
    F32,
    I32,
    Bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// A name or literal of the surrounding C code.
    Leaf(String),
    /// `name(arguments)`.
    Call(&'static str, Vec<u32>),
    /// Entry of constant table number `.0`.
    Table(usize, u32),
}

/// The C functions behind the recorded operations, in strict mode. `FN` is the qualifier of a device function.
pub const PRELUDE: &str = include_str!("prelude.c");

/// The same functions in CUDA C; the macro `FAST` says whether they may round otherwise.
pub const CUDA_PRELUDE: &str = include_str!("prelude.cu");

type Function = fn(F) -> F;

/// The elementary functions that recorded code calls, themselves printed from [`math`].
const FUNCTIONS: [(&str, Function); 5] = [
    ("sin_f", |x| math::sin_cos::<Sym>(x).0),
    ("cos_f", |x| math::sin_cos::<Sym>(x).1),
    ("exp_f", math::exp::<Sym>),
    ("log_f", math::log::<Sym>),
    ("tanh_f", math::tanh::<Sym>),
];

/// What was recorded.
#[derive(Debug, Default)]
pub struct Recording {
    nodes: Vec<(Node, Type)>,
    known: HashMap<(Node, Type), u32>,
    tables: Vec<(Type, Vec<u32>)>,
}

thread_local! {
    static TAPE: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

// The functions that record are not inlined: lane code calls them by the hundred, and none of it is in a hurry.
#[inline(never)]
fn push(node: Node, ty: Type) -> u32 {
    TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut().expect("recorded lanes are used inside Recording::record");
        if let Node::Call("from_bits" | "bits", arguments) = &node
            && let (Node::Call("from_bits" | "bits", inner), _) = &tape.nodes[arguments[0] as usize]
        {
            return inner[0];
        }
        let key = (node, ty);
        if let Some(&id) = tape.known.get(&key) {
            return id;
        }
        let id = tape.nodes.len() as u32;
        tape.nodes.push(key.clone());
        tape.known.insert(key, id);
        id
    })
}

#[inline(never)]
fn call(name: &'static str, arguments: &[u32], ty: Type) -> u32 {
    push(Node::Call(name, arguments.to_vec()), ty)
}

#[inline(never)]
fn table(ty: Type, words: Vec<u32>, index: u32) -> u32 {
    let number = TAPE.with_borrow_mut(|tape| {
        let tables = &mut tape.as_mut().expect("recorded lanes are used inside Recording::record").tables;
        let entry = (ty, words);
        tables.iter().position(|t| *t == entry).unwrap_or_else(|| {
            tables.push(entry);
            tables.len() - 1
        })
    });
    push(Node::Table(number, index), ty)
}

fn float_literal(x: f32) -> String {
    match x {
        _ if x.is_nan() => "NAN".into(),
        f32::INFINITY => "INFINITY".into(),
        f32::NEG_INFINITY => "-INFINITY".into(),
        // The shortest decimal that reads back as the same f32.
        _ => format!("{x:?}f"),
    }
}

fn int_literal(x: i32) -> String {
    if x == i32::MIN { "INT32_MIN".into() } else { x.to_string() }
}

impl F {
    /// A float expression of the surrounding C code.
    pub fn input(text: impl Into<String>) -> Self {
        Self(push(Node::Leaf(text.into()), Type::F32))
    }
}

impl I {
    /// An int expression of the surrounding C code.
    pub fn input(text: impl Into<String>) -> Self {
        Self(push(Node::Leaf(text.into()), Type::I32))
    }
}

/// A value that a recording computes.
#[derive(Clone, Copy, Debug)]
pub struct Output(u32);

impl From<F> for Output {
    fn from(value: F) -> Self {
        Self(value.0)
    }
}
impl From<I> for Output {
    fn from(value: I) -> Self {
        Self(value.0)
    }
}
impl From<M> for Output {
    fn from(value: M) -> Self {
        Self(value.0)
    }
}

impl Recording {
    /// Runs `body` on recorded lanes; nothing else on this thread may be recording.
    pub fn record<R>(body: impl FnOnce() -> R) -> (Self, R) {
        TAPE.with_borrow_mut(|tape| *tape = Some(Self::default()));
        let result = body();
        let recording = TAPE.with_borrow_mut(Option::take).unwrap_or_default();
        (recording, result)
    }

    /// C statements that compute `outputs` and assign each to its place: `place = value;`.
    pub fn print(&self, outputs: &[(String, Output)]) -> String {
        let mut live = vec![false; self.nodes.len()];
        for (_, output) in outputs {
            live[output.0 as usize] = true;
        }
        for id in (0..self.nodes.len()).rev() {
            if live[id] {
                match &self.nodes[id].0 {
                    Node::Leaf(_) => {}
                    Node::Call(_, arguments) => arguments.iter().for_each(|&a| live[a as usize] = true),
                    Node::Table(_, index) => live[*index as usize] = true,
                }
            }
        }
        let mut names: Vec<String> = Vec::with_capacity(self.nodes.len());
        let mut text = String::new();
        for (number, (ty, words)) in self.tables.iter().enumerate() {
            let (ty, values): (_, Vec<String>) = match ty {
                Type::F32 => ("float", words.iter().map(|&w| float_literal(f32::from_bits(w))).collect()),
                _ => ("int32_t", words.iter().map(|&w| int_literal(w as i32)).collect()),
            };
            let _ = writeln!(text, "    static const {ty} t{number}[{}] = {{{}}};", words.len(), values.join(", "));
        }
        for (id, (node, ty)) in self.nodes.iter().enumerate() {
            let value = match node {
                Node::Leaf(leaf) => {
                    names.push(leaf.clone());
                    continue;
                }
                Node::Call(name, arguments) => {
                    let list: Vec<&str> = arguments.iter().map(|&a| names[a as usize].as_str()).collect();
                    format!("{name}({})", list.join(", "))
                }
                Node::Table(number, index) => {
                    let last = self.tables[*number].1.len() - 1;
                    format!("t{number}[index_i({}, {last})]", names[*index as usize])
                }
            };
            names.push(format!("v{id}"));
            if live[id] {
                let ty = match ty {
                    Type::F32 => "float",
                    Type::I32 => "int32_t",
                    Type::Bool => "int",
                };
                let _ = writeln!(text, "    const {ty} v{id} = {value};");
            }
        }
        for (place, output) in outputs {
            let _ = writeln!(text, "    {place} = {};", names[output.0 as usize]);
        }
        text
    }

    /// The elementary functions as C: to stand between [`PRELUDE`] and recorded code.
    pub fn functions() -> String {
        let mut text = String::new();
        for (name, body) in FUNCTIONS {
            let (recording, y) = Self::record(|| body(F::input("x")));
            let body = recording.print(&[("const float y".into(), y.into())]);
            let _ = writeln!(text, "FN float {name}(float x) {{\n{body}    return y;\n}}");
        }
        text
    }
}

macro_rules! operators {
    ($lanes:ident, $scalar:ty, $literal:ident, $ty:ident, $select:literal, $($trait:ident $method:ident $name:literal),+) => {
        impl From<$scalar> for $lanes {
            #[inline(never)]
            fn from(value: $scalar) -> Self {
                Self(push(Node::Leaf($literal(value)), Type::$ty))
            }
        }
        impl Select<M> for $lanes {
            fn select(mask: M, yes: Self, no: Self) -> Self {
                Self(call($select, &[mask.0, yes.0, no.0], Type::$ty))
            }
        }
        $(
            impl $trait for $lanes {
                type Output = Self;
                fn $method(self, other: Self) -> Self {
                    Self(call($name, &[self.0, other.0], Type::$ty))
                }
            }
            impl $trait<$scalar> for $lanes {
                type Output = Self;
                fn $method(self, other: $scalar) -> Self {
                    $trait::$method(self, Self::from(other))
                }
            }
        )+
    };
}
operators!(F, f32, float_literal, F32, "select_f", Add add "add_f", Sub sub "sub_f", Mul mul "mul_f", Div div "div_f");
operators!(
    I, i32, int_literal, I32, "select_i", Add add "add_i", Sub sub "sub_i", Mul mul "mul_i", BitAnd bitand "and_i", BitOr bitor "or_i",
    BitXor bitxor "xor_i"
);

impl Neg for F {
    type Output = Self;
    fn neg(self) -> Self {
        Self(call("neg_f", &[self.0], Type::F32))
    }
}

impl Float for F {
    type L = Sym;

    fn lt(self, other: impl Into<Self>) -> M {
        M(call("lt_f", &[self.0, other.into().0], Type::Bool))
    }
    fn le(self, other: impl Into<Self>) -> M {
        M(call("le_f", &[self.0, other.into().0], Type::Bool))
    }
    fn eq(self, other: impl Into<Self>) -> M {
        M(call("eq_f", &[self.0, other.into().0], Type::Bool))
    }
    fn min(self, other: impl Into<Self>) -> Self {
        Self(call("min_f", &[self.0, other.into().0], Type::F32))
    }
    fn max(self, other: impl Into<Self>) -> Self {
        Self(call("max_f", &[self.0, other.into().0], Type::F32))
    }
    fn abs(self) -> Self {
        Self(call("abs_f", &[self.0], Type::F32))
    }
    fn sqrt(self) -> Self {
        Self(call("sqrt_f", &[self.0], Type::F32))
    }
    fn floor(self) -> Self {
        Self(call("floor_f", &[self.0], Type::F32))
    }
    fn round(self) -> Self {
        Self(call("round_f", &[self.0], Type::F32))
    }
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self {
        Self(call("mul_add_f", &[self.0, factor.into().0, addend.into().0], Type::F32))
    }
    fn to_int(self) -> I {
        I(call("to_int", &[self.0], Type::I32))
    }
    fn bits(self) -> I {
        I(call("bits", &[self.0], Type::I32))
    }
    fn from_bits(bits: I) -> Self {
        Self(call("from_bits", &[bits.0], Type::F32))
    }
    fn sin_cos(self) -> (Self, Self) {
        (self.sin(), self.cos())
    }
    fn sin(self) -> Self {
        Self(call("sin_f", &[self.0], Type::F32))
    }
    fn cos(self) -> Self {
        Self(call("cos_f", &[self.0], Type::F32))
    }
    fn exp(self) -> Self {
        Self(call("exp_f", &[self.0], Type::F32))
    }
    fn log(self) -> Self {
        Self(call("log_f", &[self.0], Type::F32))
    }
    fn tanh(self) -> Self {
        Self(call("tanh_f", &[self.0], Type::F32))
    }
}

impl Int for I {
    type L = Sym;

    fn eq(self, other: impl Into<Self>) -> M {
        M(call("eq_i", &[self.0, other.into().0], Type::Bool))
    }
    fn lt(self, other: impl Into<Self>) -> M {
        M(call("lt_i", &[self.0, other.into().0], Type::Bool))
    }
    fn shl(self, count: u32) -> Self {
        Self(call("shl_i", &[self.0, I::from(count as i32).0], Type::I32))
    }
    fn shr(self, count: u32) -> Self {
        Self(call("shr_i", &[self.0, I::from(count as i32).0], Type::I32))
    }
    fn sar(self, count: u32) -> Self {
        Self(call("sar_i", &[self.0, I::from(count as i32).0], Type::I32))
    }
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self) {
        let other = other.into();
        (Self(call("mul_high_i", &[self.0, other.0], Type::I32)), self * other)
    }
    #[inline(never)]
    fn philox(counter: [Self; 4], key: [Self; 2]) -> [Self; 4] {
        rng::philox(counter, key)
    }
    fn to_float(self) -> F {
        F(call("to_float", &[self.0], Type::F32))
    }
    fn lookup(self, values: &'static [i32]) -> Self {
        Self(table(Type::I32, values.iter().map(|&x| x as u32).collect(), self.0))
    }
    fn lookup_f(self, values: &'static [f32]) -> F {
        F(table(Type::F32, values.iter().map(|x| x.to_bits()).collect(), self.0))
    }
}

impl Mask for M {
    fn splat(value: bool) -> Self {
        Self(push(Node::Leaf(i32::from(value).to_string()), Type::Bool))
    }
}

macro_rules! mask_operators {
    ($($trait:ident $method:ident $name:literal),+) => {$(
        impl $trait for M {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self(call($name, &[self.0, other.0], Type::Bool))
            }
        }
    )+};
}
mask_operators!(BitAnd bitand "and_m", BitOr bitor "or_m", BitXor bitxor "xor_m");

impl Not for M {
    type Output = Self;
    fn not(self) -> Self {
        Self(call("not_m", &[self.0], Type::Bool))
    }
}

#[cfg(test)]
mod tests {
    use super::super::select;
    use super::*;

    #[test]
    fn equal_expressions_share_a_node_and_dead_ones_are_dropped() {
        let (recording, y) = Recording::record(|| {
            let x = F::input("x");
            let _unused = x.sqrt();
            let twice = (x + 1.0) * (x + 1.0);
            select::<_, F>(twice.lt(4.0), twice, F::from_bits(twice.bits()))
        });
        let text = recording.print(&[("y".into(), y.into())]);
        assert_eq!(text.matches("add_f").count(), 1, "{text}");
        assert!(!text.contains("sqrt_f") && !text.contains("bits"), "{text}");
    }

    #[test]
    fn literals_are_exact() {
        for x in [0.1f32, 1e-7, 16_777_216.0, f32::MIN_POSITIVE, -0.0] {
            let text = float_literal(x);
            assert_eq!(text.trim_end_matches('f').parse::<f32>().unwrap().to_bits(), x.to_bits());
        }
        assert_eq!(float_literal(f32::INFINITY), "INFINITY");
        assert_eq!(int_literal(i32::MIN), "INT32_MIN");
    }
}
