//! `operant serve`: runs in a web browser, while they go on.
//!
//! Only this machine can reach it (it binds the loopback address), only those who know the token it prints are answered, and a
//! page fetches nothing from elsewhere. It reads what runs write and never touches them.

mod growth;
mod pages;

use crate::found::Found;
use crate::output::{Failure, print};
use crate::run_folder::{RUNS, RunFolder};
use pages::{Answer, Site};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tiny_http::{Header, Method, Request, Response, Server};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant serve\n  operant serve runs/RUN --port 0")]
pub(crate) struct Args {
    /// A run's folder, or that of a batch of seeds, or its name below --dir: the first page [default: the list of runs].
    run: Option<String>,
    /// Port on this machine; 0 is any free one.
    #[arg(long, default_value_t = 8130)]
    port: u16,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

/// Requests answered at once: a browser asks for a page and its parts together.
const THREADS: usize = 4;
const COOKIE: &str = "operant-token";
/// Nothing from elsewhere, nothing framed, no plug-ins; plots and tables bring style of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let first = args.run.as_ref().map(|name| Found::find(name, &args.dir)).transpose()?;
    RunFolder::all(&args.dir).or_else(|failure| if first.is_some() { Ok(Vec::new()) } else { Err(failure) })?;
    let server = Server::http((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| {
        Failure::Run(format!(
            "port {} of this machine: {error}; another one: --port 0 takes any that is free",
            args.port
        ))
    })?;
    let port = server.server_addr().to_ip().map_or(args.port, |address| address.port());
    let token = token()?;
    print(&format!("http://127.0.0.1:{port}/?token={token}\nOpen it in a browser on this machine; ctrl-c ends it.\n"))?;
    let desk = Arc::new(Desk { server, port, token, site: Site::new(args.dir.clone(), first) });
    let clerks: Vec<_> = (0..THREADS)
        .map(|_| {
            let desk = Arc::clone(&desk);
            std::thread::spawn(move || desk.answer_all())
        })
        .collect();
    clerks.into_iter().try_for_each(|clerk| {
        clerk.join().unwrap_or_else(|_| Err(Failure::Run("a thread of the server ended; start it again".into())))
    })
}

/// 128 random bits in hexadecimal digits.
fn token() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Run(format!("the system gives no random numbers for a token: {error}")))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

struct Desk {
    server: Server,
    port: u16,
    token: String,
    site: Site,
}

impl Desk {
    fn answer_all(&self) -> Result<(), Failure> {
        loop {
            let request = self.server.recv().map_err(|error| Failure::Run(format!("server: {error}")))?;
            let answer = self.answer(&request);
            let mut response = Response::from_string(answer.body).with_status_code(answer.status);
            for (name, value) in [
                ("Content-Type", answer.kind),
                ("Content-Security-Policy", POLICY),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-store"),
            ] {
                response.add_header(header(name, value));
            }
            for (name, value) in &answer.headers {
                response.add_header(header(name, value));
            }
            // The reader may have gone away; there is nobody left to tell.
            let _ = request.respond(response);
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        if *request.method() != Method::Get {
            return Answer::text(405, "only GET is answered here\n");
        }
        // A page of another site whose name was made to point here (DNS rebinding) asks for that name.
        let host = field(request, "Host").unwrap_or_default();
        if ![format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)].contains(&host) {
            return Answer::text(403, "this server answers to 127.0.0.1 and localhost only\n");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        if let Some(given) = pages::parameter(query, "token") {
            return match same(&given, &self.token) {
                // The token leaves the address line, and so the browser's history of pages.
                true => Answer::redirect(path)
                    .with("Set-Cookie", format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", self.token)),
                false => Answer::text(403, WRONG_TOKEN),
            };
        }
        let cookies = field(request, "Cookie").unwrap_or_default();
        let known = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        if !known.into_iter().any(|(name, value)| name == COOKIE && same(value, &self.token)) {
            return Answer::text(403, WRONG_TOKEN);
        }
        self.site.answer(path, query)
    }
}

const WRONG_TOKEN: &str = "wrong or missing token; open the address that operant serve printed, token and all\n";

/// Whether two texts are equal, in a time that does not tell where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn field(request: &Request, name: &'static str) -> Option<String> {
    request.headers().iter().find(|header| header.field.equiv(name)).map(|header| header.value.to_string())
}

fn header(name: &str, value: &str) -> Header {
    // Values are ours or percent-encoded: never a character that a header cannot hold.
    Header::from_bytes(name, value)
        .unwrap_or_else(|()| Header::from_bytes("X-Content-Type-Options", "nosniff").unwrap())
}
