//! GNU Backgammon as an opponent and as a judge: its own process, spoken to by a socket or by commands.

use crate::output::Failure;
use operant::env::backgammon::{BAR, Backgammon, Plays, Position, Record, Side, State, to_mat};
use operant::lanes::rng::HostRng;
use operant::search::versus::Player;
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

impl Gnubg {
    /// Its reply must name a legal play; where there is only one, it is not asked.
    fn ask(&mut self, position: Position, dice: [u8; 2], plays: &Plays) -> Result<usize> {
        if plays.len() == 1 {
            return Ok(0);
        }
        let lost = |error: std::io::Error| Error::Io(format!("gnubg stopped answering: {error}"));
        self.stream.get_mut().write_all(fibs(position, dice).as_bytes()).map_err(lost)?;
        let mut reply = String::new();
        self.stream.read_line(&mut reply).map_err(lost)?;
        let wrong = |what: &str| {
            let (id, reply) = (position.id(), reply.trim());
            Error::Invalid(format!("gnubg's reply \"{reply}\" to {id} with {dice:?} is {what}"))
        };
        let after = follow(position, &reply).ok_or_else(|| wrong("no play"))?;
        plays.iter().position(|play| play.result(position) == after).ok_or_else(|| wrong("not legal"))
    }
}

impl Player<Backgammon> for Gnubg {
    fn name(&self) -> String {
        format!("gnubg {}-ply", self.plies)
    }

    fn choose(&mut self, states: &[State], _: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
        let mut plays = Plays::default();
        out.clear();
        for state in states {
            plays.find(state.position, state.dice);
            out.push(self.ask(state.position, state.dice, &plays)?);
        }
        Ok(())
    }
}

/// The position after steps such as `25/20 20/14* 6/0`, one for each die, for the opponent. Hits follow from the board: a reply does not show all.
fn follow(position: Position, reply: &str) -> Option<Position> {
    let counts = |side: Side| std::array::from_fn(|place| side.count(place));
    let (mut mine, mut theirs): ([u8; BAR + 1], [u8; BAR + 1]) = (counts(position.mover), counts(position.other));
    for word in reply.split_whitespace() {
        let (way, times) = match word.split_once('(') {
            Some((way, times)) => (way, times.strip_suffix(')')?.parse().ok()?),
            None => (word, 1),
        };
        let places: Vec<usize> = way
            .split('/')
            .map(|name| match name.trim_end_matches('*') {
                "bar" => Some(BAR),
                "off" => Some(0),
                place => place.parse().ok().filter(|place| *place <= BAR),
            })
            .collect::<Option<_>>()?;
        for step in (0..times).flat_map(|_| places.windows(2)) {
            let [from, to] = [step[0], step[1]];
            mine[from] = mine[from].checked_sub(1)?;
            mine[to] += 1;
            if to > 0 && theirs[BAR - to] == 1 {
                theirs[BAR - to] = 0;
                theirs[BAR] += 1;
            }
        }
    }
    Some(Position { mover: Side::new(&theirs)?, other: Side::new(&mine)? })
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
    fn replies_are_followed_with_the_hits_that_they_do_not_show() {
        let mut plays = Plays::default();
        // The opponent has blots on the mover's 18 and 14; one checker on the bar.
        let side = |list: &[(usize, u8)]| {
            let mut counts = [0; BAR + 1];
            list.iter().for_each(|&(place, count)| counts[place] = count);
            Side::new(&counts).unwrap()
        };
        let position = Position { mover: side(&[(BAR, 1), (24, 2), (6, 5)]), other: side(&[(7, 1), (11, 1), (6, 4)]) };
        for (dice, reply, named) in [
            ([2, 5], "25/23 23/18", "bar/23 23/18*"),
            ([6, 1], "bar/24 24/18", "bar/24 24/18*"),
            ([5, 5], "25/20 20/15 6/1(2)", "bar/15 6/1(2)"),
        ] {
            plays.find(position, dice);
            let after = follow(position, reply).unwrap();
            assert_eq!(after, plays.named(position, named).unwrap().result(position), "{reply}");
        }
        assert_eq!(follow(position, "13/7"), None);
    }

    #[test]
    fn numbers_outside_parentheses_are_read() {
        assert_eq!(numbers("Error total EMG (Points)     -0.000 ( -0.000)     -0.130 ( -0.130)"), [-0.0, -0.13]);
        assert_eq!(numbers("Unforced moves               3                       4  "), [3.0, 4.0]);
    }
}
