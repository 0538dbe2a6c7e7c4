//! Env parameters as data: named, documented, bounded, settable from the command line, Python and config files.

use operant_base::{Error, Result};
use std::ops::RangeInclusive;

/// A parameter of an env as the user sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name; the key in config files and the keyword in Python.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Unit, or empty.
    pub unit: &'static str,
    /// Current value; truth values are 0 and 1.
    pub value: f64,
    /// Allowed values.
    pub range: RangeInclusive<f64>,
    /// Whether only whole numbers are allowed.
    pub whole: bool,
    /// Names of the values 0, 1 …, where they are choices.
    pub names: &'static [&'static str],
}

impl Param {
    /// The value that a name stands for, or a message with the names.
    pub fn named(&self, text: &str) -> Result<f64> {
        let found = self.names.iter().position(|name| *name == text);
        found.map(|at| at as f64).ok_or_else(|| {
            let known = self.names.join(", ");
            Error::unknown(&format!("{} of the env", self.name), text, self.names.iter().copied(), &known)
        })
    }
}

/// A type that can hold a parameter: `f32`, `u32` or `bool`.
pub trait ParamValue: Copy {
    /// Whether only whole numbers fit.
    const WHOLE: bool;
    /// As a number.
    fn number(self) -> f64;
    /// From a number already known to be in range and, if `WHOLE`, whole.
    fn from_number(x: f64) -> Self;
}

impl ParamValue for f32 {
    const WHOLE: bool = false;
    fn number(self) -> f64 {
        // Through decimal text, so that 9.8f32 shows as 9.8 and not as 9.800000190734863.
        self.to_string().parse().unwrap_or(f64::from(self))
    }
    fn from_number(x: f64) -> Self {
        x as f32
    }
}

impl ParamValue for u32 {
    const WHOLE: bool = true;
    fn number(self) -> f64 {
        f64::from(self)
    }
    fn from_number(x: f64) -> Self {
        x as u32
    }
}

impl ParamValue for bool {
    const WHOLE: bool = true;
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn from_number(x: f64) -> Self {
        x != 0.0
    }
}

/// A set of parameters. [`params!`](crate::params!) writes the implementation.
pub trait Params {
    /// All of them with their current values.
    fn params(&self) -> Vec<Param>;
    /// Stores a value that was checked against [`Param::range`].
    fn store(&mut self, index: usize, value: f64);

    /// Sets a parameter by name.
    fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let params = self.params();
        let Some(index) = params.iter().position(|p| p.name == name) else {
            let names: Vec<&str> = params.iter().map(|p| p.name).collect();
            let next_step =
                if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
            return Err(Error::unknown("parameter", name, names, &next_step));
        };
        let Param { range, whole, unit, .. } = &params[index];
        if !range.contains(&value) || (*whole && value.fract() != 0.0) {
            let kind = if *whole { "a whole number" } else { "a number" };
            let (low, high) = (range.start(), range.end());
            return Err(Error::Invalid(
                format!("parameter {name} = {value}: wanted {kind} in {low}..={high} {unit}").trim_end().into(),
            ));
        }
        self.store(index, value);
        Ok(())
    }
}

/// An error unless `low <= high`, for two parameters of these names.
pub fn ordered(low: (&str, f32), high: (&str, f32)) -> Result<()> {
    if low.1 <= high.1 {
        Ok(())
    } else {
        Err(Error::Invalid(format!("parameters {} = {}, {} = {}: wanted {0} <= {2}", low.0, low.1, high.0, high.1)))
    }
}

/// Declares an env's struct of parameters, each with its doc, default, allowed range and unit:
/// (choices have their names behind it) `params! { /// Doc. pub struct Swing { /// gravitational acceleration` ⏎ `gravity: f32 = 9.8, 0.0..=1e3, "m/s²"; } }`.
#[macro_export]
macro_rules! params {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $field_doc:literal])+ $field:ident : $ty:ty = $default:expr, $range:expr, $unit:literal $(, $names:expr)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $name {
            $($(#[doc = $field_doc])+ pub $field: $ty),*
        }
        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }
        impl $crate::Params for $name {
            fn params(&self) -> Vec<$crate::Param> {
                vec![$($crate::Param {
                    name: stringify!($field),
                    doc: concat!($($field_doc),+).trim(),
                    unit: $unit,
                    value: $crate::ParamValue::number(self.$field),
                    range: $range,
                    whole: <$ty as $crate::ParamValue>::WHOLE,
                    names: [$($names,)? &[]][0],
                }),*]
            }
            #[allow(unused_variables, unused_mut, unused_assignments)]
            fn store(&mut self, index: usize, value: f64) {
                let mut next = 0;
                $(
                    if index == next {
                        self.$field = $crate::ParamValue::from_number(value);
                    }
                    next += 1;
                )*
            }
        }
    };
}
