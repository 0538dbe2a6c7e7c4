//! Growth on text: how it is cut, that a host learns it, and that episodes on it repeat and go on.

use operant::env::growth::{Choice, Governor, Happened, Heuristic, Key, Op, Panic, Task, set_task_data};
use operant::env::{Actions, Growth, HostEnv, Options, Params, RowBuf, Seeds, VecEnv, find};
use operant::lanes::rng::HostRng;
use operant::nn::grow::Blueprint;
use std::sync::OnceLock;

const KEY: Key = Key { task: 3, side: 8, train: 50, validation: 20, modes: 1, seed: 0, context: 16 };

const SETTINGS: &[(&str, f64)] = &[
    ("task", 3.0),
    ("host", 9.0),
    ("context", 16.0),
    ("epochs", 12.0),
    ("min_epochs", 1.0),
    ("prune_age", 1.0),
    ("embargo", 2.0),
    ("train_samples", 64.0),
    ("val_samples", 32.0),
    ("batch", 16.0),
];

/// Sentences of a few words in a random order: like English in its letters, its words and the spaces between them.
fn text() -> &'static [u8] {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    TEXT.get_or_init(|| {
        let nouns = ["network", "seed", "teacher", "window", "river", "garden", "letter", "question", "morning"];
        let verbs = ["grows", "reads", "follows", "keeps", "opens", "answers", "finds"];
        let mut rng = HostRng::new(4, 0, 0, 0);
        let mut pick = |words: &[&'static str]| words[rng.below(words.len() as u32) as usize];
        let mut text = String::new();
        while text.len() < 20_000 {
            text += &format!("the {} {} the {}. ", pick(&nouns), pick(&verbs), pick(&nouns));
        }
        let path = std::env::temp_dir().join(format!("operant-text-{}.txt", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        set_task_data(&path);
        text.into_bytes()
    })
}

fn env(more: &[(&str, f64)]) -> Growth {
    text();
    let mut env = Growth::default();
    SETTINGS.iter().chain(more).for_each(|(name, value)| env.set(name, *value).unwrap());
    env.validate().unwrap();
    env.reset(&mut HostRng::new(5, 0, 0, 0));
    env
}

/// Entropy of single bytes, in nats: what one reaches who knows only how frequent each is.
fn unigram_entropy(text: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    text.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / text.len() as f64);
    -shares.map(|share| share * share.ln()).sum::<f64>()
}

#[test]
fn a_text_is_cut_so_that_nothing_leaks() {
    // Bytes of the last tenth occur nowhere else.
    let text: Vec<u8> = (0..3000).map(|i| (i % 97 + if i < 2700 { 0 } else { 128 }) as u8).collect();
    let task = Task::of_text(&text, KEY).unwrap();
    assert_eq!((task.image, task.classes, task.train_count()), ([16, 1, 1], 256, 50));
    assert_eq!((task.train.images.len(), task.train.targets.len(), task.validation.targets.len()), (800, 800, 320));
    assert!(task.train.images.iter().all(|x| *x < 128.0) && task.train.targets.iter().all(|x| *x < 128));
    assert!(task.validation.images.iter().all(|x| *x >= 128.0) && task.validation.targets.iter().all(|x| *x >= 128));
    for (bytes, next) in task.train.images.chunks(16).zip(task.train.targets.chunks(16)) {
        assert!(bytes[1..].iter().zip(next).all(|(a, b)| *a == *b as f32), "targets are the bytes behind each");
    }
    assert_eq!((task.train.images[0], *task.train.targets.last().unwrap()), (0.0, i32::from(text[2699])));
    let message = Task::of_text(&text[..350], KEY).unwrap_err().to_string();
    for part in ["350 bytes", "at least 360", "20 to validate on", "--task-data", "env.context"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(Task::of_text(&text[..360], KEY).is_ok() && Task::of_text(&[], KEY).is_err());
}

#[test]
fn a_host_learns_more_than_how_frequent_bytes_are() {
    for fresh in [0.0, 1.0] {
        let mut env = env(&[("fresh", fresh), ("train_samples", 256.0)]);
        let first = env.episode().unwrap().loss();
        assert!((first - 256f32.ln()).abs() < 0.6, "{first}: chance among 256");
        while !env.choose(&Choice::default()).1 {}
        let (loss, entropy) = (f64::from(env.episode().unwrap().loss()), unigram_entropy(text()));
        assert!(loss < 0.8 * entropy, "{loss} nats, {entropy} by frequencies");
        assert!(env.episode().unwrap().accuracy() > 40.0);
        assert_eq!(env.episode().unwrap().state.rollbacks, 0);
    }
}

#[test]
fn chance_follows_the_number_of_classes() {
    let mut governor = Governor::default();
    (0..12).for_each(|_| assert_eq!(governor.look(2.0, true, 256), None));
    assert_eq!(governor.clone().look(2.3, true, 256), None, "chance among ten is far below chance among 256");
    assert_eq!(governor.look(256f32.ln(), true, 256), Some(Panic::Collapse));
}

#[test]
fn hosts_and_tasks_that_do_not_go_together_are_named() {
    text();
    let said = |task: f64, host: f64| {
        let mut env = Growth::default();
        SETTINGS
            .iter()
            .chain(&[("task", task), ("host", host)])
            .for_each(|(name, value)| env.set(name, *value).unwrap());
        env.validate().unwrap_err().to_string()
    };
    let message = said(3.0, 4.0);
    assert!(
        message.contains("host = minimal: task bytes is of text") && message.contains("(transformer)"),
        "{message}"
    );
    let message = said(2.0, 9.0);
    assert!(message.contains("host = transformer: task motifs is of images") && message.contains("deep"), "{message}");
}

fn rows(
    envs: &mut dyn VecEnv,
    row: &mut RowBuf,
    rng: &mut HostRng,
    steps: usize,
) -> Vec<(Vec<u32>, Vec<u32>, Vec<u8>)> {
    let heads = [6, 3, 13, 4, 3, 3, 4, 5];
    let mut played = Vec::new();
    for _ in 0..steps {
        let mut actions = Vec::new();
        for legal in row.legal.chunks(heads.iter().sum()) {
            let mut at = 0;
            for size in heads {
                let open: Vec<i32> = (0..size).filter(|i| legal[at + i] == 1).map(|i| i as i32).collect();
                actions.push(open[rng.below(open.len() as u32) as usize]);
                at += size;
            }
        }
        envs.step(Actions::I32(&actions), row.row());
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        played.push((bits(&row.obs), bits(&row.reward), row.legal.clone()));
    }
    played
}

#[test]
fn episodes_go_on_exactly_after_save_and_load() {
    text();
    let build = || find("growth").unwrap().build(SETTINGS, &Options { num_envs: 2, ..Options::new(2) }).unwrap();
    let mut envs = build();
    let mut row = RowBuf::new(envs.spec(), 2);
    envs.reset(Seeds::One(3), None, row.row());
    let mut rng = HostRng::new(1, 0, 0, 0);
    rows(envs.as_mut(), &mut row, &mut rng, 8);
    let (saved, at, drawn) = (envs.save(), row.clone(), rng);
    let rest = rows(envs.as_mut(), &mut row, &mut rng, 7);
    let mut other = build();
    other.reset(Seeds::One(9), None, RowBuf::new(envs.spec(), 2).row());
    other.load(&saved).unwrap();
    (row, rng) = (at, drawn);
    assert!(rows(other.as_mut(), &mut row, &mut rng, 7) == rest, "a saved episode goes on exactly");
    // Text of the same length with one letter changed has another checksum.
    let bytes = text();
    let key = Key { train: 64, validation: 32, ..KEY };
    let mut changed = bytes.to_vec();
    changed[7] ^= 1;
    let digest = |bytes: &[u8]| Task::of_text(bytes, key).unwrap().digest;
    assert!(digest(bytes) != 0 && digest(bytes) == digest(bytes) && digest(bytes) != digest(&changed));
}

#[test]
fn only_what_fits_is_offered_and_the_heuristic_grows_it() {
    let mut env = env(&[("epochs", 30.0)]);
    let mut legal = vec![0; 6 + 3 + 13 + 4 + 3 + 3 + 4 + 5];
    env.legal(&mut legal);
    let offered: Vec<&str> = (0..13).filter(|i| legal[9 + i] == 1).map(|i| Blueprint::ALL[i].1).collect();
    assert_eq!(offered, ["se_attention", "norm", "lora_8", "lora_32", "mlp_small", "mlp", "flex_attention"]);
    let convolution = Choice { op: Op::Germinate as usize, blueprint: 1, ..Choice::default() };
    env.choose(&convolution);
    assert!(!env.episode().unwrap().state.last.1, "a convolution does not fit: a wait");
    let mut heuristic = Heuristic::new(3);
    let mut grown = Vec::new();
    loop {
        let choice = heuristic.choose(env.episode().unwrap());
        let (_, done) = env.choose(&choice);
        let state = &env.episode().unwrap().state;
        assert!(choice.op == 0 || state.last.1, "the heuristic chooses only what is allowed: {choice:?}");
        grown.extend(state.happened.iter().filter_map(|happened| match happened {
            Happened::Stage { blueprint, .. } => *blueprint,
            _ => None,
        }));
        if done {
            break;
        }
    }
    assert!(grown.contains(&Blueprint::Mlp.index()) || env.episode().unwrap().accuracy() > 60.0, "{grown:?}");
}
