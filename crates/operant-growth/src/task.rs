//! What a host learns: images and classes, or texts, for training and for validation, made or read once and shared.

use super::noise::add_normals;
use super::text;
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};

/// Tasks by name, in the order of their numbers.
pub const TASKS: &[&str] = &["cifar10_synthetic", "cifar10", "motifs", "bytes"];
/// Number of [`cifar10`] in [`TASKS`].
pub(super) const CIFAR10: u32 = 1;
/// Number of [`What::Motifs`] in [`TASKS`].
const MOTIFS: u32 = 2;
/// Number of the task of texts ([`Task::of_text`]) in [`TASKS`].
pub(super) const BYTES: u32 = 3;

/// Whether a task's images stay of their class when they are cropped and mirrored.
pub(super) fn may_be_moved(task: u32) -> bool {
    ["cifar10_synthetic", "cifar10"].contains(&TASKS[task as usize])
}

/// Classes of images, in every task.
pub const CLASSES: usize = 10;
/// Channels of images.
const CHANNELS: usize = 3;

/// Which samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Number in [`TASKS`].
    pub task: u32,
    /// Pixels along each side.
    pub side: u32,
    /// Samples to train on.
    pub train: u32,
    /// Samples to validate on.
    pub validation: u32,
    /// Patterns of each synthetic class: the more, the wider a host must be to know them.
    pub modes: u32,
    /// Which of the possible synthetic tasks.
    pub seed: u32,
    /// Bytes of a window of text.
    pub context: u32,
}

/// Samples: images `[rows, side, side, 3]` of about mean 0 and variance 1, and their classes; or bytes `[rows, context]`, and the
/// byte behind each.
#[derive(Debug, Default, PartialEq)]
pub struct Samples {
    /// Pixels, or bytes as numbers.
    pub images: Vec<f32>,
    /// Classes, or next bytes.
    pub targets: Vec<i32>,
}

/// A task.
#[derive(Debug, PartialEq)]
pub struct Task {
    /// To train on.
    pub train: Samples,
    /// To validate on.
    pub validation: Samples,
    /// Height, width, channels; of texts the context, 1 and 1.
    pub image: [usize; 3],
    /// Classes, or kinds of bytes.
    pub classes: usize,
    /// What makes more of them.
    pub(super) source: Option<Source>,
    /// Checksum of samples that come from files; 0 where they are drawn.
    pub digest: u64,
}

impl Task {
    /// The task of this key, shared with all who hold it already.
    pub fn get(key: Key) -> Result<Arc<Self>> {
        static MADE: Mutex<Vec<(Key, PathBuf, Weak<Task>)>> = Mutex::new(Vec::new());
        let place = task_data();
        let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        made.retain(|(.., task)| task.strong_count() > 0);
        let mut known = made.iter().filter(|(known, from, _)| *known == key && *from == place);
        if let Some(task) = known.find_map(|(.., task)| task.upgrade()) {
            return Ok(task);
        }
        let task = Arc::new(match key.task {
            CIFAR10 => cifar10(key, &place)?,
            BYTES => Self::of_text(&text::read(&place)?, key)?,
            _ => synthetic(key),
        });
        made.push((key, place, Arc::downgrade(&task)));
        Ok(task)
    }

    /// Samples to train on.
    pub fn train_count(&self) -> usize {
        self.train.images.len() / self.image.iter().product::<usize>()
    }

    /// Height, width and channels of a key's images, and classes; of a text its context, 1 and 1, and the kinds of bytes.
    pub fn shape(key: Key) -> ([usize; 3], usize) {
        let side = key.side as usize;
        if key.task == BYTES {
            ([key.context as usize, 1, 1], text::VOCABULARY)
        } else {
            ([side, side, CHANNELS], CLASSES)
        }
    }

    /// Adds samples to train on to `to`: those of these numbers, or as many new ones of the same kind if `fresh` and the
    /// task is synthetic or a text.
    pub(super) fn batch(&self, rows: &[u32], fresh: bool, rng: &mut HostRng, to: &mut Samples) {
        let source = self.source.as_ref().filter(|_| fresh);
        let pixels = self.image.iter().product::<usize>();
        let targets = self.train.targets.len() / self.train_count().max(1);
        for &row in rows {
            let row = row as usize;
            if let Some(source) = source {
                source.draw(rng, to);
            } else {
                to.images.extend_from_slice(&self.train.images[row * pixels..][..pixels]);
                to.targets.extend_from_slice(&self.train.targets[row * targets..][..targets]);
            }
        }
    }

    /// Whether there are more samples than those that are held.
    pub(super) fn is_synthetic(&self) -> bool {
        self.source.is_some()
    }

    /// Whether the task can be made.
    pub fn check(key: Key) -> Result<()> {
        if key.task == MOTIFS && (key.side as usize) < 2 * MOTIF {
            return Err(Error::Invalid(format!("parameter side = {}: motifs wants at least {}", key.side, 2 * MOTIF)));
        }
        if !reads_files(key.task) {
            return Ok(());
        }
        Self::get(key).map(drop)
    }
}

/// Side of the coarse grid that a pattern is drawn on.
const GRID: usize = 4;
/// Standard deviation of the noise on a pixel; patterns have 1.
const NOISE: f32 = 0.5;

/// Pixels along each side of a motif.
const MOTIF: usize = 3;
/// Standard deviation of a motif's pixels.
const CONTRAST: f32 = 2.0;

/// Where new samples of a synthetic task or a text come from.
#[derive(Debug, PartialEq)]
pub(super) struct Source {
    /// Pixels along each side, or bytes of a window.
    side: usize,
    modes: usize,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    /// Images that show one of several smooth patterns of their class, moved by up to a quarter of the side in both
    /// directions (around the edges), perhaps with its sign turned, under noise. No colour, place or sign tells a class by
    /// itself, so that it takes wide layers behind each other to know all of them.
    Patterns(Vec<Vec<f32>>),
    /// Images that show two motifs under noise, one of each of two groups, anywhere in two different quarters. The class is
    /// looked up by the pair in a shuffled table in which all classes are as frequent, but for one pair: neither motif tells it
    /// alone, and no sum over what each of them says does, so that a network must join features of distant places.
    Motifs {
        /// Of the first group, then of the second.
        motifs: Vec<f32>,
        /// Class of each pair.
        classes: Vec<i32>,
    },
    /// Windows that begin anywhere in this text.
    Text(Vec<u8>),
}

impl Source {
    /// The task of a key, drawn with `rng`.
    fn new(key: Key, rng: &mut HostRng) -> Self {
        let (side, modes) = (key.side as usize, key.modes as usize);
        let what = if key.task == MOTIFS {
            let motifs = (0..2 * modes * MOTIF * MOTIF * CHANNELS).map(|_| CONTRAST * rng.normal()).collect();
            let mut classes: Vec<i32> = (0..modes * modes).map(|pair| (pair % CLASSES) as i32).collect();
            for i in (1..classes.len()).rev() {
                classes.swap(i, rng.below(i as u32 + 1) as usize);
            }
            What::Motifs { motifs, classes }
        } else {
            What::Patterns((0..CLASSES * modes).map(|_| pattern(side, rng)).collect())
        };
        Self { side, modes, what }
    }

    /// Windows of a text.
    pub(super) fn text(text: &[u8], context: usize) -> Self {
        Self { side: context, modes: 1, what: What::Text(text.to_vec()) }
    }

    /// Adds a sample.
    fn draw(&self, rng: &mut HostRng, to: &mut Samples) {
        let side = self.side;
        match &self.what {
            What::Text(text) => {
                let begins = text.len() - side;
                text::window(text, rng.below(begins as u32) as usize, side, to);
            }
            What::Patterns(patterns) => {
                let which = rng.below((CLASSES * self.modes) as u32) as usize;
                let reach = (side / 2) as u32;
                let [down, right] = [(); 2].map(|()| rng.below(reach) as usize);
                let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
                let first = to.images.len();
                add_normals(rng, side * side * CHANNELS, &mut to.images);
                for (place, pixel) in to.images[first..].chunks_exact_mut(CHANNELS).enumerate() {
                    let (row, column) = (place / side, place % side);
                    let at = ((row + down) % side * side + (column + right) % side) * CHANNELS;
                    let shown = patterns[which][at..at + CHANNELS].iter();
                    pixel.iter_mut().zip(shown).for_each(|(pixel, x)| *pixel = sign * x + NOISE * *pixel);
                }
                to.targets.push((which % CLASSES) as i32);
            }
            What::Motifs { motifs, classes } => {
                let (first, size) = (to.images.len(), MOTIF * MOTIF * CHANNELS);
                add_normals(rng, side * side * CHANNELS, &mut to.images);
                let image = &mut to.images[first..];
                image.iter_mut().for_each(|pixel| *pixel *= NOISE);
                let kinds = [(); 2].map(|()| rng.below(self.modes as u32) as usize);
                let quarter = rng.below(4) as usize;
                let quarters = [quarter, (quarter + 1 + rng.below(3) as usize) % 4];
                let reach = (side / 2 - MOTIF + 1) as u32;
                for group in 0..2 {
                    let motif = &motifs[(group * self.modes + kinds[group]) * size..][..size];
                    let [top, left] = [quarters[group] / 2, quarters[group] % 2]
                        .map(|half| half * (side / 2) + rng.below(reach) as usize);
                    for (row, values) in motif.chunks_exact(MOTIF * CHANNELS).enumerate() {
                        let at = ((top + row) * side + left) * CHANNELS;
                        image[at..].iter_mut().zip(values).for_each(|(pixel, value)| *pixel += value);
                    }
                }
                to.targets.push(classes[kinds[0] * self.modes + kinds[1]]);
            }
        }
    }
}

/// A task without files.
fn synthetic(key: Key) -> Task {
    let mut rng = HostRng::new(u64::from(key.seed), 0, 0, 1);
    let source = Source::new(key, &mut rng);
    let mut samples = |count: u32| {
        let mut samples = Samples::default();
        (0..count).for_each(|_| source.draw(&mut rng, &mut samples));
        samples
    };
    let (train, validation) = (samples(key.train), samples(key.validation));
    Task {
        train,
        validation,
        image: [source.side, source.side, CHANNELS],
        classes: CLASSES,
        source: Some(source),
        digest: 0,
    }
}

/// A smooth pattern that continues over its edges: numbers on a coarse grid, interpolated, of variance 1.
fn pattern(side: usize, rng: &mut HostRng) -> Vec<f32> {
    let coarse: Vec<f32> = (0..GRID * GRID * CHANNELS).map(|_| rng.normal()).collect();
    let value =
        |row: usize, column: usize, channel: usize| coarse[(row % GRID * GRID + column % GRID) * CHANNELS + channel];
    let mut pixels = Vec::with_capacity(side * side * CHANNELS);
    for row in 0..side {
        for column in 0..side {
            let [y, x] = [row, column].map(|at| at as f32 * GRID as f32 / side as f32);
            let (top, left, dy, dx) = (y as usize, x as usize, y.fract(), x.fract());
            for channel in 0..CHANNELS {
                let above = value(top, left, channel) * (1.0 - dx) + value(top, left + 1, channel) * dx;
                let below = value(top + 1, left, channel) * (1.0 - dx) + value(top + 1, left + 1, channel) * dx;
                pixels.push(above * (1.0 - dy) + below * dy);
            }
        }
    }
    let size = (pixels.iter().map(|x| x * x).sum::<f32>() / pixels.len() as f32).sqrt();
    pixels.iter().map(|x| x / size.max(1e-6)).collect()
}

/// Pixels along each side of CIFAR's images.
pub(super) const CIFAR_SIDE: usize = 32;
/// A record of its binary files: class, then planes of red, green and blue.
const RECORD: usize = 1 + CIFAR_SIDE * CIFAR_SIDE * CHANNELS;
/// Means and standard deviations of its colours, of values between 0 and 1.
const CIFAR_COLOURS: [(f32, f32); CHANNELS] = [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)];

/// Tells contents of files apart: never 0.
pub(super) fn checksum(files: &[&[u8]]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let of = |hash: u64, bytes: &&[u8]| {
        let (words, rest) = bytes.as_chunks::<8>();
        let hash = words.iter().fold(mix(hash, bytes.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
        rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
    };
    files.iter().fold(1, of).max(1)
}

/// Whether a task's samples come from files.
pub fn reads_files(task: u32) -> bool {
    task == CIFAR10 || task == BYTES
}

static PLACE: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Says where the files of tasks lie: a folder, or of the task of texts one file.
pub fn set_task_data(place: &Path) {
    *PLACE.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(place.to_owned());
}

/// Where they lie: what was said, else `$OPERANT_TASK_DATA`, else `data`.
pub fn task_data() -> PathBuf {
    let said = PLACE.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    said.or_else(|| std::env::var_os("OPERANT_TASK_DATA").map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("data"))
}

/// CIFAR-10's binary files (Krizhevsky, "Learning multiple layers of features from tiny images", 2009).
fn cifar10(key: Key, folder: &Path) -> Result<Task> {
    let unpacked = folder.join("cifar-10-batches-bin");
    let folder = if unpacked.is_dir() { unpacked } else { folder.to_owned() };
    let read = |name: String| {
        let path = folder.join(&name);
        let bytes = std::fs::read(&path).map_err(|error| {
            Error::Io(format!(
                "can't read {}: {error}; unpack cifar-10-binary.tar.gz (data_batch_1.bin … test_batch.bin) into a folder and name \
                 it by --task-data or OPERANT_TASK_DATA, or take env.task=cifar10_synthetic",
                path.display()
            ))
        })?;
        if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) || bytes.chunks(RECORD).any(|record| record[0] > 9) {
            let text =
                format!("{} holds no CIFAR-10 records of {RECORD} bytes; take the binary version", path.display());
            return Err(Error::Invalid(text));
        }
        Ok(bytes)
    };
    let mut train = Vec::new();
    for batch in 1..=5 {
        if train.len() < key.train as usize * RECORD {
            train.extend(read(format!("data_batch_{batch}.bin"))?);
        }
    }
    let pick = |bytes: &[u8], count: u32, what: &str| {
        let held = bytes.len() / RECORD;
        if (count as usize) > held {
            return Err(Error::Invalid(format!("{count} samples to {what}: CIFAR-10's files hold {held}")));
        }
        Ok(decode(&bytes[..count as usize * RECORD]))
    };
    let test = read("test_batch.bin".into())?;
    let digest = checksum(&[&train, &test]);
    let (train, validation) = (pick(&train, key.train, "train on")?, pick(&test, key.validation, "validate on")?);
    Ok(Task { train, validation, image: [CIFAR_SIDE, CIFAR_SIDE, CHANNELS], classes: CLASSES, source: None, digest })
}

fn decode(bytes: &[u8]) -> Samples {
    let plane = CIFAR_SIDE * CIFAR_SIDE;
    let mut images = Vec::with_capacity(bytes.len() / RECORD * plane * CHANNELS);
    for record in bytes.chunks_exact(RECORD) {
        for pixel in 0..plane {
            for (channel, (mean, deviation)) in CIFAR_COLOURS.into_iter().enumerate() {
                let value = f32::from(record[1 + channel * plane + pixel]) / 255.0;
                images.push((value - mean) / deviation);
            }
        }
    }
    Samples { images, targets: bytes.chunks_exact(RECORD).map(|record| i32::from(record[0])).collect() }
}
