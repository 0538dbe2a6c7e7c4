//! Every op in the list passes the checks, and every file of ops is in the list.

use operant::nn::ops::OPS;
use std::collections::BTreeSet;

#[test]
fn every_op_passes_its_checks() {
    let wanted = std::env::var("OPERANT_OP").ok();
    let chosen = |name: &str| wanted.as_deref().is_none_or(|wanted| name.eq_ignore_ascii_case(wanted));
    assert!(OPS.iter().any(|entry| chosen(entry.name)), "OPERANT_OP={wanted:?}: no op has this name");
    let failures: Vec<String> = OPS
        .iter()
        .filter(|entry| chosen(entry.name))
        .filter_map(|entry| (entry.check)().err().map(|error| format!("{}: {error}", entry.name)))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_file_of_ops_is_in_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nn/ops");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "mod")
        .collect();
    let listed: BTreeSet<String> = OPS.iter().map(|entry| entry.file.to_owned()).collect();
    assert_eq!(files, listed);
}
