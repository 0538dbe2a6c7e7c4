//! Actions that an env does not take are found and named.

use operant_env::{Actions, Spec};
use operant_envs::ENVS;

fn spec(name: &str) -> Spec {
    ENVS.iter().find(|entry| entry.answers_to(name)).unwrap().spec()
}

#[test]
fn choices_outside_the_space_are_found() {
    let (two, three) = (spec("cartpole"), spec("acrobot"));
    assert!(Actions::I32(&[0, 1, 1]).check(&two, 3).is_ok() && Actions::I64(&[2, 0, 1]).check(&three, 3).is_ok());
    for bad in [-1, 3, i32::MIN, i32::MAX] {
        let message = Actions::I32(&[0, bad]).check(&three, 2).unwrap_err().to_string();
        assert_eq!(message, format!("action {bad} of env 1 is out of range: acrobot takes 0..=2"));
    }
    for bad in [-1, 2, 1 << 32, i64::MIN, i64::MAX] {
        let message = Actions::I64(&[bad, 0]).check(&two, 2).unwrap_err().to_string();
        assert_eq!(message, format!("action {bad} of env 0 is out of range: cartpole takes 0..=1"));
    }
}

#[test]
fn wrong_count_kind_and_nan_are_found() {
    let (cartpole, pendulum) = (spec("cartpole"), spec("pendulum"));
    assert!(
        Actions::I32(&[0; 3]).check(&cartpole, 4).unwrap_err().to_string().contains("got 3 action numbers, wanted 4")
    );
    assert!(Actions::F32(&[0.0; 4]).check(&cartpole, 4).is_err() && Actions::I32(&[0; 4]).check(&pendulum, 4).is_err());
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(
            Actions::F32(&[0.0, bad])
                .check(&pendulum, 2)
                .unwrap_err()
                .to_string()
                .contains("of env 1 is not a finite f32")
        );
    }
    // Finite in f64 but not in the f32 that the env computes with.
    assert!(Actions::F64(&[1e300]).check(&pendulum, 1).is_err() && Actions::F64(&[1.0]).check(&pendulum, 1).is_ok());
}
