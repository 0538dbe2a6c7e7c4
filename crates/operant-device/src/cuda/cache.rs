//! Compiled kernels on disk, per user: `$XDG_CACHE_HOME/operant` or `~/.cache/operant`.
//!
//! An entry holds all that decided its bytes (source, architecture, compiler, options) beside them, with a checksum, so
//! neither a collision of names nor a damaged file is ever taken for it. It is written beside and renamed; a lock keeps
//! two processes from compiling the same. A folder that cannot be written costs time and nothing else.

use operant_base::Result;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"OPRCUB01";

/// The folder, if the environment names one.
pub(super) fn folder() -> Option<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(cache.join("operant"))
}

/// The bytes kept for `key`, or those that `make` makes, which are then kept.
pub(super) fn cached(name: &str, key: &str, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    match folder() {
        Some(folder) => cached_in(&folder, name, key, make),
        None => make(),
    }
}

fn cached_in(folder: &Path, name: &str, key: &str, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let path = folder.join(format!("{name}-{:016x}.cubin", fnv(key.as_bytes())));
    if let Some(bytes) = read(&path, key) {
        return Ok(bytes);
    }
    let _ = std::fs::create_dir_all(folder);
    // Held until the entry is written. Where there are no locks, two may compile the same: the later rename wins.
    let lock = std::fs::File::create(path.with_extension("lock")).ok();
    if lock.as_ref().is_some_and(|lock| lock.lock().is_ok())
        && let Some(bytes) = read(&path, key)
    {
        return Ok(bytes);
    }
    let bytes = make()?;
    let _ = write(&path, key, &bytes);
    Ok(bytes)
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The bytes of an entry that is whole and of this key.
fn read(path: &Path, key: &str) -> Option<Vec<u8>> {
    let file = std::fs::read(path).ok()?;
    let (body, sum) = file.split_last_chunk::<8>()?;
    if fnv(body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let (length, rest) = body.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (known, bytes) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (known == key.as_bytes()).then(|| bytes.to_vec())
}

fn write(path: &Path, key: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = MAGIC.to_vec();
    file.extend((key.len() as u64).to_le_bytes());
    file.extend(key.as_bytes());
    file.extend(bytes);
    let sum = fnv(&file);
    file.extend(sum.to_le_bytes());
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::File::create(&beside)
        .and_then(|mut out| out.write_all(&file))
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_base::Error;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("operant-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn entry(folder: &Path) -> PathBuf {
        let mut files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        files.find(|path| path.extension().is_some_and(|ext| ext == "cubin")).unwrap()
    }

    #[test]
    fn an_entry_is_made_once_and_again_when_it_is_damaged_or_foreign() {
        let folder = folder("damaged");
        let made = std::cell::Cell::new(0);
        let get = |key: &str| {
            let make = || {
                made.set(made.get() + 1);
                Ok(format!("cubin of {key}").into_bytes())
            };
            cached_in(&folder, "k", key, make).unwrap()
        };
        assert_eq!((get("a"), get("a"), made.get()), (b"cubin of a".to_vec(), b"cubin of a".to_vec(), 1));
        let path = entry(&folder);
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 9, 18, whole.len() - 9, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            let before = made.get();
            assert_eq!((get("a"), made.get()), (b"cubin of a".to_vec(), before + 1), "byte {at}");
        }
        for length in [0, 7, 16, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(get("a"), b"cubin of a");
        }
        // A whole entry under this name, but of another key.
        write(&path, "b", b"cubin of b").unwrap();
        assert_eq!(get("a"), b"cubin of a");
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn many_writers_make_it_once() {
        let folder = folder("writers");
        let made = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let bytes = cached_in(&folder, "k", "key", || {
                        made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        Ok(vec![7; 100_000])
                    });
                    assert_eq!(bytes.unwrap(), vec![7; 100_000]);
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn without_a_folder_it_works_all_the_same_and_failures_are_not_kept() {
        let nowhere = Path::new("/proc/no/such/folder");
        assert_eq!(cached_in(nowhere, "k", "a", || Ok(vec![1])).unwrap(), [1]);
        let folder = folder("failures");
        let failed = cached_in(&folder, "k", "a", || Err(Error::Device("no".into())));
        assert!(failed.is_err());
        assert_eq!(cached_in(&folder, "k", "a", || Ok(vec![2])).unwrap(), [2]);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
