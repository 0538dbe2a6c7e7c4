//! Tables as Apache Parquet files: one row group, plain encoding, no compression, every column with a page of its own.
//!
//! The format is that of parquet-format 2 with data pages of version 1; its headers are Thrift's compact protocol. Written here because the
//! crates that do it bring Arrow along, and half a minute of building.

use rusqlite::types::Value;

const MAGIC: &[u8; 4] = b"PAR1";
/// Types of Thrift's compact protocol.
const INT32: u8 = 5;
const INT64: u8 = 6;
const TEXT: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;
/// Encodings of values and of which of them are there.
const PLAIN: i64 = 0;
const RUNS: i64 = 3;

/// What a column holds; a null may stand anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integers,
    Reals,
    Texts,
}

impl Kind {
    fn of<'a>(values: impl Iterator<Item = &'a Value>) -> Self {
        let rank = |value: &Value| match value {
            Value::Null => None,
            Value::Integer(_) => Some(0),
            Value::Real(_) => Some(1),
            Value::Text(_) | Value::Blob(_) => Some(2),
        };
        match values.filter_map(rank).max() {
            Some(0) => Self::Integers,
            Some(2) => Self::Texts,
            _ => Self::Reals,
        }
    }

    /// Its number among Parquet's physical types.
    fn physical(self) -> i64 {
        match self {
            Self::Integers => 2,
            Self::Reals => 5,
            Self::Texts => 6,
        }
    }
}

/// A struct of Thrift's compact protocol.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    last: u8,
}

fn varint(bytes: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        bytes.push(x as u8 | 0x80);
        x >>= 7;
    }
    bytes.push(x as u8);
}

fn zigzag(bytes: &mut Vec<u8>, x: i64) {
    varint(bytes, (x << 1 ^ x >> 63) as u64);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    varint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

impl Thrift {
    /// Fields come in the order of their numbers, at most 15 apart.
    fn field(&mut self, number: u8, kind: u8) -> &mut Vec<u8> {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
        &mut self.bytes
    }

    fn int32(mut self, number: u8, x: i64) -> Self {
        zigzag(self.field(number, INT32), x);
        self
    }

    fn int64(mut self, number: u8, x: usize) -> Self {
        zigzag(self.field(number, INT64), x as i64);
        self
    }

    fn text(mut self, number: u8, x: &str) -> Self {
        text(self.field(number, TEXT), x);
        self
    }

    fn list(mut self, number: u8, kind: u8, items: &[Vec<u8>]) -> Self {
        let bytes = self.field(number, LIST);
        if items.len() < 15 {
            bytes.push((items.len() as u8) << 4 | kind);
        } else {
            bytes.push(0xf0 | kind);
            varint(bytes, items.len() as u64);
        }
        bytes.extend(items.concat());
        self
    }

    fn inner(mut self, number: u8, x: Self) -> Self {
        self.field(number, STRUCT).extend(x.end());
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn number(x: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    zigzag(&mut bytes, x);
    bytes
}

/// Which values are there, as one run of packed bits, then these values.
fn page(kind: Kind, values: &[&Value]) -> Vec<u8> {
    let mut runs = Vec::new();
    varint(&mut runs, (values.len().div_ceil(8) << 1 | 1) as u64);
    for eight in values.chunks(8) {
        let bit = |(i, value): (usize, &&Value)| u8::from(**value != Value::Null) << i;
        runs.push(eight.iter().enumerate().map(bit).sum());
    }
    let mut bytes = (runs.len() as u32).to_le_bytes().to_vec();
    bytes.extend(runs);
    for value in values {
        match (kind, value) {
            (_, Value::Null) => {}
            (Kind::Integers, Value::Integer(x)) => bytes.extend(x.to_le_bytes()),
            (Kind::Reals, Value::Integer(x)) => bytes.extend((*x as f64).to_le_bytes()),
            (_, Value::Real(x)) if kind == Kind::Reals => bytes.extend(x.to_le_bytes()),
            (_, value) => {
                let text = match value {
                    Value::Text(text) => text.clone(),
                    Value::Integer(x) => x.to_string(),
                    Value::Real(x) => x.to_string(),
                    Value::Null | Value::Blob(_) => String::new(),
                };
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.into_bytes());
            }
        }
    }
    bytes
}

/// A file of these columns. Each takes less than 2 GiB, the most of a page.
pub(crate) fn file(names: &[String], rows: &[Vec<Value>]) -> Result<Vec<u8>, String> {
    let mut bytes = MAGIC.to_vec();
    let root = Thrift::default().text(4, "table").int32(5, names.len() as i64).end();
    let (mut schema, mut chunks) = (vec![root], Vec::new());
    for (i, name) in names.iter().enumerate() {
        let values: Vec<&Value> = rows.iter().map(|row| &row[i]).collect();
        let kind = Kind::of(values.iter().copied());
        let element = Thrift::default().int32(1, kind.physical()).int32(3, 1).text(4, name);
        // Texts are UTF-8, which is number 0 of the converted types.
        schema.push(if kind == Kind::Texts { element.int32(6, 0).end() } else { element.end() });
        let (page, begin) = (page(kind, &values), bytes.len());
        let size = i32::try_from(page.len())
            .map_err(|_| format!("column {name} has {} bytes: a page holds 2 GiB", page.len()))?;
        let inner = Thrift::default().int32(1, rows.len() as i64).int32(2, PLAIN).int32(3, RUNS).int32(4, RUNS);
        let header = Thrift::default().int32(1, 0).int32(2, size.into()).int32(3, size.into()).inner(5, inner).end();
        bytes.extend(header);
        bytes.extend(page);
        let total = bytes.len() - begin;
        let mut path = Vec::new();
        text(&mut path, name);
        let meta = Thrift::default()
            .int32(1, kind.physical())
            .list(2, INT32, &[number(PLAIN), number(RUNS)])
            .list(3, TEXT, &[path])
            .int32(4, 0)
            .int64(5, rows.len())
            .int64(6, total)
            .int64(7, total)
            .int64(9, begin);
        chunks.push(Thrift::default().int64(2, begin).inner(3, meta).end());
    }
    let group =
        Thrift::default().list(1, STRUCT, &chunks).int64(2, bytes.len() - MAGIC.len()).int64(3, rows.len()).end();
    let footer = Thrift::default()
        .int32(1, 1)
        .list(2, STRUCT, &schema)
        .int64(3, rows.len())
        .list(4, STRUCT, &[group])
        .text(6, "operant")
        .end();
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(MAGIC);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that pyarrow 26 read back as `{"a": [7, None], "b": [None, "x"]}`, of types int64 and string.
    #[test]
    fn a_table_is_what_another_reader_understood() {
        let names = ["a", "b"].map(str::to_owned);
        let rows = [vec![Value::Integer(7), Value::Null], vec![Value::Null, Value::Text("x".into())]];
        let wanted = "504152311500151c151c2c15041500150615060000020000000301070000000000000015001516\
                      15162c1504150015061506000002000000030201000000781502193c48057461626c65150400\
                      1504250218016100150c25021801622500001604191c192c26081c1504192500061918016115\
                      001604163e163e2608000026461c150c19250006191801621500160416381638264600001676\
                      16040028076f706572616e74006700000050415231";
        let hex: String = file(&names, &rows).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
    }

    #[test]
    fn columns_hold_what_all_their_values_can_be() {
        let kind = |values: &[Value]| Kind::of(values.iter());
        assert_eq!(kind(&[Value::Integer(1), Value::Null]), Kind::Integers);
        assert_eq!(kind(&[Value::Integer(1), Value::Real(0.5)]), Kind::Reals);
        assert_eq!(kind(&[Value::Integer(1), Value::Text("x".into())]), Kind::Texts);
        assert_eq!(kind(&[Value::Null]), Kind::Reals);
        // Eight groups of presence bits, the numbers as text, and nothing for what is not there.
        let values = [Value::Integer(-3), Value::Null, Value::Text("é".into())];
        let bytes = page(Kind::Texts, &values.iter().collect::<Vec<_>>());
        assert_eq!(bytes, [2, 0, 0, 0, 3, 0b101, 2, 0, 0, 0, b'-', b'3', 2, 0, 0, 0, 0xc3, 0xa9]);
    }
}
