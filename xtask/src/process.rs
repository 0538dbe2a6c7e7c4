//! Child processes: each is shown before it runs, and a failure names the command.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The crates that have code for processors and GPUs.
pub(crate) const ENGINE: [&str; 11] = [
    "operant",
    "operant-cubes",
    "operant-device",
    "operant-env",
    "operant-envs",
    "operant-field",
    "operant-games",
    "operant-growth",
    "operant-lanes",
    "operant-nn",
    "operant-rl",
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&xtask).parent().expect("xtask is a folder of the repository").to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The cargo that runs this program, in the root of the repository.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// The command as a person would type it, with paths below the root made relative.
fn shown(command: &Command) -> String {
    let root = root();
    let short = |word: &std::ffi::OsStr| {
        let path = Path::new(word);
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    };
    let program = short(command.get_program());
    let program = if program.ends_with("/cargo") { "cargo".to_owned() } else { program };
    let words: Vec<String> = std::iter::once(program).chain(command.get_args().map(short)).collect();
    words.join(" ")
}

fn failed(command: &Command, why: impl std::fmt::Display) -> String {
    format!("`{}`: {why}", shown(command))
}

/// Runs a command with its output on the terminal.
pub(crate) fn execute(command: &mut Command) -> Result<(), String> {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| failed(command, error))?;
    if status.success() { Ok(()) } else { Err(failed(command, status)) }
}

/// Runs a command and shows what it says only if it fails.
pub(crate) fn execute_quietly(command: &mut Command) -> Result<(), String> {
    println!("$ {}", shown(command));
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(command, error))?;
    if output.status.success() {
        return Ok(());
    }
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(failed(command, output.status))
}

/// Runs a command, copies its standard output to the terminal and gives each line to `look`. The exit code is
/// returned, `None` where a signal ended it.
pub(crate) fn watch(command: &mut Command, mut look: impl FnMut(&str)) -> Result<Option<i32>, String> {
    println!("$ {}", shown(command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(command, error))?;
    let lines = BufReader::new(child.stdout.take().expect("standard output is piped"));
    for line in lines.split(b'\n') {
        let line = line.map_err(|error| failed(command, error))?;
        let line = String::from_utf8_lossy(&line);
        writeln!(std::io::stdout(), "{line}").map_err(|error| format!("standard output: {error}"))?;
        look(&line);
    }
    Ok(child.wait().map_err(|error| failed(command, error))?.code())
}

/// Runs a command quietly and returns its standard output; its standard error explains a failure, with the line that
/// calls itself an error or else with the last.
pub(crate) fn capture(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(command, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let reason = lines.clone().find(|line| line.starts_with("error:")).or_else(|| lines.next_back());
    let reason = reason.unwrap_or("no message");
    Err(failed(command, format_args!("{}: {reason}", output.status)))
}

/// The first program of this name on the PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Reads a file; the path is in the message when that fails.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file; the path is in the message when that fails.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}
