//! Python virtual environments in the root of the repository. What is installed is written in a stamp beside it, so
//! that a second run installs nothing.

use crate::process::{capture, execute, find_program, root, write};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Python that the package supports.
const OLDEST: (u32, u32) = (3, 10);

/// A virtual environment.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Opens `<root>/<name>`, creating it where there is none that works.
    pub(crate) fn open(name: &str) -> Result<Self, String> {
        let venv = Self { folder: root().join(name) };
        if capture(venv.python().args(["-c", "import pip"])).is_err() {
            venv.create()?;
        }
        Ok(venv)
    }

    /// Creates `<root>/<name>` anew, with nothing but pip in it.
    pub(crate) fn fresh(name: &str) -> Result<Self, String> {
        let venv = Self { folder: root().join(name) };
        venv.create()?;
        Ok(venv)
    }

    fn create(&self) -> Result<(), String> {
        let (python, (major, minor)) = find_python()?;
        if capture(Command::new(&python).args(["-c", "import ensurepip, venv"])).is_err() {
            return Err(format!(
                "{} has no venv or ensurepip module; install python{major}.{minor}-venv (Debian, Ubuntu) or a \
                 complete Python from python.org, then run this again",
                python.display()
            ));
        }
        execute(Command::new(&python).args(["-m", "venv", "--clear"]).arg(&self.folder))?;
        // Keeps the folder out of git, as Python 3.13 does by itself.
        write(&self.folder.join(".gitignore"), "*\n")
    }

    /// The folder of the environment.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its interpreter, in the root of the repository, with the environment active for what it starts.
    pub(crate) fn python(&self) -> Command {
        let mut command = Command::new(self.program("python"));
        command.current_dir(root());
        self.activate(&mut command);
        command
    }

    /// A program that a package installed in the environment.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        if cfg!(windows) {
            self.folder.join("Scripts").join(format!("{name}.exe"))
        } else {
            self.folder.join("bin").join(name)
        }
    }

    /// Lets `command` find this environment's Python first, and none of the caller's modules.
    pub(crate) fn activate<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let bin = self.program("python").parent().expect("a program is in a folder").to_owned();
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&old))).unwrap_or(old);
        command.env("VIRTUAL_ENV", &self.folder).env("PATH", path).env_remove("PYTHONHOME").env_remove("PYTHONPATH")
    }

    /// `pip install` with these words.
    pub(crate) fn pip<W: AsRef<OsStr>>(&self, words: &[W]) -> Result<(), String> {
        execute(self.python().args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]).args(words))
    }

    /// Runs `install` unless the stamp `name` says that it ran with the same `content`.
    pub(crate) fn once(
        &self,
        name: &str,
        content: &[u8],
        install: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let stamp = self.folder.join(format!("{name}.installed"));
        if std::fs::read(&stamp).is_ok_and(|installed| installed == content) {
            return Ok(());
        }
        install()?;
        write(&stamp, content)
    }
}

/// The first Python on the PATH that is new enough: `$PYTHON`, then the usual names.
fn find_python() -> Result<(PathBuf, (u32, u32)), String> {
    let (major, oldest) = OLDEST;
    let chosen = std::env::var("PYTHON").ok();
    let numbered = (oldest..oldest + 10).rev().map(|minor| format!("python{major}.{minor}"));
    let names = chosen.into_iter().chain(["python3".to_owned(), "python".to_owned()]).chain(numbered);
    let mut seen = Vec::new();
    for name in names {
        let Some(path) = find_program(&name).or_else(|| find_program(&format!("{name}.exe"))) else { continue };
        let Some(version) = version(&path) else { continue };
        if version >= OLDEST {
            return Ok((path, version));
        }
        seen.push(format!("{} is {}.{}", path.display(), version.0, version.1));
    }
    let seen = if seen.is_empty() { "none is on the PATH".to_owned() } else { seen.join(", ") };
    Err(format!("Python {major}.{oldest} or newer is needed and {seen}; install one, or name it in $PYTHON"))
}

fn version(python: &Path) -> Option<(u32, u32)> {
    let text = capture(Command::new(python).args(["-c", "import sys; print(*sys.version_info[:2])"])).ok()?;
    let (major, minor) = text.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
