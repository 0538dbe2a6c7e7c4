//! Replay: the tree of sums against plain sums, how often samples come against their priorities, windows of n steps
//! against a computation from whole episodes, and saving.

use operant::data::{Experience, Replay, ReplayShape, SampleDraws, Samples, SumTree};
use operant::lanes::rng::HostRng;
use proptest::prelude::*;

proptest! {
    /// After any changes, the total is the plain sum, and a place is found where the running sum of weights passes.
    #[test]
    fn the_tree_agrees_with_a_list(
        len in 1_usize..700,
        changes in prop::collection::vec((0_usize..1000, 0_u32..50), 1..200),
        at in 0.0_f64..1.0,
    ) {
        let (mut tree, mut list) = (SumTree::new(len), vec![0_u32; len]);
        for (place, weight) in changes {
            tree.set(place % len, weight as f32);
            list[place % len] = weight;
        }
        // Whole numbers this small are exact in every sum.
        let total: u32 = list.iter().sum();
        prop_assert_eq!(tree.total(), f64::from(total));
        prop_assert_eq!(tree.weights(), list.iter().map(|&x| x as f32).collect::<Vec<_>>());
        if total > 0 {
            let at = at * f64::from(total);
            let mut passed = 0.0;
            let wanted = list.iter().position(|&x| { passed += f64::from(x); at < passed }).unwrap();
            prop_assert_eq!(tree.find(at), wanted);
            prop_assert!(list[tree.find(f64::from(total))] > 0, "beyond the end is the last weight above 0");
        }
        let mut copy = SumTree::new(len);
        copy.set_all(tree.weights());
        prop_assert_eq!(copy, tree);
    }
}

/// Observation, action, reward, terminated, truncated, last observation.
type Told = (Vec<f32>, i32, f32, bool, bool, Vec<f32>);

/// Steps of envs that play whole episodes, told in full.
struct Story {
    shape: ReplayShape,
    /// `[env][step]`
    steps: Vec<Vec<Told>>,
    /// Every third action or so is not the best known.
    explores: bool,
}

/// Random episodes; every observation occurs once.
fn story(shape: ReplayShape, steps: usize, seed: u64) -> Story {
    let mut number = 0.0;
    let envs = (0..shape.envs).map(|env| {
        let mut rng = HostRng::new(seed, env as u32, 0, 0);
        let steps = (0..steps).map(|_| {
            let mut obs = || {
                number += 1.0;
                (0..shape.obs).map(|i| number + 0.125 * i as f32).collect::<Vec<f32>>()
            };
            let (terminated, truncated) = (rng.below(9) == 0, rng.below(7) == 0);
            (obs(), rng.below(4) as i32, rng.normal(), terminated, truncated, obs())
        });
        steps.collect()
    });
    Story { shape, steps: envs.collect(), explores: seed.is_multiple_of(2) }
}

impl Story {
    /// Inserts step `t` of all envs.
    fn tell(&self, replay: &mut Replay, t: usize) {
        let n = self.shape.envs;
        let all = |f: &dyn Fn(usize) -> Vec<f32>| (0..n).flat_map(f).collect::<Vec<f32>>();
        let flags = |f: &dyn Fn(usize) -> bool| (0..n).map(|env| u8::from(f(env))).collect::<Vec<u8>>();
        let step = |env: usize| &self.steps[env][t];
        replay.insert(Experience {
            obs: &all(&|env| step(env).0.clone()),
            legal: &(0..n).flat_map(|env| self.legal(&step(env).0)).collect::<Vec<u8>>(),
            actions: &(0..n).map(|env| step(env).1).collect::<Vec<_>>(),
            explored: &(0..n).filter(|_| self.explores).map(|env| self.explored(env, t)).collect::<Vec<_>>(),
            unseen: &[],
            reward: &all(&|env| vec![step(env).2]),
            terminated: &flags(&|env| step(env).3),
            truncated: &flags(&|env| step(env).4),
            final_obs: &all(&|env| step(env).5.clone()),
            episode_length: &vec![1; n],
        });
    }

    /// The mask of an observation: one legal action, which its number says.
    fn legal(&self, obs: &[f32]) -> Vec<u8> {
        (0..self.shape.choices).map(|choice| u8::from(obs[0] as usize % self.shape.choices == choice)).collect()
    }

    fn explored(&self, env: usize, t: usize) -> bool {
        self.explores && self.steps[env][t].1 == 2
    }

    /// [`Story::whole`] windows, cut before the first action behind their own that was not the best known.
    fn window(&self, env: usize, t: usize, told: usize, gamma: f64) -> Option<(f64, f64, Option<Vec<f32>>)> {
        let whole = self.whole(env, t, told, gamma)?;
        let mut total = 0.0;
        for k in 0..self.shape.n_step {
            let Some((obs, _, reward, terminated, truncated, _)) = self.steps[env].get(t + k) else { break };
            if k > 0 && self.explored(env, t + k) {
                return Some((total, gamma.powi(k as i32), Some(obs.clone())));
            }
            total += gamma.powi(k as i32) * f64::from(*reward);
            if *terminated || *truncated {
                break;
            }
        }
        Some(whole)
    }

    /// What a sample that begins at step `t` of an env must be, of `told` steps: discounted rewards, discount, and
    /// the observation at the end. `None` if its window is not whole yet, or if nothing is known of its end.
    fn whole(&self, env: usize, t: usize, told: usize, gamma: f64) -> Option<(f64, f64, Option<Vec<f32>>)> {
        let mut total = 0.0;
        for k in 0..self.shape.n_step {
            if t + k >= told {
                return None;
            }
            let (obs, _, reward, terminated, truncated, last) = &self.steps[env][t + k];
            if *truncated && !terminated && self.shape.choices > 0 {
                // Legal actions of the last observation are not told; those of the one before it are.
                return (k > 0).then(|| (total, gamma.powi(k as i32), Some(obs.clone())));
            }
            total += gamma.powi(k as i32) * f64::from(*reward);
            let steps = k as i32 + 1;
            if *terminated {
                return Some((total, 0.0, None));
            }
            if *truncated {
                return Some((total, gamma.powi(steps), Some(last.clone())));
            }
        }
        let n = self.shape.n_step;
        (t + n < told).then(|| (total, gamma.powi(n as i32), Some(self.steps[env][t + n].0.clone())))
    }
}

#[test]
fn windows_agree_with_whole_episodes() {
    let cases = [(1, None, 0), (2, Some(0.6), 0), (3, None, 0), (5, Some(1.0), 0), (10, None, 0)];
    for (n_step, alpha, choices) in cases.into_iter().chain([(1, None, 4), (3, Some(0.6), 4), (10, None, 4)]) {
        let shape = ReplayShape { envs: 3, rows: 40, obs: 2, choices, n_step };
        let story = story(shape, 130, n_step as u64);
        let mut replay = Replay::new(shape, alpha).unwrap();
        let mut samples = Samples::new(&shape, 512);
        for t in 0..130 {
            story.tell(&mut replay, t);
            if t % 13 != 12 {
                continue;
            }
            let gamma = 0.9_f32;
            replay.sample(SampleDraws { seed: 1, count: t as u64 }, gamma, 0.5, &mut samples);
            let mut seen = std::collections::BTreeSet::new();
            for k in 0..samples.len() {
                let obs = &samples.obs[2 * k..2 * k + 2];
                let find = |env: usize| story.steps[env].iter().position(|step| step.0 == obs).map(|at| (env, at));
                let (env, at) = (0..3).find_map(find).expect("an observation of the story");
                seen.insert((env, at));
                let (total, discount, last) = story.window(env, at, t + 1, f64::from(gamma)).expect("a whole window");
                assert!((f64::from(samples.returns[k]) - total).abs() < 1e-5, "{n_step}: {env} {at}");
                assert!((f64::from(samples.discount[k]) - discount).abs() < 1e-6, "{n_step}: {env} {at}");
                assert_eq!(samples.actions[k], story.steps[env][at].1);
                if let Some(last) = last {
                    assert_eq!(samples.next_obs[2 * k..2 * k + 2], last);
                    assert_eq!(samples.next_legal[k * choices..][..choices], story.legal(&last));
                }
            }
            // All that is whole and not overwritten may be drawn: rows that hold last observations take room too.
            let kept = |env: usize| {
                let mut room = 40_usize;
                let mut at = t + 1;
                while at > 0 {
                    let (.., terminated, truncated, _) = story.steps[env][at - 1];
                    let rows = 1 + usize::from(truncated && !terminated && choices == 0);
                    // A last observation outlives its step by one row.
                    if room < rows {
                        break;
                    }
                    room -= rows;
                    at -= 1;
                }
                (at..=t).filter(|&at| story.window(env, at, t + 1, 0.9).is_some()).count()
            };
            let wanted: usize = (0..3).map(kept).sum();
            assert_eq!(replay.len(), wanted, "{n_step} at {t}");
            assert!(seen.len() <= wanted && seen.len() > wanted / 2);
        }
    }
}

/// A step that only led to the next episode is no experience.
#[test]
fn steps_that_only_reset_are_left_out() {
    let shape = ReplayShape { envs: 1, rows: 8, obs: 1, choices: 0, n_step: 1 };
    let mut replay = Replay::new(shape, None).unwrap();
    let mut tell = |obs: f32, truncated: u8, length: i32| {
        replay.insert(Experience {
            obs: &[obs],
            legal: &[],
            actions: &[0],
            explored: &[],
            unseen: &[],
            reward: &[1.0],
            terminated: &[0],
            truncated: &[truncated],
            final_obs: &[obs + 0.5],
            episode_length: &[length],
        });
        replay.len()
    };
    assert_eq!([tell(1.0, 0, 0), tell(2.0, 1, 2), tell(2.5, 1, 0), tell(3.0, 0, 0)], [0, 2, 2, 2]);
}

/// Windows lead through rows that are never drawn, and none begins there.
#[test]
fn rows_that_are_not_to_be_seen_are_never_drawn() {
    let shape = ReplayShape { envs: 1, rows: 40, obs: 1, choices: 0, n_step: 2 };
    for alpha in [None, Some(0.6)] {
        let mut replay = Replay::new(shape, alpha).unwrap();
        for t in 0..30 {
            replay.insert(Experience {
                obs: &[t as f32],
                legal: &[],
                actions: &[0],
                explored: &[],
                unseen: &[t % 3 == 0],
                reward: &[1.0],
                terminated: &[u8::from(t == 29)],
                truncated: &[0],
                final_obs: &[0.0],
                episode_length: &[i32::from(t == 29)],
            });
        }
        assert_eq!(replay.len(), 20);
        let mut loaded = Replay::new(shape, alpha).unwrap();
        loaded.load(&replay.save()).unwrap();
        let mut samples = Samples::new(&shape, 500);
        for replay in [&replay, &loaded] {
            replay.sample(SampleDraws { seed: 1, count: 0 }, 1.0, 1.0, &mut samples);
            assert!(samples.obs.iter().all(|&obs| obs % 3.0 != 0.0));
            assert!(samples.next_obs.iter().any(|&obs| obs % 3.0 == 0.0));
        }
    }
}

fn filled(shape: ReplayShape, steps: usize, alpha: Option<f32>) -> Replay {
    let story = story(shape, steps, 9);
    let mut replay = Replay::new(shape, alpha).unwrap();
    (0..steps).for_each(|t| story.tell(&mut replay, t));
    replay
}

/// Every ready row with how often it came in so many batches.
fn counts(replay: &Replay, batches: u64) -> std::collections::BTreeMap<u32, u32> {
    let mut counts = std::collections::BTreeMap::new();
    let mut samples = Samples::new(replay.shape(), 50);
    for count in 0..batches {
        replay.sample(SampleDraws { seed: 3, count }, 0.9, 1.0, &mut samples);
        samples.slots.iter().for_each(|&slot| *counts.entry(slot).or_default() += 1);
    }
    counts
}

/// χ² of how often rows come; with k rows it is near k, with a standard deviation of √(2k).
#[test]
fn samples_come_as_often_as_they_should() {
    let shape = ReplayShape { envs: 4, rows: 30, obs: 1, choices: 0, n_step: 2 };
    for steps in [20, 100] {
        let uniform = filled(shape, steps, None);
        let mut prioritised = filled(shape, steps, Some(0.6));
        let ready: Vec<u32> = counts(&uniform, 2000).into_keys().collect();
        assert_eq!(ready.len(), uniform.len());
        let errors: Vec<f32> = ready.iter().map(|&slot| 0.01 + (slot * 37 % 11) as f32).collect();
        prioritised.prioritise(&ready, &errors, 1e-6);
        let weights: Vec<f64> = errors.iter().map(|&error| (f64::from(error) + 1e-6).powf(0.6)).collect();
        for (replay, weights) in [(&uniform, vec![1.0; ready.len()]), (&prioritised, weights)] {
            let (batches, total) = (4000_u64, weights.iter().sum::<f64>());
            let found = counts(replay, batches);
            let chi: f64 = ready
                .iter()
                .zip(&weights)
                .map(|(slot, weight)| {
                    let wanted = weight / total * 50.0 * batches as f64;
                    (f64::from(found.get(slot).copied().unwrap_or(0)) - wanted).powi(2) / wanted
                })
                .sum();
            let k = ready.len() as f64;
            assert!(found.keys().eq(ready.iter()) && chi < k + 5.0 * (2.0 * k).sqrt(), "{steps}: chi² {chi} of {k}");
        }
    }
}

#[test]
fn importance_weights_follow_the_formula() {
    let shape = ReplayShape { envs: 2, rows: 30, obs: 1, choices: 0, n_step: 1 };
    let mut replay = filled(shape, 60, Some(0.7));
    let ready: Vec<u32> = counts(&replay, 500).into_keys().collect();
    let mut samples = Samples::new(&shape, 64);
    replay.sample(SampleDraws { seed: 5, count: 0 }, 0.9, 1.0, &mut samples);
    assert!(samples.weight.iter().all(|&weight| weight == 1.0), "new rows have the largest priority so far");
    let errors: Vec<f32> = (0..ready.len()).map(|i| i as f32 * 0.3).collect();
    replay.prioritise(&ready, &errors, 0.01);
    let weight = |slot: u32| {
        let i = ready.iter().position(|&other| other == slot).unwrap();
        (f64::from(errors[i]) + 0.01).powf(0.7)
    };
    let total: f64 = ready.iter().map(|&slot| weight(slot)).sum();
    for beta in [0.0, 0.4, 1.0] {
        replay.sample(SampleDraws { seed: 5, count: 1 }, 0.9, beta, &mut samples);
        let wanted: Vec<f64> = samples
            .slots
            .iter()
            .map(|&slot| (ready.len() as f64 * weight(slot) / total).powf(-f64::from(beta)))
            .collect();
        let most = wanted.iter().copied().fold(0.0, f64::max);
        for (got, wanted) in samples.weight.iter().zip(&wanted) {
            assert!((f64::from(*got) - wanted / most).abs() < 1e-4, "β {beta}: {got} {}", wanted / most);
        }
    }
}

#[test]
fn a_saved_replay_goes_on_with_the_same_samples() {
    for (alpha, obs, steps) in [(None, 3, 10), (Some(0.6), 1, 200), (Some(0.5), 2, 57)] {
        let shape = ReplayShape { envs: 3, rows: 25, obs, choices: 4, n_step: 3 };
        let story = story(shape, steps + 30, 2);
        let mut straight = Replay::new(shape, alpha).unwrap();
        (0..steps).for_each(|t| story.tell(&mut straight, t));
        let mut samples = Samples::new(&shape, 16);
        straight.sample(SampleDraws { seed: 5, count: 1 }, 0.9, 0.4, &mut samples);
        straight.prioritise(&samples.slots, &samples.returns, 1e-3);
        let bytes = straight.save();
        let mut resumed = Replay::new(shape, alpha).unwrap();
        resumed.load(&bytes).unwrap();
        assert_eq!(resumed.save(), bytes);
        let mut again = samples.clone();
        for t in steps..steps + 30 {
            for (replay, samples) in [(&mut straight, &mut samples), (&mut resumed, &mut again)] {
                story.tell(replay, t);
                replay.sample(SampleDraws { seed: 5, count: t as u64 }, 0.9, 0.4, samples);
                replay.prioritise(&samples.slots, &samples.returns, 1e-3);
            }
            assert_eq!(samples, again);
        }
        for cut in [0, 7, 20, bytes.len() - 1] {
            assert!(resumed.load(&bytes[..cut]).is_err(), "{cut}");
        }
        let other = Replay::new(ReplayShape { n_step: 2, ..shape }, alpha).unwrap().load(&bytes).unwrap_err();
        assert!(other.to_string().contains("n_step"), "{other}");
    }
}

/// Observations of zeros and ones are saved as bits, small whole numbers as bytes; all come back.
#[test]
fn simple_numbers_are_saved_small() {
    let shape = ReplayShape { envs: 1, rows: 1000, obs: 64, choices: 0, n_step: 1 };
    let saved = |value: fn(usize) -> f32| {
        let mut replay = Replay::new(shape, None).unwrap();
        let mut obs = vec![0.0; 64];
        for t in 0..900 {
            obs.iter_mut().enumerate().for_each(|(i, x)| *x = value(t * 64 + i));
            let none = &[0_u8][..];
            let step = Experience {
                obs: &obs,
                legal: &[],
                actions: &[0],
                explored: &[],
                unseen: &[],
                reward: &[1.0],
                terminated: none,
                truncated: none,
                final_obs: &obs,
                episode_length: &[0],
            };
            replay.insert(step);
        }
        let bytes = replay.save();
        let mut again = Replay::new(shape, None).unwrap();
        again.load(&bytes).unwrap();
        assert_eq!(again, replay);
        bytes.len()
    };
    let (bits, bytes, numbers) =
        (saved(|i| (i % 3 / 2) as f32), saved(|i| (i % 256) as f32), saved(|i| if i == 5 { -0.0 } else { 1.0 }));
    assert!(
        bits < 900 * 16 && (900 * 64..900 * 75).contains(&bytes) && numbers > 900 * 256,
        "{bits} {bytes} {numbers}"
    );
}

#[test]
fn impossible_shapes_are_refused() {
    let shape = ReplayShape { envs: 4, rows: 6, obs: 1, choices: 0, n_step: 5 };
    let message = Replay::new(shape, None).unwrap_err().to_string();
    assert!(message.contains("raise buffer_size"), "{message}");
    assert!(Replay::new(ReplayShape { n_step: 0, ..shape }, None).is_err());
}
