//! What an op that goes number by number computes, as CUDA C: plans print kernels of many such ops that follow each other.

/// How an input is read for number i of a tensor of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Its number i.
    Each,
    /// So many numbers that all rows share, again and again: number i % n.
    Shared(usize),
    /// So many numbers of each row, again and again.
    Row(usize),
}

/// An op number by number. In its texts `x0`, `x1` and so on are numbers of inputs, `y` is that of the result and `dy` that of its
/// gradient; `rows` is how many rows a group has. What is drawn is `drawn(draws, node, number, …)`. Products and sums are `times`, `plus` and `minus` of `chain.cu`, so that no bit
/// depends on what else a kernel does.
#[derive(Clone, Debug)]
pub struct Formula {
    pub(crate) value: String,
    /// The value in a plan without gradients, where that is another.
    pub(crate) untrained: Option<String>,
    /// Of each input; what it reads besides `dy` is what the op needs. None where it is not number by number.
    pub(crate) gradients: Vec<Option<String>>,
    /// Inputs behind these are read [`Read::Each`].
    pub(crate) reads: Vec<Read>,
}

impl Formula {
    /// By its value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), untrained: None, gradients: Vec::new(), reads: Vec::new() }
    }

    /// With another value in plans without gradients.
    pub fn untrained(self, value: impl Into<String>) -> Self {
        Self { untrained: Some(value.into()), ..self }
    }

    /// With the gradient of the next input.
    pub fn gradient(mut self, text: impl Into<String>) -> Self {
        self.gradients.push(Some(text.into()));
        self
    }

    /// With the ways in which the first inputs are read.
    pub fn reads(self, reads: impl Into<Vec<Read>>) -> Self {
        Self { reads: reads.into(), ..self }
    }

    pub(crate) fn read(&self, input: usize) -> Read {
        self.reads.get(input).copied().unwrap_or(Read::Each)
    }

    pub(crate) fn gradient_of(&self, input: usize) -> Option<&str> {
        self.gradients.get(input)?.as_deref()
    }
}

/// A number as CUDA C.
pub(crate) fn literal(x: f32) -> String {
    match x {
        _ if x.is_nan() => "NAN".into(),
        f32::INFINITY => "INFINITY".into(),
        f32::NEG_INFINITY => "(-INFINITY)".into(),
        _ if x.is_sign_negative() => format!("({x:?}f)"),
        _ => format!("{x:?}f"),
    }
}

/// A text with its names replaced where `of` knows them.
pub(crate) fn with_names(text: &str, mut of: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        let (before, word) = rest.split_at(start);
        let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(word.len());
        out.push_str(before);
        match of(&word[..end]) {
            Some(name) => out.push_str(&name),
            None => out.push_str(&word[..end]),
        }
        rest = &word[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_whole() {
        let of = |name: &str| (name == "x0").then(|| "v3.v[k]".to_owned());
        assert_eq!(with_names("times(x0, x00) - x0", of), "times(v3.v[k], x00) - v3.v[k]");
        let literals = [-0.75, 1e-12, f32::NEG_INFINITY, 3.0].map(literal);
        assert_eq!(literals, ["(-0.75f)", "1e-12f", "(-INFINITY)", "3.0f"]);
    }
}
