//! `cargo xtask dist`: what users install without a compiler, a wheel and an archive of the command, each tried where nothing else is.
//!
//! On Linux both are linked by zig against glibc 2.17, which every distribution since 2014 has.

use crate::process::{cargo, execute, execute_quietly, find_program, read, root, target, write};
use crate::setup;
use crate::test::smoke;
use crate::venv::Venv;
use crate::{Failure, unknown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc that what is built runs with, and the tag of wheels for it.
const GLIBC: (u32, &str) = (17, "manylinux2014");
/// Files of the archive beside the command: where they lie, and their names there.
const FILES: [(&str, &str); 4] = [
    ("xtask/install.sh", "install.sh"),
    ("README.md", "README.md"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
];

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let out = parse(words)?;
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let venv = setup::dist()?;
    let command = command(&venv)?;
    let archive = archive(&venv, &command, &out)?;
    let wheel = wheel(&venv, &out)?;
    old_enough(&command)?;
    smoke(&wheel)?;
    installed(&venv, &archive)?;
    println!("\nready in {}:", out.display());
    for file in [&archive, &wheel] {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        println!("  {name}  {:.1} MB", read(file)?.len() as f64 / 1e6);
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<PathBuf, Failure> {
    match words {
        [] => Ok(target().join("dist")),
        [flag, out] if flag == "--out" => Ok(PathBuf::from(out)),
        [flag] if flag == "--out" => Err(Failure::Usage("--out wants a folder".to_owned())),
        [first, ..] => Err(Failure::Usage(unknown("word", first, ["--out"].into_iter()))),
    }
}

/// The triple to build for, if zig links it.
fn triple() -> Option<String> {
    cfg!(target_os = "linux").then(|| format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
}

/// Both builds go into one folder, which shares the engine between them.
fn built_with(venv: &Venv, command: &mut Command) -> Result<(), String> {
    command.env("CARGO_TARGET_DIR", target()).env("CARGO_PROFILE_RELEASE_STRIP", "symbols").current_dir(root());
    execute(venv.activate(command))
}

/// Builds the command.
fn command(venv: &Venv) -> Result<PathBuf, String> {
    let Some(triple) = triple() else {
        built_with(venv, &mut cargo(&["build", "--release", "--package", "operant-cli"]))?;
        return Ok(target().join("release").join(format!("operant{}", std::env::consts::EXE_SUFFIX)));
    };
    let mut build = Command::new(venv.program("cargo-zigbuild"));
    build.args(["zigbuild", "--release", "--package", "operant-cli", "--target"]);
    built_with(venv, build.arg(format!("{triple}.2.{}", GLIBC.0)))?;
    Ok(target().join(triple).join("release/operant"))
}

/// Builds the wheel.
fn wheel(venv: &Venv, out: &Path) -> Result<PathBuf, String> {
    let folder = target().join("dist-wheel");
    let _ = std::fs::remove_dir_all(&folder);
    let mut build = Command::new(venv.program("maturin"));
    build.args(["build", "--release", "--out"]).arg(&folder);
    if let Some(triple) = triple() {
        build.args(["--zig", "--compatibility", GLIBC.1, "--target", &triple]);
    }
    built_with(venv, &mut build)?;
    let mut files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten();
    let built = files.next().ok_or_else(|| format!("maturin left no wheel in {}", folder.display()))?.path();
    let wheel = out.join(built.file_name().unwrap_or_default());
    std::fs::copy(&built, &wheel).map_err(|error| format!("{}: {error}", wheel.display()))?;
    Ok(wheel)
}

/// Packs the command with its installer and a checksum.
fn archive(venv: &Venv, command: &Path, out: &Path) -> Result<PathBuf, String> {
    let (version, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    let name = format!("operant-{version}-{}-{os}", std::env::consts::ARCH);
    let stage = target().join("dist-archive");
    let folder = stage.join(&name);
    let _ = std::fs::remove_dir_all(&stage);
    let copy = |from: &Path, to: PathBuf| {
        std::fs::copy(from, &to).map(drop).map_err(|error| format!("{}: {error}", to.display()))
    };
    std::fs::create_dir_all(folder.join("bin")).map_err(|error| format!("{}: {error}", folder.display()))?;
    copy(command, folder.join("bin").join(command.file_name().unwrap_or_default()))?;
    FILES.iter().try_for_each(|(from, to)| copy(&root().join(from), folder.join(to)))?;
    let path = std::path::absolute(out.join(format!("{name}.tar.gz"))).map_err(|error| error.to_string())?;
    let mut pack = venv.python();
    execute_quietly(pack.args(["-m", "tarfile", "--create"]).arg(&path).arg(&name).current_dir(&stage))?;
    let mut sum = venv.python();
    sum.args(["-c", "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"]);
    let sum = crate::process::capture(sum.arg(&path))?;
    write(&out.join(format!("{name}.tar.gz.sha256")), format!("{}  {name}.tar.gz\n", sum.trim()))?;
    Ok(path)
}

/// Whether a program asks for no newer glibc than it should.
fn old_enough(program: &Path) -> Result<(), String> {
    if triple().is_none() {
        return Ok(());
    }
    match newest_glibc(&read(program)?) {
        Some(newest) if newest > GLIBC.0 => {
            Err(format!("{} needs glibc 2.{newest}; wanted 2.{} at most", program.display(), GLIBC.0))
        }
        _ => Ok(()),
    }
}

/// The newest minor version of glibc 2 whose symbols a program names.
fn newest_glibc(program: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"GLIBC_2.";
    let versions = program.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    versions
        .filter_map(|(at, _)| {
            let digits = program[at + NAME.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            digits.map(|byte| char::from(*byte)).collect::<String>().parse().ok()
        })
        .max()
}

/// Unpacks the archive, installs it and trains, with no variable of this process but the PATH of the system.
fn installed(venv: &Venv, archive: &Path) -> Result<(), String> {
    let home = target().join("dist-home");
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let mut unpack = venv.python();
    execute_quietly(unpack.args(["-m", "tarfile", "--extract"]).arg(archive).arg(&home))?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let folder = home.join(name.trim_end_matches(".tar.gz"));
    let alone = |program: &Path| {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home).current_dir(&home);
        command
    };
    let operant = match find_program("sh") {
        Some(sh) => {
            execute(alone(&sh).arg(folder.join("install.sh")))?;
            home.join(".local/bin/operant")
        }
        None => folder.join("bin").join(format!("operant{}", std::env::consts::EXE_SUFFIX)),
    };
    execute(alone(&operant).args(["train", "ppo", "cartpole", "--device", "cpu", "--quiet", "--run-dir", "run"]))?;
    execute_quietly(alone(&operant).args(["eval", "run", "--episodes", "10"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.9\0"), Some(17));
        assert_eq!(newest_glibc(b"none"), None);
    }

    #[test]
    fn words_are_read() {
        let of = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["--out", "here"]).ok(), Some(PathBuf::from("here")));
        assert!(of(&["--out"]).is_err() && of(&["--uot", "here"]).is_err());
    }
}
