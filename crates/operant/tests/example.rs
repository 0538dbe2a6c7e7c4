//! The example of an env outside the tree runs, checks and all.

#[path = "../examples/my_env.rs"]
#[allow(unreachable_pub)]
mod my_env;

#[test]
fn my_env_passes_its_checks() {
    my_env::main().unwrap();
}
