//! What the documents show is what compiles: the example of an env outside the tree runs, checks and all, and the
//! README's env is the one in the tree.

#[path = "../examples/my_env.rs"]
#[allow(unreachable_pub)]
mod my_env;

#[test]
fn my_env_passes_its_checks() {
    my_env::main().unwrap();
}

#[test]
fn the_readme_shows_the_code_as_it_is() {
    let squeezed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let source = std::fs::read_to_string(format!("{root}/crates/operant/src/env/mountaincar.rs")).unwrap();
    let (_, shown) = readme.split_once("```rust,ignore\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    assert!(squeezed(&source).contains(squeezed(shown).trim()), "README.md shows another step than mountaincar.rs has");
}
