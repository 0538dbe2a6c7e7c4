//! GNU Backgammon as an opponent and as a judge: its own process, spoken to by a socket or by commands.

use crate::output::Failure;
use operant::env::backgammon::{BAR, Plays, Position, Record, to_mat};
use operant::lanes::rng::HostRng;
use operant::search::backgammon::Player;
use operant::{Error, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian puts it, which not every search path has.
const USUAL: &str = "/usr/games/gnubg";
/// How long it may take to start.
const START: Duration = Duration::from_secs(60);

/// The program, or how to get it.
pub(super) fn find() -> std::result::Result<PathBuf, Failure> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&paths).map(|folder| folder.join("gnubg")).chain([PathBuf::from(USUAL)]);
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::Run(
            "gnubg is not installed; get it: apt-get install gnubg gnubg-data (or from gnu.org/software/gnubg)".into(),
        )
    })
}

fn start(commands: &str) -> std::result::Result<Child, Failure> {
    let path = find()?;
    let cannot = |error: std::io::Error| Failure::Run(format!("can't run {}: {error}", path.display()));
    let mut child = Command::new(&path)
        .args(["-t", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let mut stdin = child.stdin.take().expect("its input is a pipe");
    stdin.write_all(commands.as_bytes()).map_err(cannot)?;
    Ok(child)
}

/// Plays by GNU Backgammon.
pub(super) struct Gnubg {
    child: Child,
    stream: BufReader<TcpStream>,
    plies: u8,
}

impl Gnubg {
    /// Starts it; it looks so many plies ahead, as it counts them (0 is what others call 1).
    pub(super) fn new(plies: u8) -> std::result::Result<Self, Failure> {
        let failed = |what: &str, error: std::io::Error| Failure::Run(format!("{what}: {error}"));
        // A port that is free now.
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| failed("no free port for gnubg", error))?
            .port();
        let kind = "set evaluation chequerplay evaluation";
        let commands = format!(
            "set jacoby off\n{kind} plies {plies}\n{kind} cubeful off\n{kind} noise 0\n{kind} deterministic on\nexternal localhost:{port}\n"
        );
        let mut child = start(&commands)?;
        // Nobody reads what it prints: let it never wait for that.
        let mut output = child.stdout.take().expect("its output is a pipe");
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let begun = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|error| failed("gnubg's socket", error))?;
                    return Ok(Self { child, stream: BufReader::new(stream), plies });
                }
                Err(error) if begun.elapsed() > START => {
                    let _ = child.kill();
                    return Err(failed("gnubg does not answer", error));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Gnubg {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A position and a roll as FIBS writes a board: the mover's checkers above 0, on the places as the mover counts them, its bar at 25; the
/// opponent's below 0, its bar at 0.
fn fibs(position: Position, dice: [u8; 2]) -> String {
    let place = |place: usize| {
        let mine = if place == 0 { 0 } else { i32::from(position.mover.count(place)) };
        let theirs = if place == BAR { 0 } else { i32::from(position.other.count(BAR - place)) };
        (mine - theirs).to_string()
    };
    let places: Vec<String> = (0..=BAR).map(place).collect();
    let (off, their_off) = (position.mover.off(), position.other.off());
    let (bar, their_bar) = (position.mover.count(BAR), position.other.count(BAR));
    format!(
        "board:operant:gnubg:0:0:0:{}:1:{}:{}:0:0:1:1:1:0:1:-1:0:25:{off}:{their_off}:{bar}:{their_bar}:0:0:0:0\n",
        places.join(":"),
        dice[0],
        dice[1]
    )
}

impl Player for Gnubg {
    fn name(&self) -> String {
        format!("gnubg {}-ply", self.plies)
    }

    /// Its reply must name a legal play; where there is only one, it is not asked.
    fn choose(&mut self, position: Position, dice: [u8; 2], plays: &Plays, _: &mut HostRng) -> Result<usize> {
        if plays.len() == 1 {
            return Ok(0);
        }
        let lost = |error: std::io::Error| Error::Io(format!("gnubg stopped answering: {error}"));
        self.stream.get_mut().write_all(fibs(position, dice).as_bytes()).map_err(lost)?;
        let mut reply = String::new();
        self.stream.read_line(&mut reply).map_err(lost)?;
        let play = plays
            .named(position, reply.trim())
            .map_err(|error| Error::Invalid(format!("gnubg's reply to {} with {dice:?}: {error}", position.id())))?;
        Ok(plays.iter().position(|other| other == play).expect("one of these plays"))
    }
}

/// What an analysis found.
#[derive(Debug)]
pub(super) struct ErrorRate {
    /// Turns with a choice.
    pub(super) decisions: usize,
    /// Points given away in all.
    pub(super) total: f64,
}

impl ErrorRate {
    /// Points given away per decision, times 500.
    pub(super) fn rate(&self) -> f64 {
        500.0 * self.total / self.decisions as f64
    }
}

/// Numbers of a line after its name, without those in parentheses.
fn numbers(line: &str) -> Vec<f64> {
    let mut outside = String::new();
    let mut depth = 0;
    for character in line.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => outside.push(character),
            _ => {}
        }
    }
    outside.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Has the checker play of games analysed without a cube, looking so many plies ahead as it counts them. Both players count.
pub(super) fn analyse(records: &[Record], plies: u8) -> std::result::Result<ErrorRate, Failure> {
    let path = std::env::temp_dir().join(format!("operant-{}.mat", std::process::id()));
    let file = path.display();
    std::fs::write(&path, to_mat(records, ["one", "two"]))
        .map_err(|error| Failure::Run(format!("can't write {file}: {error}")))?;
    let kind = "set analysis chequerplay evaluation";
    let commands = format!(
        "set automatic game off\nset display off\nset jacoby off\n{kind} plies {plies}\n{kind} cubeful off\n{kind} noise 0\n\
         set analysis luck off\nset analysis cube off\nimport mat \"{file}\"\nanalyse session\nshow statistics session\nquit\ny\n"
    );
    let result = start(&commands)
        .and_then(|child| child.wait_with_output().map_err(|error| Failure::Run(format!("gnubg stopped: {error}"))));
    let _ = std::fs::remove_file(&path);
    let output = String::from_utf8_lossy(&result?.stdout).into_owned();
    if let Some(line) = output.lines().find(|line| line.contains("Invalid move")) {
        return Err(Failure::Run(format!("gnubg refuses a play of these games: {}", line.trim())));
    }
    let sum = |name: &str| {
        let line = output.lines().find(|line| line.starts_with(name));
        let found = line.map(numbers).filter(|numbers| numbers.len() == 2);
        found.map(|numbers| numbers[0] + numbers[1]).ok_or_else(|| {
            Failure::Run(format!("gnubg's statistics have no \"{name}\" for two players; is it version 1.06 or later?"))
        })
    };
    let (decisions, total) = (sum("Unforced moves")? as usize, -sum("Error total EMG")?);
    // A play that it did not understand would be recorded as none, and counted as forced or not at all.
    let wanted: usize = records.iter().map(Record::decisions).sum();
    if decisions != wanted {
        return Err(Failure::Run(format!("gnubg counts {decisions} decisions in these games, which have {wanted}")));
    }
    Ok(ErrorRate { decisions, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_have_both_bars_and_the_movers_view() {
        let start = fibs(Position::START, [3, 1]);
        assert!(start.contains(":0:-2:0:0:0:0:5:0:3:0:0:0:-5:5:0:0:0:-3:0:-5:0:0:0:0:2:0:1:3:1:"), "{start}");
        // The other's second checker on its first point, one of its own on the bar.
        let position = Position::from_id("AfDB+UAD4IPzAQ").unwrap();
        assert!(fibs(position, [6, 5]).starts_with("board:operant:gnubg:0:0:0:-1:"), "{}", fibs(position, [6, 5]));
        let swapped = fibs(position.swapped(), [6, 5]);
        assert!(swapped.contains(":1:1:6:5:"), "its bar is the last place: {swapped}");
    }

    #[test]
    fn numbers_outside_parentheses_are_read() {
        assert_eq!(numbers("Error total EMG (Points)     -0.000 ( -0.000)     -0.130 ( -0.130)"), [-0.0, -0.13]);
        assert_eq!(numbers("Unforced moves               3                       4  "), [3.0, 4.0]);
    }
}
