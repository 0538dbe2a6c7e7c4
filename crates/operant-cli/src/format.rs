//! Numbers as people read them, on screens, in tables and in reports.

/// A number in about five characters: `487.1`, `0.0131`, `3.0e-4`, `1.23 M`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return if value.is_nan() { "–".to_owned() } else { value.to_string() };
    }
    let scaled = |divisor: f64, prefix: &str| {
        let value = value / divisor;
        format!("{value:.*} {prefix}", digits(value), prefix = prefix)
    };
    match size {
        0.0 => "0".to_owned(),
        _ if size < 1e-3 => format!("{value:.1e}"),
        _ if size < 1.0 => format!("{value:.4}"),
        _ if size < 10.0 => format!("{value:.3}"),
        _ if size < 100.0 => format!("{value:.2}"),
        _ if size < 1e4 => format!("{value:.1}"),
        _ if size < 1e6 => scaled(1e3, "k"),
        _ if size < 1e9 => scaled(1e6, "M"),
        _ if size < 1e12 => scaled(1e9, "G"),
        _ => format!("{value:.2e}"),
    }
}

/// A standard error with so many digits, where there is one.
pub(crate) fn error(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// Numbers by name: `loss/value 0.0131, solve_rate 0.9844`.
pub(crate) fn numbers(named: &std::collections::BTreeMap<String, f64>) -> String {
    named.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect::<Vec<_>>().join(", ")
}

fn digits(value: f64) -> usize {
    if value.abs() >= 100.0 { 0 } else { 1 + usize::from(value.abs() < 10.0) }
}

/// A number with its unit; bytes get binary prefixes.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "bytes" if value.is_finite() => bytes(value),
        "" => number(value),
        "1/s" => format!("{}/s", number(value)),
        unit => format!("{} {unit}", number(value)),
    }
}

fn bytes(value: f64) -> String {
    let (mut value, mut prefixes) = (value, ["B", "KiB", "MiB", "GiB", "TiB"].into_iter());
    let mut prefix = prefixes.next().unwrap_or_default();
    while value.abs() >= 1024.0 {
        let Some(next) = prefixes.next() else { break };
        (value, prefix) = (value / 1024.0, next);
    }
    format!("{value:.*} {prefix}", if prefix == "B" { 0 } else { 1 })
}

/// `0.3 s`, `12 s`, `3 m 05 s`, `2 h 07 m`, `3 d`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds >= 2.0 * 86_400.0 {
        return format!("{:.0} d", seconds / 86_400.0);
    }
    let mut text = String::new();
    operant::telemetry::console::duration(&mut text, seconds);
    text
}

/// Rows in columns, two spaces apart; `right` says which columns hold numbers.
pub(crate) fn table(rows: &[Vec<String>], right: &[bool]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[i] - cell.chars().count());
            let flush_right = right.get(i).copied().unwrap_or(false);
            line += &if flush_right { format!("{space}{cell}  ") } else { format!("{cell}{space}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Text in lines of at most so many letters, unless a word is longer, each behind `indent`.
pub(crate) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        let length = indent.len() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > width {
            out += &format!("{indent}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &format!("{indent}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 9, "  "), "  one two\n  three\n");
        assert_eq!(wrapped("incomprehensibilities", 9, ""), "incomprehensibilities\n");
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.00031, 0.0131, -0.5, 9.81, 21.37, 487.12, 9999.0, 12_345.0, 1_234_567.0, 2.5e9, 1e15];
        let texts = numbers.map(number);
        let wanted = [
            "0", "3.1e-4", "0.0131", "-0.5000", "9.810", "21.37", "487.1", "9999.0", "12.3 k", "1.23 M", "2.50 G",
            "1.00e15",
        ];
        assert_eq!(texts, wanted);
        assert_eq!((number(f64::NAN).as_str(), number(f64::NEG_INFINITY).as_str()), ("–", "-inf"));
        assert_eq!(with_unit(123.0 * 1024.0 * 1024.0, "bytes"), "123.0 MiB");
        assert_eq!((with_unit(1.5e6, "1/s"), with_unit(1.9, "cores")), ("1.50 M/s".into(), "1.900 cores".into()));
    }

    #[test]
    fn durations_and_tables() {
        assert_eq!([0.31, 75.0, 7620.0, 400_000.0].map(duration), ["0.3 s", "1 m 15 s", "2 h 07 m", "5 d"]);
        let rows = [vec!["a".to_owned(), "1".into()], vec!["bb".into(), "–22".into()]];
        assert_eq!(table(&rows, &[false, true]), "a     1\nbb  –22\n");
    }
}
