//! `cargo xtask bench-peers nn`: `operant bench nn` beside PyTorch, candle and burn. The unit is microseconds of one
//! batch, on the wall clock: the process has its CPU for itself.

use crate::bench_peers::{Flags, build_ours, conditions, field, measuring_cpu, parse, pinned, publish};
use crate::net_table::{Cell, Table};
use crate::process::{capture, cargo, execute, root, target};
use crate::venv::Venv;
use crate::{Failure, setup};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A network at one size.
pub(crate) struct Case {
    pub(crate) net: &'static str,
    pub(crate) batch: usize,
    pub(crate) precision: &'static str,
    /// Whether training is measured too.
    train: bool,
    /// Operations of the products in one row's forward pass, a multiply-add being two. Training counts three times
    /// as many: the gradient of each product is two of its size.
    flops_per_row: u64,
}

const NETS: [&str; 7] = ["mlp", "dueling", "resnet", "conv", "field", "lstm", "attention"];

const fn case(net: &'static str, batch: usize, precision: &'static str, train: bool, macs_per_row: u64) -> Case {
    Case { net, batch, precision, train, flops_per_row: 2 * macs_per_row }
}

// Multiply-adds of one row.
const MLP: u64 = 2 * (4 * 64 + 64 * 64) + 64 * 3;
const DUELING: u64 = 144 * 256 + 256 * 128 + 2 * 128 * 64 + 64 * 13;
const RESNET: u64 = 198 * 128 + 6 * 128 * 128 + 128 * 1156 + 128 * 64 + 64 * 6;
const CONV: u64 = 9 * (32 * 32 * 3 * 8 + 16 * 16 * 8 * 16 + 8 * 8 * 16 * 32) + 32 * 10;
const FIELD: u64 = 9 * 128 * 128 * 64 * 64;
const LSTM: u64 = 64 * 4 * 128 * (128 + 128);
const ATTENTION: u64 = 32 * 4 * 64 * 64 + 2 * 32 * 32 * 64;

pub(crate) const CASES: [Case; 12] = [
    case("mlp", 8192, "f32", true, MLP),
    case("dueling", 64, "f32", true, DUELING),
    case("resnet", 1, "f32", false, RESNET),
    case("resnet", 64, "f32", false, RESNET),
    case("resnet", 1024, "f32", true, RESNET),
    case("resnet", 1, "bf16", false, RESNET),
    case("resnet", 64, "bf16", false, RESNET),
    case("resnet", 1024, "bf16", true, RESNET),
    case("conv", 128, "f32", true, CONV),
    case("field", 2, "bf16", true, FIELD),
    case("lstm", 256, "f32", true, LSTM),
    case("attention", 128, "f32", true, ATTENTION),
];

/// What is measured of a case.
pub(crate) const PASSES: [&str; 2] = ["forward", "train"];

impl Case {
    /// Operations of a pass of one batch.
    pub(crate) fn flops(&self, pass: usize) -> f64 {
        [1.0, 3.0][pass] * (self.batch as u64 * self.flops_per_row) as f64
    }

    fn passes(&self) -> &'static [&'static str] {
        &PASSES[..1 + usize::from(self.train)]
    }
}

struct Library {
    name: &'static str,
    title: &'static str,
    home: Home,
}

/// Where a library is measured.
enum Home {
    /// The release build of the command line.
    Native,
    /// `.venv-peers`, which `cargo xtask test --peers` shares.
    Torch,
    /// The program of `bench-peers/`.
    Crate,
}

const LIBRARIES: &[Library] = &[
    Library { name: "operant", title: "Operant", home: Home::Native },
    Library { name: "torch", title: "PyTorch, eager", home: Home::Torch },
    Library { name: "torch-compile", title: "PyTorch, torch.compile", home: Home::Torch },
    Library { name: "candle", title: "candle", home: Home::Crate },
    Library { name: "burn-flex", title: "burn, flex", home: Home::Crate },
    Library { name: "burn-ndarray", title: "burn, ndarray", home: Home::Crate },
];

/// What the others are compared with.
const YARDSTICK: &str = "torch";

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    let flags = Flags { libraries: &names, seconds: 0.5, choice: Some(("--nets", "network", &NETS)) };
    let settings = parse(words, &flags)?;
    let mut notes = Vec::new();
    let mut ready = Vec::new();
    for library in settings.libraries.iter().map(|&index| &LIBRARIES[index]) {
        println!("== {}", library.name);
        match prepare(library) {
            Ok(bench) => ready.push((library, bench)),
            Err(reason) => {
                println!("not installed: {reason}");
                notes.push(format!("{}: not installed: {reason}", library.title));
            }
        }
    }
    let cpu = measuring_cpu();
    let cases: Vec<&Case> =
        settings.choices.iter().flat_map(|&n| CASES.iter().filter(move |c| c.net == NETS[n])).collect();
    let titles: Vec<&str> = ready.iter().map(|(library, _)| library.title).collect();
    let yardstick = ready.iter().position(|(library, _)| library.name == YARDSTICK);
    let mut table = Table::new(cases, &titles, yardstick);
    let (mut versions, mut failures) = (BTreeSet::new(), BTreeSet::new());
    let mut machine = None;
    for rep in 1..=settings.reps {
        for c in 0..table.cases().len() {
            let case = table.cases()[c];
            let size = format!("{} at batch {} in {}", case.net, case.batch, case.precision);
            eprintln!("repeat {rep}/{}, {size}", settings.reps);
            for (l, (library, bench)) in ready.iter().enumerate() {
                for line in bench.measure(case, settings.seconds, cpu) {
                    match line {
                        Line::Version(version) => _ = versions.insert(version),
                        Line::Machine(text) => machine = Some(text),
                        Line::Row(pass, cell) => table.offer(c, l, pass, cell),
                        Line::Fail(pass, reason) => {
                            // A failure is the same in every repeat.
                            if failures.insert((l, c, pass.clone(), reason.clone())) {
                                notes.push(format!("{}, {size}{pass}: {reason}", library.title));
                            }
                        }
                    }
                }
            }
        }
    }
    let conditions = conditions(&settings, cpu, machine, versions);
    publish(&settings, &table.text(&conditions, &notes), &table.json(&conditions, &notes))
}

/// A library that is ready to be measured.
enum Bench {
    Native(PathBuf),
    Torch(&'static str, Venv),
    Crate(&'static str, PathBuf),
}

enum Line {
    Version(String),
    Machine(String),
    /// Place of the pass, and what was measured of it.
    Row(usize, Cell),
    /// Where and why.
    Fail(String, String),
}

fn prepare(library: &Library) -> Result<Bench, String> {
    match library.home {
        Home::Native => Ok(Bench::Native(build_ours()?)),
        Home::Torch => Ok(Bench::Torch(library.name, setup::peers()?)),
        Home::Crate => {
            let folder = target().join("bench-peers");
            // In its own folder, where cargo finds the flags that it is built with.
            let mut build = cargo(&["build", "--release", "--locked", "--target-dir"]);
            execute(build.arg(&folder).current_dir(root().join("bench-peers")))?;
            let program = format!("bench-peers{}", std::env::consts::EXE_SUFFIX);
            Ok(Bench::Crate(library.name, folder.join("release").join(program)))
        }
    }
}

impl Bench {
    /// One repeat of one case.
    fn measure(&self, case: &Case, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
        let (name, mut command) = match self {
            Self::Native(program) => return native(program, case, seconds, cpu),
            Self::Torch(name, venv) => {
                let mut command = pinned(&venv.program("python"), cpu);
                venv.activate(&mut command);
                command.arg(root().join("xtask/peers/bench_nets.py"));
                (name, command)
            }
            Self::Crate(name, program) => (name, pinned(program, cpu)),
        };
        command.args([name, case.net, "--batch", &case.batch.to_string(), "--precision", case.precision]);
        command.args(["--passes", &case.passes().join(","), "--seconds", &seconds.to_string()]);
        match capture(&mut command) {
            Ok(text) => text.lines().filter_map(line).collect(),
            Err(reason) => vec![Line::Fail(String::new(), reason)],
        }
    }
}

fn native(program: &Path, case: &Case, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
    let mut command = pinned(program, cpu);
    command.args(["bench", "nn", "--threads", "1", "--json", "--net", case.net, "--precision", case.precision]);
    command.args(["--batch", &case.batch.to_string(), "--seconds", &seconds.to_string()]);
    match capture(&mut command) {
        Ok(text) => ours(&text, case),
        Err(reason) => vec![Line::Fail(String::new(), reason)],
    }
}

/// What `operant bench nn --json` said.
fn ours(json: &str, case: &Case) -> Vec<Line> {
    let mut lines: Vec<Line> = field(json, "machine").map(|text| Line::Machine(text.to_owned())).into_iter().collect();
    if let Some(served) = field(json, "precision").filter(|served| *served != case.precision) {
        lines.push(Line::Fail(String::new(), format!("served in {served}, and not compared")));
        return lines;
    }
    for (pass, name) in case.passes().iter().enumerate() {
        let microseconds = field(json, &format!("{name}_us")).and_then(|value| value.parse().ok());
        lines.push(match microseconds {
            Some(microseconds) => Line::Row(pass, Cell { microseconds, way: "-".to_owned() }),
            None => Line::Fail(format!(", {name}"), format!("no {name}_us in {}", json.trim())),
        });
    }
    lines
}

/// A line of `bench_nets.py` or `bench-peers`. Libraries print lines of their own between ours; those are passed over.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split('\t').collect();
    match words[..] {
        ["version", version] => Some(Line::Version(version.to_owned())),
        ["row", pass, microseconds, way] => {
            let pass = PASSES.iter().position(|&name| name == pass)?;
            Some(Line::Row(pass, Cell { microseconds: microseconds.parse().ok()?, way: way.to_owned() }))
        }
        ["fail", pass, reason] => Some(Line::Fail(format!(", {pass}"), reason.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_and_passes_over_the_rest() {
        let row = line("row\ttrain\t12.5\tfused Adam");
        assert!(matches!(row, Some(Line::Row(1, cell)) if cell.microseconds == 12.5 && cell.way == "fused Adam"));
        assert!(matches!(line("fail\tforward\tno layer"), Some(Line::Fail(at, _)) if at == ", forward"));
        assert!(line("row\tbackward\t12.5\t-").is_none());
        assert!(line("W0101 inductor: not using max-autotune").is_none());
    }

    #[test]
    fn reads_ours() {
        let json = r#"{"net":"resnet","precision":"bf16","forward_us":3.5,"train_us":9.0,"machine":"a CPU"}"#;
        let find = |batch| CASES.iter().find(|c| c.precision == "bf16" && c.batch == batch).expect("it is a case");
        let lines = ours(json, find(1024));
        let [Line::Machine(_), Line::Row(0, forward), Line::Row(1, train)] = &lines[..] else { panic!("other lines") };
        assert_eq!((forward.microseconds, train.microseconds), (3.5, 9.0));
        assert_eq!(ours(json, find(1)).len(), 2, "latency is that of inference");
        let wider = ours(&json.replace("bf16", "f32"), find(1024));
        assert!(matches!(&wider[1..], [Line::Fail(_, reason)] if reason.contains("served in f32")));
    }

    #[test]
    fn every_network_has_a_case() {
        assert!(NETS.iter().all(|net| CASES.iter().any(|case| case.net == *net)));
        assert!(CASES.iter().all(|case| NETS.contains(&case.net)));
    }

    #[test]
    fn counts_operations() {
        // 282 k parameters, all but the 2 122 biases in products.
        let resnet = CASES.iter().find(|case| case.net == "resnet").expect("it is a case");
        assert_eq!(resnet.flops(0), 2.0 * 280_192.0);
        assert_eq!(resnet.flops(1), 3.0 * resnet.flops(0));
    }
}
