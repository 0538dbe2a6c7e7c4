//! The probe envs have the returns that their descriptions promise, for the right and for the wrong policy.

use operant::env::{Actions, Options, RowBuf, Seeds, find};

/// Mean return of finished episodes when `policy` answers each observation and legal row.
fn mean_return(name: &str, policy: impl Fn(&[f32], &[u8]) -> i32) -> f32 {
    let n = 64;
    let mut envs = find(name).unwrap().build(&[], &Options::new(n)).unwrap();
    let spec = envs.spec().clone();
    let (width, choices) = (spec.observation.len(), if spec.masked { spec.action.choices() } else { 0 });
    let mut row = RowBuf::new(&spec, n);
    envs.reset(Seeds::One(1), None, row.row());
    let (mut sum, mut count) = (0.0, 0.0);
    for _ in 0..200 {
        let actions: Vec<i32> = (0..n)
            .map(|i| policy(&row.obs[i * width..(i + 1) * width], &row.legal[i * choices..(i + 1) * choices]))
            .collect();
        envs.step(Actions::I32(&actions), row.row());
        for i in (0..n).filter(|&i| row.terminated[i] | row.truncated[i] == 1) {
            sum += row.episode_return[i];
            count += 1.0;
        }
    }
    sum / count
}

fn argmax(values: &[f32]) -> i32 {
    values.iter().position(|&x| x == 1.0).unwrap_or(0) as i32
}

#[test]
fn identity_pays_for_the_action_shown() {
    assert_eq!(mean_return("probe_identity", |obs, _| argmax(obs)), 1.0);
    assert!((mean_return("probe_identity", |_, _| 0) - 0.25).abs() < 0.02);
}

#[test]
fn delayed_pays_for_the_first_action() {
    assert_eq!(mean_return("probe_delayed", |obs, _| obs[0] as i32), 1.0);
    assert_eq!(mean_return("probe_delayed", |obs, _| obs[1] as i32), 0.0);
}

#[test]
fn truncation_never_terminates() {
    assert_eq!(mean_return("probe_truncation", |_, _| 0), 10.0);
}

#[test]
fn masked_shows_only_in_the_mask() {
    assert_eq!(mean_return("probe_masked", |_, legal| legal.iter().position(|&x| x == 1).unwrap() as i32), 4.0);
    assert!(mean_return("probe_masked", |_, _| 2) < -20.0);
}

#[test]
fn memory_needs_memory() {
    assert!((mean_return("probe_memory", |_, _| 1) - 0.5).abs() < 0.03, "what is seen at the question says nothing");
}
