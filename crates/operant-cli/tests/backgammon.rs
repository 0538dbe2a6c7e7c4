//! Backgammon as a user types it: training, judging, analysing, playing through a pipe. What needs GNU Backgammon says so where it is missing.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("backgammon");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn operant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).current_dir(folder()).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = operant(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn failure(arguments: &[&str]) -> (i32, String) {
    let output = operant(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

/// A run of a small network, trained once for all tests here.
fn run() -> &'static str {
    static RUN: OnceLock<()> = OnceLock::new();
    RUN.get_or_init(|| {
        let _ = std::fs::remove_dir_all(folder().join("run"));
        let words = "train td backgammon --steps 60000 --threads 1 --seed 4 --num-envs 64 --run-dir run --quiet --precision f32 \
                     --set network.hidden=[16] --set td.batch_size=128 --set td.replay=8192";
        text(&words.split_whitespace().collect::<Vec<_>>());
    });
    "run"
}

/// Past the capture of what tests print.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
}

fn gnubg_is_missing() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|folder| folder.join("gnubg").is_file());
    let missing = !there && !Path::new("/usr/games/gnubg").is_file();
    if missing {
        skipped("gnubg is not installed");
    }
    missing
}

#[test]
fn games_against_others_are_scored_and_repeat() {
    let words = ["eval", run(), "--against", "random", "--games", "40", "--seed", "3", "--json"];
    let report = json(&words);
    assert_eq!((report["games"].as_u64(), report["seed"].as_u64()), (Some(40), Some(3)));
    assert_eq!(report["against"], "random");
    let error = report["standard_error"].as_f64().unwrap();
    assert!(error > 0.05 && error < 0.6, "{report}");
    assert!(report["gammons_won"].as_f64().unwrap() >= report["backgammons_won"].as_f64().unwrap());
    let again = json(&words);
    assert_eq!(again["points_per_game"], report["points_per_game"]);
    // One pair of games has no spread.
    assert!(json(&["eval", run(), "--against", "random", "--games", "2", "--json"])["standard_error"].is_null());
    assert!(text(&["eval", run(), "--against", "random", "--games", "2"]).contains(" ± – points"));
    let words = ["eval", run(), "--against", "rules", "--games", "4", "--mat", "games.mat", "--sgf", "games.sgf"];
    let shown = text(&words);
    assert!(shown.contains("operant against rules:") && shown.contains("points per game"), "{shown}");
    assert!(std::fs::read_to_string(folder().join("games.mat")).unwrap().contains(" Game 4\n"));
    // Against itself nobody is ahead: each two games have the same dice, and it plays them alike.
    let sgf = std::fs::read_to_string(folder().join("games.sgf")).unwrap();
    assert_eq!(sgf.matches("(;FF[4]GM[6]").count(), 4);
    // The games that were written, gone through with the same values: it never gave anything away, the other did.
    let found = json(&["analyse", "backgammon", "--match", "games.mat", "--model", run(), "--json"]);
    assert_eq!(found["games"], 4);
    assert!(found["error_rate"][0].as_f64().unwrap() < 1e-6 && found["error_rate"][1].as_f64().unwrap() > 1.0);
    let shown = text(&["analyse", "backgammon", "--match", "games.mat", "--model", run()]);
    assert!(shown.contains("player 2: error rate") && shown.contains(", best "), "{shown}");
    // The same networks, searched.
    let words = ["eval", run(), "--against", "random", "--games", "4", "--simulations", "16", "--json"];
    assert_eq!(json(&words)["player"], "operant, 16 simulations");
    let (code, message) = failure(&["eval", run(), "--simulations", "16", "--plies", "2"]);
    assert!(code == 2 && message.contains("one way to look ahead"), "{message}");
    let itself = json(&["eval", run(), "--against", run(), "--games", "20", "--json"]);
    assert_eq!(itself["points_per_game"], 0.0);
    let (code, message) = failure(&["eval", run(), "--against", "randm"]);
    assert!(code == 2 && message.contains("did you mean \"random\"?"), "{message}");
}

/// Results less luck: asked for, or where they cost less than the games.
#[test]
fn luck_is_taken_from_results() {
    let words = ["eval", run(), "--against", "random", "--games", "8", "--seed", "3", "--json"];
    let plain = json(&words);
    for key in ["adjusted_points_per_game", "adjusted_standard_error", "luck_by", "luck_cpu_s"] {
        assert!(plain[key].is_null() && plain.as_object().unwrap().contains_key(key), "{plain}");
    }
    let adjusted = json(&[&words[..], &["--luck"]].concat());
    assert_eq!((&adjusted["points_per_game"], &adjusted["luck_by"]), (&plain["points_per_game"], &"run".into()));
    let [mean, error] =
        ["adjusted_points_per_game", "adjusted_standard_error"].map(|key| adjusted[key].as_f64().unwrap());
    assert!(mean > 0.5 && mean < 3.5 && error > 0.0 && error < 1.0, "{adjusted}");
    assert!(adjusted["luck_cpu_s"].as_f64().unwrap() > 0.0);
    let searched = ["eval", run(), "--against", "rules", "--games", "2", "--simulations", "8"];
    let shown = text(&searched);
    assert!(
        shown.contains(" points per game (standard error), luck-adjusted ") && shown.contains(" ± – over 2 games"),
        "{shown}"
    );
    assert!(!text(&[&searched[..], &["--luck=off"]].concat()).contains("luck"));
    // The same dice for both: what one had for luck, the other has in the game after.
    let itself = json(&["eval", run(), "--against", run(), "--games", "4", "--luck", "--json"]);
    assert_eq!(itself["adjusted_points_per_game"], 0.0, "{itself}");
    let money = json(&["eval", run(), "--against", "rules", "--cube", "--games", "4", "--luck", "--json"]);
    assert!(money["adjusted_points_per_game"].is_number() && money["adjusted_standard_error"].is_number(), "{money}");
    let matches = text(&["eval", run(), "--against", "rules", "--match", "2", "--games", "4", "--luck"]);
    assert!(matches.contains(" % (standard error), luck-adjusted ") && matches.contains(" of 4 matches"), "{matches}");
    let (code, message) = failure(&["eval", run(), "--error-rate", "--luck"]);
    assert!(code == 2 && message.contains("--luck"), "{message}");
}

/// The network that comes with the program knows the openings that all books agree on.
#[test]
fn the_shipped_network_knows_openings() {
    for (dice, best) in
        [(["3", "1"], "8/5 6/5"), (["4", "2"], "8/4 6/4"), (["6", "1"], "13/7 8/7"), (["5", "3"], "8/3 6/3")]
    {
        let report =
            json(&["analyse", "backgammon", "--position", "4HPwATDgc/ABMA", "--dice", dice[0], dice[1], "--json"]);
        assert_eq!(report["plays"][0]["play"], best, "{report}");
    }
}

#[test]
fn positions_are_analysed() {
    let words = ["analyse", "backgammon", "--position", "4HPwATDgc/ABMA", "--dice", "3", "1", "--model", run()];
    let shown = text(&words);
    assert!(shown.contains("+13-14-15-16-17-18-+---+19-20-21-22-23-24-+"), "{shown}");
    assert!(shown.contains("X to play 3 1: 16 plays") && shown.contains("  5. "), "{shown}");
    let report = json(&[&words[..], &["--best", "20", "--json"]].concat());
    let plays = report["plays"].as_array().unwrap();
    assert_eq!((plays.len(), report["legal"].as_u64()), (16, Some(16)));
    let equity = |play: &Value| play["outcome"]["equity"].as_f64().unwrap();
    assert!(plays.windows(2).all(|pair| equity(&pair[0]) >= equity(&pair[1])), "{report}");
    assert!(plays.iter().any(|play| play["play"] == "8/5 6/5"));
    let before = json(&["analyse", "backgammon", "--model", run(), "--json"]);
    assert!((0.0..=1.0).contains(&before["outcome"]["win"].as_f64().unwrap()));
    for plies in [2, 3] {
        let deep = json(&[&words[..], &["--plies", &plies.to_string(), "--best", "20", "--json"]].concat());
        let rolls: Vec<u64> =
            deep["plays"].as_array().unwrap().iter().map(|play| play["rolls"].as_u64().unwrap()).collect();
        assert!(rolls[0] == plies && rolls.is_sorted_by(|a, b| a >= b), "{rolls:?}");
    }
    let (code, message) = failure(&["analyse", "backgammon", "--position", "4HPw", "--model", run()]);
    assert!(code == 2 && message.contains("4 characters"), "{message}");
}

/// Before the roll --plies looks ahead too, for the chances and for the cube, and a record's decisions about the cube are judged so.
#[test]
fn looking_ahead_changes_values_before_the_roll() {
    let at = |words: &[&str], plies: &str| {
        let found =
            json(&[&["analyse", "backgammon", "--model", run(), "--plies", plies, "--json"][..], words].concat());
        assert_eq!(found["rolls"].to_string(), plies, "{found}");
        found
    };
    let start = ["--position", "4HPwATDgc/ABMA"];
    let equity = |plies| at(&start, plies)["outcome"]["equity"].as_f64().unwrap();
    let [one, two, three] = ["1", "2", "3"].map(equity);
    assert!(one != two && two != three, "{one} {two} {three}");
    assert_eq!(one, json(&["analyse", "backgammon", "--model", run(), "--json"])["outcome"]["equity"]);
    let asked = [&start[..], &["--match", "MAGgAAAAAAAE"]].concat();
    let worth = |plies| at(&asked, plies)["cube"]["no_double"]["equity"].as_f64().unwrap();
    assert!(worth("1") != worth("2"));
    // The mean over the first rolls' best plays is what looking a roll ahead finds: 1/36 for doubles, 1/18 for others.
    let rolls = (1..=6).flat_map(|a| (1..=a).map(move |b| (a, b)));
    let mean: f64 = rolls
        .map(|(a, b)| {
            let dice = [a.to_string(), b.to_string()];
            let words =
                [&start[..], &["--dice", &dice[0], &dice[1], "--best", "1", "--model", run(), "--json"]].concat();
            let best = json(&[&["analyse", "backgammon"][..], &words[..]].concat());
            let chance = if a == b { 1.0 } else { 2.0 } / 36.0;
            chance * best["plays"][0]["outcome"]["equity"].as_f64().unwrap()
        })
        .sum();
    assert!((two - mean).abs() < 1e-4, "{two} and {mean}");
}

#[test]
fn a_number_of_plays_is_refused_where_none_are_shown() {
    std::fs::write(folder().join("none.mat"), "").unwrap();
    for words in [&["--match", "MAGgAAAAAAAE"][..], &[], &["--match", "none.mat"]] {
        let (code, message) = failure(&[&["analyse", "backgammon", "--best", "3"][..], words].concat());
        assert!(code == 2 && message.contains("--best"), "{message}");
    }
}

#[test]
fn a_file_of_networks_refuses_words_that_would_change_nothing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/backgammon.safetensors");
    let file = file.to_str().unwrap();
    for words in [&["--episodes", "3"][..], &["--deterministic"], &["--checkpoint", "best"], &["--depth", "3"]] {
        let (code, message) = failure(&[&["eval", file, "--games", "2"], words].concat());
        assert!(code == 2 && message.contains(words[0]), "{message}");
    }
}

/// Of a network and itself the mean is what it says; of two it lies between them.
#[test]
fn networks_are_stacked() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/backgammon.safetensors");
    let shipped = shipped.to_str().unwrap();
    let win = |model: &str| {
        let report = json(&["analyse", "backgammon", "--model", model, "--json"]);
        report["outcome"]["win"].as_f64().unwrap()
    };
    let shown = text(&["backgammon", "stack", run(), run(), "--out", "twice.safetensors"]);
    assert!(shown.starts_with("2 networks, 32 units together, written to twice.safetensors\n"), "{shown}");
    assert!((win("twice.safetensors") - win(run())).abs() < 1e-5);
    text(&["backgammon", "stack", run(), shipped, "--out", "both.safetensors"]);
    let (low, high) = (win(run()).min(win(shipped)), win(run()).max(win(shipped)));
    let both = win("both.safetensors");
    assert!(low < both && both < high, "{low} {both} {high}");
    let against = json(&["eval", "both.safetensors", "--against", "twice.safetensors", "--games", "4", "--json"]);
    assert_eq!(against["against"], "twice.safetensors");
    let (code, message) = failure(&["backgammon", "stack", run(), "nowhere", "--out", "none.safetensors"]);
    assert!(code == 1 && message.contains("nowhere"), "{message}");
    assert!(!folder().join("none.safetensors").exists());
    let (code, message) = failure(&["backgammon", "stack", run(), "--out", "one.safetensors"]);
    assert!(code == 2 && message.contains("2 values required"), "{message}");
}

#[test]
fn endings_are_exact_with_a_table() {
    // A link stays one: what it leads to is replaced.
    let (link, file) = (folder().join("bearoff.table"), folder().join("kept.table"));
    let _ = std::fs::remove_file(&link);
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink("kept.table", &link).unwrap();
    let shown = text(&["backgammon", "table", "--out", "bearoff.table"]);
    assert!(shown.contains("checksum") && shown.contains("written to bearoff.table"), "{shown}");
    assert!(link.is_symlink() && file.metadata().unwrap().len() > 10_000_000);
    // The table is a ruler for values: a network of 16 units that has learned a little knows roughly who is ahead.
    let report = json(&["backgammon", "table", "--model", run(), "--json"]);
    let [mean, most] = ["mean_win_error", "largest_win_error"].map(|key| report[key].as_f64().unwrap());
    assert!(mean > 0.001 && mean < 0.3 && most > mean && most <= 1.0, "{report}");
    // One checker each on the first point: whoever rolls wins.
    let id = "AQAABAAAAAAAAA";
    let words = ["analyse", "backgammon", "--position", id, "--model", run(), "--table", "bearoff.table", "--json"];
    let report = json(&words);
    assert_eq!(report["outcome"]["win"], 1.0, "{report}");
}

#[test]
fn a_game_is_played_through_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_operant"))
        .args(["play", "backgammon", "--model", run(), "--seed", "1"])
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"help\n1/24\nhint\nplays\nid\nquit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.ends_with("game left\n"), "{shown}");
    for part in ["your roll:", "no checker to move from 1", "  1. ", "type a play as 8/5 6/5"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn gnubg_plays_and_judges() {
    if gnubg_is_missing() {
        return;
    }
    // Our .sgf is read by gnubg as the games that our .mat holds.
    text(&[
        "eval",
        run(),
        "--against",
        "random",
        "--games",
        "4",
        "--seed",
        "2",
        "--mat",
        "own.mat",
        "--sgf",
        "own.sgf",
    ]);
    std::fs::write(folder().join("words"), "load match own.sgf\nexport match mat theirs.mat\n").unwrap();
    let gnubg = if Path::new("/usr/games/gnubg").is_file() { "/usr/games/gnubg" } else { "gnubg" };
    let ran = std::process::Command::new(gnubg).args(["-t", "-q", "-c", "words"]).current_dir(folder()).output();
    assert!(ran.unwrap().status.success());
    let [own, theirs] = ["own.mat", "theirs.mat"].map(|name| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        operant::env::backgammon::from_mat(&text).unwrap()
    });
    assert_eq!(own.len(), 4);
    for (own, theirs) in own.iter().zip(&theirs) {
        assert_eq!(own.positions(), theirs.positions());
    }
    let report = json(&["eval", run(), "--against", "gnubg:0", "--games", "6", "--json"]);
    assert_eq!((report["against"].as_str(), report["games"].as_u64()), (Some("gnubg 0-ply"), Some(6)));
    let report = json(&["eval", run(), "--error-rate", "--games", "4", "--json"]);
    let rate = report["error_rate"].as_f64().unwrap();
    // It has learned for a second: worse than a beginner, better than nothing.
    assert!(rate > 2.0 && rate < 120.0, "{report}");
    assert!(report["decisions"].as_u64().unwrap() > 60, "{report}");
}

#[test]
fn without_gnubg_the_message_says_how_to_get_it() {
    if Path::new("/usr/games/gnubg").is_file() {
        skipped("gnubg is where it is always looked for");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_operant"))
        .args(["eval", run(), "--error-rate"])
        .env("PATH", "")
        .current_dir(folder())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && message.contains("apt-get install gnubg gnubg-data"), "{message}");
}

/// A match ID's dice are those of `--dice`; its cube and score say what plays are worth.
#[test]
fn match_ids_bring_their_dice() {
    let with = json(&["analyse", "backgammon", "--position", "4HPwATDgc/ABMA:cImlAAAAAAAE", "--json"]);
    let plain = json(&["analyse", "backgammon", "--position", "4HPwATDgc/ABMA", "--dice", "3", "1", "--json"]);
    assert_eq!((&with["plays"][0]["play"], &with["dice"]), (&plain["plays"][0]["play"], &plain["dice"]));
    let (code, message) = failure(&["analyse", "backgammon", "--position", "4HPwATDgc/ABMA:cIml"]);
    assert!(code == 2 && message.contains("match id"), "{message}");
}

/// What a match ID asks is answered: a double, a take, a play.
#[test]
fn questions_about_the_cube_are_answered() {
    // Five points, nobody has one yet, the first player on roll; then with its double offered.
    let start = "4HPwATDgc/ABMA";
    let asked = json(&["analyse", "backgammon", "--position", start, "--match", "MAGgAAAAAAAE", "--json"]);
    let cube = &asked["cube"];
    assert_eq!((cube["question"].as_str(), cube["best"].as_str()), (Some("double"), Some("no double")), "{asked}");
    assert_eq!(cube["match_id"], "MAGgAAAAAAAE");
    let equity = |name: &str| cube[name]["equity"].as_f64().unwrap();
    assert!((equity("double_pass") - 1.0).abs() < 1e-6 && equity("no_double") > equity("double_take"), "{asked}");
    let chance = cube["no_double"]["match_chance"].as_f64().unwrap();
    assert!((0.5..0.56).contains(&chance), "who is on roll is a little ahead: {asked}");
    let offered = text(&["analyse", "backgammon", "--position", &format!("{start}:MBmgAAAAAAAE")]);
    assert!(offered.contains("X doubles") && offered.contains("best: take"), "{offered}");
    assert!(offered.contains("match to 5, X 0 O 0; cube 1 (in the middle)"), "{offered}");
    // Crawford: no question about the cube.
    let crawford = text(&["analyse", "backgammon", "--position", start, "--match", "sAGgAEAAEAAE"]);
    assert!(crawford.contains("Crawford game") && crawford.contains("no double is possible"), "{crawford}");
    let (code, message) = failure(&["analyse", "backgammon", "--position", start, "--match", "games of nobody.mat"]);
    assert!(code == 2 && message.contains("leave --position and --dice out"), "{message}");
}

#[test]
fn matches_are_played_with_the_cube() {
    let words = ["eval", run(), "--against", "random", "--match", "5", "--games", "6", "--seed", "3"];
    let report = json(&[&words[..], &["--json"]].concat());
    assert_eq!((report["match_to"].as_u64(), report["matches"].as_u64()), (Some(5), Some(6)));
    assert!(report["matches_won"].as_f64().unwrap() > 0.5 && report["doubles_per_game"].as_f64().unwrap() > 0.1);
    assert_eq!(json(&[&words[..], &["--json"]].concat())["points_per_game"], report["points_per_game"], "it repeats");
    let shown = text(&[&words[..], &["--mat", "cube.mat", "--sgf", "cube.sgf"]].concat());
    assert!(shown.contains("of 6 matches to 5 points won"), "{shown}");
    let one = std::fs::read_to_string(folder().join("cube-1.mat")).unwrap();
    assert!(one.contains("Doubles => 2") && one.contains("and the match"), "{one}");
    let found = json(&["analyse", "backgammon", "--match", "cube-1.mat", "--model", run(), "--json"]);
    assert!(found["error_rate"][0].as_f64().unwrap() < 1e-3, "it does as its values say: {found}");
    assert!(found["error_rate"][1].as_f64().unwrap() > 1.0);
    let money = ["eval", run(), "--against", "rules", "--cube", "--jacoby", "--games", "8", "--simulations", "8"];
    let shown = text(&[&money[..], &["--mat", "money.mat"]].concat());
    assert!(shown.contains("over 8 games for money, Jacoby") && shown.contains("doubles per game"), "{shown}");
    let kept = std::fs::read_to_string(folder().join("money.mat")).unwrap();
    assert!(kept.starts_with("; [Jacoby \"On\"]\n"), "{kept}");
    let found = json(&["analyse", "backgammon", "--match", "money.mat", "--model", run(), "--json"]);
    let clear = |one: &serde_json::Value| one["play"] == "no double" && one["best"] == "no double";
    let (all, rolls) =
        (found["plays"].as_array().unwrap(), found["plays"].as_array().unwrap().iter().filter(|one| clear(one)));
    assert!(rolls.count() < all.len() / 3, "not doubling counts only where a double is near: {found}");
    let itself = json(&["eval", run(), "--against", run(), "--match", "3", "--games", "4", "--json"]);
    assert_eq!(itself["matches_won"], 0.5, "each two matches have the same dice");
    for (words, wanted) in [
        (&["--match", "3", "--against", "gnubg:0"][..], "asked for plays alone"),
        (&["--match", "100"], "wanted 1..=64"),
        (&["--cube", "--error-rate"], "judges games without a cube"),
        (&["--jacoby"], "--cube"),
    ] {
        let (code, message) = failure(&[&["eval", run()], words].concat());
        assert!(code == 2 && message.contains(wanted), "{words:?}: {message}");
    }
}

#[test]
fn a_match_is_played_through_a_pipe() {
    let play = |words: &[&str], lines: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_operant"))
            .args([&["play", "backgammon", "--model", run(), "--seed", "2"], words].concat())
            .current_dir(folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It may be over before it has read all.
        let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    // Whatever is asked, one of these lines answers: pass, double, and the plays are those of a hint.
    let shown = play(&["--match", "3"], "hint\nid\nhelp\nquit\n");
    assert!(shown.contains("t to take, p to pass") && shown.ends_with("game left\n"), "{shown}");
    assert!(shown.contains("  1. ") && shown.contains("match "), "{shown}");
    let (code, message) = failure(&["play", "backgammon", "--jacoby"]);
    assert!(code == 2 && message.contains("--money or --cube"), "{message}");
    let (code, message) = failure(&["play", "backgammon", "--match", "0"]);
    assert!(code == 2 && message.contains("wanted 1..=64"), "{message}");
}

/// GNU Backgammon reads our matches as they were played, doubles and scores included.
#[test]
fn gnubg_reads_doubles() {
    if gnubg_is_missing() {
        return;
    }
    let words = ["eval", run(), "--against", "random", "--match", "7", "--games", "1", "--seed", "6"];
    text(&[&words[..], &["--mat", "ours.mat", "--sgf", "ours.sgf"]].concat());
    let commands =
        "import mat ours.mat\nexport match mat by_mat.mat\nload match ours.sgf\nexport match mat by_sgf.mat\n";
    std::fs::write(folder().join("cube.words"), commands).unwrap();
    let gnubg = if Path::new("/usr/games/gnubg").is_file() { "/usr/games/gnubg" } else { "gnubg" };
    let ran = Command::new(gnubg).args(["-t", "-q", "-c", "cube.words"]).current_dir(folder()).output();
    assert!(ran.unwrap().status.success());
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        operant::env::backgammon::from_mat(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"))
    };
    let ours = read("ours.mat");
    assert!(ours.iter().any(|record| !record.doubles.is_empty()));
    for name in ["by_mat.mat", "by_sgf.mat"] {
        let theirs = read(name);
        assert_eq!(theirs.len(), ours.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(
                (ours.stakes, ours.first, &ours.doubles),
                (theirs.stakes, theirs.first, &theirs.doubles),
                "{name}"
            );
            assert_eq!((ours.positions(), ours.result()), (theirs.positions(), theirs.result()), "{name}");
        }
    }
}
