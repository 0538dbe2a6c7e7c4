//! Text as a task: windows of bytes, at every place of which the next byte is to be told.

use super::task::{Key, Samples, Source, Task, checksum};
use operant_base::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Kinds of bytes.
pub(super) const VOCABULARY: usize = 256;
/// One part of so many, at the end of a text, is validated on; the rest is trained on.
const PARTS: usize = 10;
/// Most bytes of a text.
const MOST: u64 = 1 << 30;
/// Bytes by which a file in a folder is known as text.
const LOOKED_AT: u64 = 1 << 16;

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
            digest: checksum(&[text]),
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
    let failed = |error: std::io::Error| Error::Io(format!("can't read text from {}: {error}; {next}", path.display()));
    let mut text = Vec::new();
    // What is no plain file (a pipe, a device) may never end: no more is read than can be held.
    let mut add = |file: &Path| File::open(file)?.take(MOST + 1 - text.len() as u64).read_to_end(&mut text);
    if path.is_dir() {
        let entries = path.read_dir().map_err(failed)?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            if is_text(file).map_err(failed)? {
                add(file).map_err(failed)?;
            }
        }
    } else {
        add(path).map_err(failed)?;
    }
    if text.len() as u64 > MOST {
        let shown = path.display();
        return Err(Error::Invalid(format!(
            "text in {shown}: more than {MOST} bytes, which are held in memory; cut it"
        )));
    }
    if text.is_empty() {
        return Err(Error::Invalid(format!("{} holds no text (files of UTF-8 in a folder); {next}", path.display())));
    }
    Ok(text)
}

/// Whether a file begins as UTF-8 does.
fn is_text(file: &Path) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    File::open(file)?.take(LOOKED_AT).read_to_end(&mut begin)?;
    // A character may be cut at the end of what was looked at.
    let whole = |error: std::str::Utf8Error| error.error_len().is_none() && begin.len() as u64 == LOOKED_AT;
    Ok(std::str::from_utf8(&begin).map_or_else(whole, |_| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;

    /// New samples of every epoch come from what is trained on.
    #[test]
    fn fresh_windows_know_nothing_of_what_is_validated_on() {
        let text: Vec<u8> = (0..1000).map(|i| if i < 900 { (i % 100) as u8 } else { 255 }).collect();
        let key = Key { task: 3, side: 8, train: 4, validation: 4, modes: 1, seed: 0, context: 8 };
        let task = Task::of_text(&text, key).unwrap();
        let (mut rng, mut samples) = (HostRng::new(1, 0, 0, 0), Samples::default());
        task.batch(&[0; 2000], true, &mut rng, &mut samples);
        assert_eq!((samples.images.len(), samples.targets.len()), (16_000, 16_000));
        assert!(samples.images.iter().all(|byte| *byte < 100.0) && samples.targets.iter().all(|byte| *byte < 100));
        for (bytes, next) in samples.images.chunks(8).zip(samples.targets.chunks(8)) {
            assert!(bytes[1..].iter().zip(next).all(|(a, b)| *a == *b as f32));
        }
        let begins: std::collections::HashSet<u32> = samples.images.chunks(8).map(|bytes| bytes[0] as u32).collect();
        assert!(begins.len() > 90, "windows begin anywhere");
        let mut kept = Samples::default();
        task.batch(&[3], false, &mut rng, &mut kept);
        assert_eq!(kept.images, task.train.images[24..]);
    }
}
