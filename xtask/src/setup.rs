//! `cargo xtask setup`: `.venv` with the packages that building and testing need, and the wheel in it.

use crate::process::{execute_quietly, read, root, target};
use crate::venv::Venv;
use crate::{Failure, no_words};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    no_words("setup", words)?;
    let venv = packages()?;
    install(&venv, &wheel(&venv)?)?;
    println!("ready: {}", venv.program("python").strip_prefix(root()).expect("it is below the root").display());
    Ok(())
}

/// `.venv` with the build and test packages, without the wheel.
pub(crate) fn packages() -> Result<Venv, String> {
    let venv = Venv::open(".venv")?;
    requirements(&venv, "requirements-test.txt")?;
    Ok(venv)
}

/// `.venv-peers` with torch and other large packages, without the wheel.
pub(crate) fn peers() -> Result<Venv, String> {
    let venv = Venv::open(".venv-peers")?;
    requirements(&venv, "requirements-peers.txt")?;
    Ok(venv)
}

/// `.venv-ecosystem` with other libraries that users bring together with Operant, without the wheel.
pub(crate) fn ecosystem() -> Result<Venv, String> {
    let venv = Venv::open(".venv-ecosystem")?;
    requirements(&venv, "requirements-ecosystem.txt")?;
    Ok(venv)
}

/// `.venv-dist` with what links for old systems.
pub(crate) fn dist() -> Result<Venv, String> {
    let venv = Venv::open(".venv-dist")?;
    requirements(&venv, "requirements-dist.txt")?;
    Ok(venv)
}

/// Installs `xtask/<file>`.
fn requirements(venv: &Venv, file: &str) -> Result<(), String> {
    let path = root().join("xtask").join(file);
    venv.once(file, &read(&path)?, || venv.pip(&[Path::new("--requirement"), &path]))
}

/// Builds the wheel; cargo decides what there is to compile.
pub(crate) fn wheel(venv: &Venv) -> Result<PathBuf, String> {
    let folder = target().join("wheels");
    let wheels = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ext| ext == "whl")).collect()
    };
    for old in wheels() {
        std::fs::remove_file(&old).map_err(|error| format!("{}: {error}", old.display()))?;
    }
    let mut maturin = Command::new(venv.program("maturin"));
    let build = maturin.args(["build", "--release", "--out"]).arg(&folder).current_dir(root());
    execute_quietly(venv.activate(build))?;
    wheels().pop().ok_or_else(|| format!("maturin left no wheel in {}", folder.display()))
}

/// Puts the wheel into an environment that has its dependencies, so that what is tested is what is shipped.
pub(crate) fn install(venv: &Venv, wheel: &Path) -> Result<(), String> {
    let words = [Path::new("--force-reinstall"), Path::new("--no-deps"), wheel];
    venv.once("wheel", &read(wheel)?, || venv.pip(&words))
}
