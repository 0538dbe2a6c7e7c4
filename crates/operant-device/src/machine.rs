//! What this machine is, has left and has used.
#![allow(unsafe_code)]

use operant_base::{Error, Result};
use std::sync::OnceLock;

/// Threads that this process may use.
pub fn threads_available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// One line: CPU model, threads, widest vectors, operating system.
pub fn describe() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let threads = match threads_available() {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    format!("{model}, {threads}, {}, {}", vectors(), std::env::consts::OS)
}

#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
fn vectors() -> &'static str {
    if is_x86_feature_detected!("avx512f") {
        "AVX-512"
    } else if is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    }
}

#[cfg(any(not(target_arch = "x86_64"), operant_portable))]
fn vectors() -> &'static str {
    std::env::consts::ARCH
}

/// CPU seconds that this process has used, all threads together; 0 where the system can't tell.
#[cfg(unix)]
pub fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, which the call only writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    if failed != 0 { 0.0 } else { time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9 }
}

/// CPU seconds that this process has used, all threads together; 0 where the system can't tell.
#[cfg(not(unix))]
pub fn cpu_seconds() -> f64 {
    0.0
}

/// Makes a write beyond the limit on sizes of files (`ulimit -f`) fail like any other: left alone, it ends the process without a
/// word.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // SAFETY: no handler is installed, so none can run; what the signal did before is of no use to anyone.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Memory that this process may still ask for, and what sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are left.
    pub bytes: u64,
    /// What they are left of, as people know it.
    pub limit: &'static str,
}

/// The narrowest limit on memory; `None` where the system tells none.
pub fn room() -> Option<Room> {
    let limits = [free_memory(), group_limit(), address_limit()];
    limits.into_iter().flatten().min_by_key(|room| room.bytes)
}

/// Memory that this process may still ask for, in bytes; `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    room().map(|room| room.bytes)
}

fn free_memory() -> Option<Room> {
    let free = kib_in("/proc/meminfo", "MemAvailable:")?;
    Some(Room { bytes: free.saturating_sub(unwritten()), limit: "free memory" })
}

/// Bytes that this process has asked for since the first look and not written yet: the system still counts them as free. What
/// was there before (stacks of threads, arenas of other libraries) is never written in full.
fn unwritten() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    let of = |name| kib_in("/proc/self/status", name);
    let written = of("RssAnon:").map(|bytes| bytes + of("VmSwap:").unwrap_or(0));
    let now = of("VmData:").zip(written).map_or(0, |(asked, written)| asked.saturating_sub(written));
    now.saturating_sub(*FIRST.get_or_init(|| now))
}

/// A line such as `VmSize:   1234 kB` of a file, in bytes.
fn kib_in(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the limits on addresses and on data of this process leave (`ulimit -v`, `ulimit -d`).
#[cfg(target_os = "linux")]
fn address_limit() -> Option<Room> {
    let left = |resource, used: &str, limit| {
        let mut set = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a live rlimit, which the call only writes.
        let failed = unsafe { libc::getrlimit(resource, &mut set) };
        if failed != 0 || set.rlim_cur == libc::RLIM_INFINITY {
            return None;
        }
        let used = kib_in("/proc/self/status", used)?;
        Some(Room { bytes: set.rlim_cur.saturating_sub(used), limit })
    };
    let addresses = left(libc::RLIMIT_AS, "VmSize:", "the limit on addresses (ulimit -v)");
    let data = left(libc::RLIMIT_DATA, "VmData:", "the limit on data (ulimit -d)");
    addresses.into_iter().chain(data).min_by_key(|room| room.bytes)
}

#[cfg(not(target_os = "linux"))]
fn address_limit() -> Option<Room> {
    None
}

/// What the limits of control groups leave, as containers have them: of the process's own group and of those above it.
fn group_limit() -> Option<Room> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers.split(',').any(|name| name == "memory") {
            true => group_left("/sys/fs/cgroup/memory", path, ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
            false if controllers.is_empty() => group_left("/sys/fs/cgroup", path, ["memory.max", "memory.current"]),
            false => None,
        }
    });
    let bytes = left.min()?.saturating_sub(unwritten());
    Some(Room { bytes, limit: "the memory limit of the control group (container)" })
}

/// The least that a group and those above it leave; files that the system only caches there count as free.
fn group_left(root: &str, path: &str, [limit, usage]: [&str; 2]) -> Option<u64> {
    let number = |folder: &std::path::Path, name: &str| {
        std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok()
    };
    let left = |folder: &std::path::Path| {
        let (limit, used) = (number(folder, limit)?, number(folder, usage)?);
        let statistics = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached = statistics.lines().find_map(|line| line.strip_prefix("inactive_file "));
        let cached = cached.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    };
    let root = std::path::Path::new(root);
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left).min()
}

/// What is not worth asking the system about.
const SMALL: u64 = 8 << 20;
/// What the process itself needs in addition to what is asked for: stacks of threads, buffers, code that is loaded later.
const RESERVE: u64 = 64 << 20;

/// Refuses what would not fit in memory, before any of it is asked for: `what` takes so many bytes.
pub fn check_room(what: &str, bytes: u64, next: &str) -> Result<()> {
    if bytes <= SMALL {
        return Ok(());
    }
    let size = |bytes: u64| match bytes >> 30 {
        0 => format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    };
    match room().filter(|room| bytes.saturating_add(RESERVE) > room.bytes) {
        Some(Room { bytes: free, limit }) => {
            Err(Error::Invalid(format!("{what} takes {}, {} are left of {limit}; {next}", size(bytes), size(free))))
        }
        None => Ok(()),
    }
}

/// Memory of this process that is not swapped out, in bytes; `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    kib_in("/proc/self/status", "VmRSS:")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The narrowest of a group's limits and of those above it holds, less what is in use.
    #[test]
    fn limits_of_groups_are_read() {
        let root = std::env::temp_dir().join(format!("operant-groups-{}", std::process::id()));
        let own = root.join("a/b");
        std::fs::create_dir_all(&own).unwrap();
        let write = |folder: &std::path::Path, name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(&own, "memory.max", "max\n");
        write(&own, "memory.current", "500\n");
        write(&root.join("a"), "memory.max", "10000\n");
        write(&root.join("a"), "memory.current", "9000\n");
        write(&root.join("a"), "memory.stat", "anon 1\ninactive_file 600\n");
        let left = |path: &str| group_left(root.to_str().unwrap(), path, ["memory.max", "memory.current"]);
        assert_eq!((left("/a/b"), left("/"), left("/gone")), (Some(1600), None, None));
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// Zeros that the system has promised are taken, though nothing has been written to them.
    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_asked_for_is_no_longer_free() {
        let before = unwritten();
        let held = std::hint::black_box(vec![0u8; 1 << 30]);
        let more = unwritten().saturating_sub(before);
        assert!(more > 512 << 20, "{more} bytes for {}", held.len());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_sizes() {
        assert!(check_room("a row", 1 << 20, "").is_ok());
        if available_bytes().is_some() {
            let message = check_room("a network", 1 << 60, "make it smaller").unwrap_err().to_string();
            assert!(message.starts_with("a network takes 1073741824.0 GiB, "), "{message}");
            assert!(message.contains("iB are left of ") && message.ends_with("; make it smaller"), "{message}");
        }
    }
}
