//! Named lane columns: how an env's state is laid out, injected, saved and printed.

use super::Lanes;

/// What a state column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// f32.
    F32,
    /// i32.
    I32,
}

/// Name and kind of a state column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, as used by state injection.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// A state made of 32-bit columns. [`columns!`](crate::columns) writes the implementation.
pub trait Columns<L: Lanes>: Copy {
    /// The columns, in storage order.
    const COLUMNS: &'static [Column];
    /// Builds a state from the bits of its columns.
    fn read(words: &[L::I]) -> Self;
    /// Writes the bits of its columns.
    fn write(self, words: &mut [L::I]);
}

/// A fixed number of lane values: `[L::F; N]`.
pub trait Block<T>: Copy + AsRef<[T]> {
    /// How many.
    const LEN: usize;
}

impl<T: Copy, const N: usize> Block<T> for [T; N] {
    const LEN: usize = N;
}

/// Declares a state struct of lane columns: `columns! { /// Doc. pub struct State { x: F, tries: I } }`.
#[macro_export]
macro_rules! columns {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident : $kind:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name<L: $crate::Lanes> {
            $($(#[$field_doc])* $vis $field: L::$kind),+
        }
        impl<L: $crate::Lanes> $crate::Columns<L> for $name<L> {
            const COLUMNS: &'static [$crate::Column] = &[
                $($crate::Column { name: stringify!($field), kind: $crate::columns!(@kind $kind) }),+
            ];
            #[inline(always)]
            fn read(words: &[L::I]) -> Self {
                let [$($field),+] = *words else { panic!("a state has one word per column") };
                Self { $($field: $crate::columns!(@from_bits $kind, $field)),+ }
            }
            #[inline(always)]
            fn write(self, words: &mut [L::I]) {
                words.copy_from_slice(&[$($crate::columns!(@bits $kind, self.$field)),+]);
            }
        }
    };
    (@kind F) => { $crate::Kind::F32 };
    (@kind I) => { $crate::Kind::I32 };
    (@bits F, $e:expr) => { $crate::Float::bits($e) };
    (@bits I, $e:expr) => { $e };
    (@from_bits F, $e:expr) => { $crate::Float::from_bits($e) };
    (@from_bits I, $e:expr) => { $e };
}
