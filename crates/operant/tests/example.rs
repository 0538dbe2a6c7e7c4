//! What the documents show is what compiles: the example of an env outside the tree runs, checks and all, and the
//! README's env is the one in the tree.

#[path = "../examples/my_env.rs"]
#[allow(unreachable_pub)]
mod my_env;

#[path = "../examples/custom_net.rs"]
#[allow(unreachable_pub)]
mod custom_net;

#[test]
fn custom_net_runs() {
    custom_net::main().unwrap();
}

#[test]
fn my_env_passes_its_checks() {
    my_env::main().unwrap();
}

#[test]
fn the_readme_shows_the_code_as_it_is() {
    let squeezed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let source = std::fs::read_to_string(format!("{root}/crates/operant-envs/src/mountaincar.rs")).unwrap();
    let net = std::fs::read_to_string(format!("{root}/crates/operant/examples/custom_net.rs")).unwrap();
    let blocks: Vec<&str> =
        readme.split("```rust,ignore\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    let [network, step] = blocks[..] else { panic!("{} blocks of Rust", blocks.len()) };
    for line in network.lines() {
        let known = net.lines().any(|source| source.trim() == line.trim());
        assert!(known, "README.md shows {line:?}, which custom_net.rs does not have");
    }
    assert!(squeezed(&source).contains(squeezed(step).trim()), "README.md shows another step than mountaincar.rs has");
}
