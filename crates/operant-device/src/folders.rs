//! Two folders that change places.
#![allow(unsafe_code)]

use std::io::Result;
use std::path::Path;

/// Has two folders of one file system change places, so that each path always names a whole one. Where the system can't do that in one
/// step, `b` has no folder for a moment.
pub fn exchange_folders(a: &Path, b: &Path) -> Result<()> {
    if exchange(a, b).is_ok() {
        return Ok(());
    }
    let aside = a.with_extension("aside.part");
    std::fs::rename(b, &aside)?;
    let placed = std::fs::rename(a, b);
    let back = if placed.is_ok() { a } else { b };
    std::fs::rename(&aside, back).and(placed)
}

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(std::io::Error::from);
    let (a, b) = (text(a)?, text(b)?);
    let here = libc::c_long::from(libc::AT_FDCWD);
    // SAFETY: both pointers are to texts that end in 0 and live until the call returns; it writes to neither.
    let failed =
        unsafe { libc::syscall(libc::SYS_renameat2, here, a.as_ptr(), here, b.as_ptr(), libc::RENAME_EXCHANGE) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_change_places() {
        let folder = std::env::temp_dir().join(format!("operant-exchange-{}", std::process::id()));
        let (a, b) = (folder.join("a"), folder.join("b"));
        for (path, text) in [(&a, "one"), (&b, "two")] {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("name"), text).unwrap();
        }
        exchange_folders(&a, &b).unwrap();
        let name = |path: &Path| std::fs::read_to_string(path.join("name")).unwrap();
        assert_eq!((name(&a), name(&b)), ("two".into(), "one".into()));
        assert!(exchange_folders(&folder.join("absent"), &b).is_err());
        assert_eq!((name(&b), std::fs::read_dir(&folder).unwrap().count()), ("one".into(), 2));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
