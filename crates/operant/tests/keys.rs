//! Keys of settings: names that other libraries have lead to ours, and what may change on the way exists.

use operant::algo;
use operant::config::aliases;
use operant::run::keys_of;
use std::collections::BTreeSet;

/// A name of another library leads to a key that exists, and hides none.
#[test]
fn names_of_other_libraries_lead_to_keys() {
    for algo in algo::all() {
        let paths = keys_of(algo);
        let mut seen = BTreeSet::new();
        for (name, meaning) in aliases(algo.name) {
            assert!(seen.insert(name), "{}: {name} is there twice", algo.name);
            let hidden = paths.iter().find(|path| path.rsplit('.').next() == Some(name) && !path.starts_with("env."));
            assert_eq!(hidden, None, "{}: {name} is a key", algo.name);
            if let Some((key, _)) = meaning.key(algo.name) {
                assert!(paths.contains(&key), "{}: {name} leads to {key}, which does not exist", algo.name);
            }
        }
        assert!(seen.len() > 40, "{}", algo.name);
    }
}

/// Every key of an algorithm's table that is said to change exists.
#[test]
fn keys_that_may_change_exist() {
    for entry in algo::all() {
        let known = (entry.defaults)();
        for key in entry.may_change {
            assert!(known.contains_key(*key), "{}.{key}", entry.name);
        }
    }
}
