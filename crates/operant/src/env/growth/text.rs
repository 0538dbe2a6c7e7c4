//! Text as a task: windows of bytes, at every place of which the next byte is to be told.

use super::task::{Key, Samples, Source, Task};
use crate::error::{Error, Result};
use std::path::Path;

/// Kinds of bytes.
pub(super) const VOCABULARY: usize = 256;
/// One part of so many, at the end of a text, is validated on; the rest is trained on.
const PARTS: usize = 10;
/// Most bytes of a text.
const MOST: u64 = 1 << 30;

impl Task {
    /// Windows of a text. Those to train on lie in its first nine tenths and those to validate on in its last tenth, so that no byte is
    /// in both; in each part they begin at even distances, and overlap where they must.
    pub fn of_text(text: &[u8], key: Key) -> Result<Self> {
        let context = key.context as usize;
        let (train, validation) = text.split_at(text.len() - text.len() / PARTS);
        let [train_need, validation_need] = [key.train, key.validation].map(|count| count as usize + context);
        if train.len() < train_need || validation.len() < validation_need {
            let wanted = (PARTS * validation_need).max((train_need * PARTS).div_ceil(PARTS - 1));
            return Err(Error::Invalid(format!(
                "a text of {} bytes: wanted at least {wanted} for {} windows of {context} bytes to train on and {} to validate on; name a longer one by \
                 --task-data, or lower env.train_samples, env.val_samples or env.context",
                text.len(),
                key.train,
                key.validation
            )));
        }
        Ok(Self {
            train: windows(train, context, key.train as usize),
            validation: windows(validation, context, key.validation as usize),
            image: [context, 1, 1],
            classes: VOCABULARY,
            source: Some(Source::text(train, context)),
        })
    }
}

/// Adds the window that begins here: its bytes, and the byte behind each.
pub(super) fn window(text: &[u8], begin: usize, context: usize, to: &mut Samples) {
    to.images.extend(text[begin..begin + context].iter().map(|byte| f32::from(*byte)));
    to.targets.extend(text[begin + 1..=begin + context].iter().map(|byte| i32::from(*byte)));
}

/// So many windows of a text, from its first bytes to its last.
fn windows(text: &[u8], context: usize, count: usize) -> Samples {
    let mut samples = Samples::default();
    let last = text.len() - context - 1;
    for number in 0..count {
        window(text, number * last / (count - 1).max(1), context, &mut samples);
    }
    samples
}

/// A file, or every file of text in a folder in the order of their names.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let next = "name a file of text, or a folder of such files, by --task-data or OPERANT_TASK_DATA";
    let failed = |path: &Path, error: std::io::Error| {
        Error::Io(format!("can't read text from {}: {error}; {next}", path.display()))
    };
    let bytes_of = |path: &Path| {
        let size = path.metadata().map_err(|error| failed(path, error))?.len();
        if size > MOST {
            let shown = path.display();
            return Err(Error::Invalid(format!(
                "text of {size} bytes in {shown}: at most {MOST} are held in memory; cut it"
            )));
        }
        std::fs::read(path).map_err(|error| failed(path, error))
    };
    if !path.is_dir() {
        return bytes_of(path);
    }
    let entries = std::fs::read_dir(path).map_err(|error| failed(path, error))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|error| failed(path, error))?;
    files.retain(|file| file.is_file());
    files.sort();
    let mut text = Vec::new();
    for file in files {
        let bytes = bytes_of(&file)?;
        if std::str::from_utf8(&bytes).is_ok() {
            text.extend(bytes);
        }
    }
    if text.is_empty() {
        return Err(Error::Invalid(format!("{} holds no file of text (UTF-8); {next}", path.display())));
    }
    Ok(text)
}
