//! `operant serve` as a browser and as a stranger see it, over a run that goes on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    _process: Ends,
    port: u16,
    token: String,
}

fn fresh(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("operant-serving-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn operant(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    command.args(words).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn serve(folder: &Path, words: &[&str]) -> Server {
    let mut process = Ends(operant(folder, &[&["serve", "--port", "0"], words].concat()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
    let (port, token) = address.split_once("/?token=").unwrap();
    Server { _process: process, port: port.parse().unwrap(), token: token.to_owned() }
}

impl Server {
    /// Status line with headers, and body, of a request as these lines say.
    fn send(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str, cookie: &str) -> (String, String) {
        let host = format!("127.0.0.1:{}", self.port);
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"))
    }

    /// The body of a page for one who has the token.
    fn page(&self, path: &str) -> String {
        let (head, body) = self.get(path, &format!("operant-token={}", self.token));
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
        body
    }
}

/// Env steps that a run's page shows.
fn steps(page: &str) -> u64 {
    let line = page.lines().find(|line| line.contains("id=\"state\"")).unwrap();
    let shown = line.split(" · ").find(|part| part.contains("steps")).unwrap();
    let digits: String = shown.split(" of ").next().unwrap().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn a_run_is_shown_while_it_goes_on() {
    let folder = fresh("live");
    let words =
        ["train", "ppo", "cartpole", "--until", "steps", "--steps", "1e9", "--run-dir", "runs/a <b>", "--quiet"];
    let _run = Ends(operant(&folder, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let ring = folder.join("runs/a <b>/metrics.jsonl");
    let start = Instant::now();
    while !ring.metadata().is_ok_and(|file| file.len() > 0) {
        assert!(start.elapsed() < Duration::from_secs(60), "the run wrote nothing");
        std::thread::sleep(Duration::from_millis(50));
    }
    let server = serve(&folder, &[]);
    let list = server.page("/runs");
    assert!(list.contains("<a href=\"/run/a%20%3Cb%3E\">a &lt;b&gt;</a>") && list.contains("running"), "{list}");
    assert!(!list.contains("a <b>"), "text of a run's name becomes markup: {list}");
    let page = server.page("/run/a%20%3Cb%3E");
    assert!(page.contains("data-status=\"running\"") && page.contains("src=\"/page.js\""), "{page}");
    for part in ["aria-label=\"return\"", "<td>ppo.gamma</td>", "<td>started</td>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let first = steps(&page);
    let newer = loop {
        let now = steps(&server.page("/run/a%20%3Cb%3E/live?window=60"));
        if now > first || start.elapsed() > Duration::from_secs(120) {
            break now;
        }
    };
    assert!(newer > first, "{newer} after {first}");
    assert!(server.page("/page.js").contains("\"use strict\""));
    std::fs::remove_dir_all(&folder).ok();
}

#[test]
fn strangers_are_refused() {
    let folder = fresh("strangers");
    std::fs::create_dir(folder.join("runs")).unwrap();
    std::fs::write(folder.join("secret.toml"), "secret").unwrap();
    let server = serve(&folder, &[]);
    let good = format!("operant-token={}", server.token);
    for (cookie, why) in
        [("", "no token"), ("operant-token=00", "short"), ("operant-token=zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "wrong")]
    {
        for path in ["/", "/runs", "/run/x", "/page.js", "/?token=0123"] {
            let (head, body) = server.get(path, cookie);
            assert!(head.starts_with("HTTP/1.1 403") && body.contains("token"), "{why} {path}: {head}");
        }
    }
    let (head, _) = server.get(&format!("/?token={}", server.token), "");
    assert!(
        head.starts_with("HTTP/1.1 303") && head.contains("SameSite=Strict") && head.contains("HttpOnly"),
        "{head}"
    );
    assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{head}");
    let rebound = format!("GET /runs HTTP/1.1\r\nHost: evil.example\r\nCookie: {good}\r\nConnection: close\r\n\r\n");
    assert!(server.send(&rebound).0.starts_with("HTTP/1.1 403"));
    let post = format!(
        "POST /runs HTTP/1.1\r\nHost: localhost:{}\r\nCookie: {good}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        server.port
    );
    assert!(server.send(&post).0.starts_with("HTTP/1.1 405"));
    for path in [
        "/run/..",
        "/run/%2e%2e",
        "/run/..%2Fsecret.toml",
        "/run/%2Fetc%2Fpasswd",
        "/secret.toml",
        "/compare?run=..&run=..",
    ] {
        let (head, body) = server.get(path, &good);
        assert!(head.starts_with("HTTP/1.1 404") && !body.contains("secret\n"), "{path}: {head}\n{body}");
    }
    // Another address of this machine is not listened to.
    assert!(TcpStream::connect(("127.0.0.2", server.port)).is_err());
    std::fs::remove_dir_all(&folder).ok();
}

#[test]
fn what_cannot_be_served_is_told() {
    let folder = fresh("told");
    let said = |words: &[&str]| {
        let output = operant(&folder, words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["serve", "nothing"]);
    assert!(code == Some(1) && text.contains("unknown run \"nothing\""), "{text}");
    let (code, text) = said(&["serve", "--dir", "absent"]);
    assert!(code == Some(1) && text.contains("cannot list runs in absent"), "{text}");
    let server = serve(&folder, &[]);
    let (code, text) = said(&["serve", "--port", &server.port.to_string()]);
    assert!(code == Some(1) && text.contains("--port 0"), "{text}");
    std::fs::remove_dir_all(&folder).ok();
}

/// A run of growth as its files tell it: two envs, of which one was set back.
fn grown(folder: &Path) {
    let run = folder.join("runs/grown");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("run.toml"), "algo = \"ppo\"\nsteps = 1000\n[env]\nname = \"growth\"\n").unwrap();
    let metrics = [
        ("step", 480.0),
        ("seconds", 1.0),
        ("slot/0/alpha", 0.25),
        ("slot/1/alpha", 0.5),
        ("slot/0/contribution", 1.5),
        ("slot/1/contribution", 3.25),
        ("slot/0/shapley", 1.25),
        ("slot/1/shapley", 2.75),
        ("slot/1/shapley_error", 0.125),
        ("interaction/0-1", -0.75),
    ];
    let metrics: Vec<String> = metrics.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    std::fs::write(run.join("metrics.jsonl"), format!("{{{}}}\n", metrics.join(","))).unwrap();
    let event =
        |kind: &str, text: &str| format!("{{\"time\":1.0,\"step\":480,\"kind\":\"{kind}\",\"text\":\"{text}\"}}\n");
    let events = [
        event("started", "ppo on growth"),
        event("lifecycle", "env 0: epoch 3, slot 1: dormant to germinated conv_heavy"),
        event("lifecycle", "env 1: epoch 9, slot 0: holding to fossilised norm"),
        event("rollback", "env 1: epoch 11: divergence <b>"),
        event("finished", "done"),
    ];
    std::fs::write(run.join("events.jsonl"), events.concat()).unwrap();
}

#[test]
fn a_run_of_growth_shows_envs_slots_and_what_seeds_are_worth() {
    let folder = fresh("grown");
    grown(&folder);
    let server = serve(&folder, &[]);
    let page = server.page("/run/grown");
    for part in [
        "<tr><th>env</th><th>slot 0</th><th>slot 1</th></tr>",
        "<td>dormant</td><td>germinated conv_heavy</td>",
        "<td>fossilised norm</td><td>dormant</td>",
        "<th>Shapley</th><th>±</th>",
        "<td class=\"number\">3.250</td><td class=\"number\">2.750</td><td class=\"number\">0.1250</td>",
        "<td class=\"number\">0 and 1</td><td class=\"number\">-0.7500</td><td>interference</td>",
        "data-kind=\"rollback\" data-severity=\"1\" data-env=\"1\"",
        "divergence &lt;b&gt;",
        "<option>rollback</option>",
        "<option value=\"2\">from error on</option>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    std::fs::remove_dir_all(&folder).ok();
}

/// What a headless browser makes of an address, as text.
fn browsed(folder: &Path, address: &str) -> String {
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
    browser.args(["--disable-component-update", "--disable-sync", "--virtual-time-budget=8000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let output = browser.arg(address).output().unwrap();
    assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page's filters leave the events that an address names.
#[test]
#[ignore = "needs Chromium (`chromium` on the path): cargo xtask test runs it where there is one"]
fn a_browser_filters_events() {
    let folder = fresh("filtered");
    grown(&folder);
    let server = serve(&folder, &["runs/grown"]);
    let shown = |named: &str| {
        let page = browsed(&folder, &format!("http://127.0.0.1:{}/?token={}{named}", server.port, server.token));
        let rows = page.lines().filter(|line| line.contains("<tr class=\"row\"") && !line.contains("hidden"));
        let kind = |row: &str| row.split("data-kind=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        rows.map(kind).collect::<Vec<String>>()
    };
    assert_eq!(shown(""), ["finished", "rollback", "lifecycle", "lifecycle", "started"]);
    assert_eq!(shown("#severity=1"), ["rollback"]);
    assert_eq!(shown("#env=1"), ["rollback", "lifecycle"]);
    assert_eq!(shown("#kind=lifecycle&env=0"), ["lifecycle"]);
    std::fs::remove_dir_all(&folder).ok();
}

/// A browser runs the page's script under its policy, and the live part is fetched again.
#[test]
#[ignore = "needs Chromium (`chromium` on the path): cargo xtask test runs it where there is one"]
fn a_browser_shows_a_run_and_keeps_it_fresh() {
    let folder = fresh("browser");
    let words = ["train", "ppo", "cartpole", "--steps", "8192", "--run-dir", "runs/seen", "--quiet"];
    assert!(operant(&folder, &words).status().unwrap().success());
    let server = serve(&folder, &["runs/seen"]);
    let page = browsed(&folder, &format!("http://127.0.0.1:{}/?token={}", server.port, server.token));
    for part in ["<h1>seen</h1>", "data-status=\"finished\"", "<polyline class=\"line\"", "as of "] {
        assert!(page.contains(part), "{part}: {page}");
    }
    std::fs::remove_dir_all(&folder).ok();
}
