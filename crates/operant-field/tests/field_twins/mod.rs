//! Features of fields against their NumPy twins, which `golden/field.py` writes from the words of formulas.

use operant_field::features::{self, Describer, FRAME_LEN};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/field.json")).unwrap()
}

fn floats(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Fields that the twins look at too.
#[derive(Clone, Copy, PartialEq)]
enum Fields {
    Plain,
    /// Three equal frames in a row, of few values.
    Stepped,
    /// Goes along both axes and grows.
    Wave,
    /// The first of the plain ones, again and again.
    Still,
}

impl Fields {
    fn named(name: &str) -> Self {
        match name {
            "plain" => Self::Plain,
            "stepped" => Self::Stepped,
            "wave" => Self::Wave,
            "still" => Self::Still,
            other => panic!("no fields {other}"),
        }
    }

    /// `[H, W, C]` at time t.
    fn at(self, t: u32, n: usize, channels: usize) -> Vec<f32> {
        let t = match self {
            Self::Still => 0,
            Self::Stepped => t / 3,
            _ => t,
        };
        let value = |at: usize| {
            let (i, j, c) = ((at / channels / n) as u32, (at / channels % n) as u32, (at % channels) as u32);
            let h = t.wrapping_mul(73_856_093)
                ^ c.wrapping_mul(19_349_663)
                ^ i.wrapping_mul(83_492_791)
                ^ j.wrapping_mul(49_979_687);
            let h = h.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let noise = f64::from(h >> 16) / 65_536.0 - 0.5;
            let ramp = f64::from((i * 3 + j * 5 + 2 * t + 7 * c) % 32) / 16.0 - 0.75;
            match self {
                Self::Stepped => (4.0 * noise * f64::from(1 + t % 4)).floor() / 2.0,
                Self::Wave => {
                    let wave = f64::from((i + 2 * j + t + 5 * c) % 16) / 8.0 - 0.75;
                    (wave + noise) * (1.0 + f64::from(t) / 8.0)
                }
                _ => (noise + ramp) * (1.0 + f64::from(t % 7) / 8.0),
            }
        };
        (0..n * n * channels).map(|at| value(at) as f32).collect()
    }
}

fn assert_near(got: &[f64], wanted: &[f64], names: &[String]) {
    assert_eq!((got.len(), got.len()), (wanted.len(), names.len()));
    for ((got, wanted), name) in got.iter().zip(wanted).zip(names) {
        assert!((got - wanted).abs() < 1e-9 * (1.0 + wanted.abs()), "{name}: {got}, NumPy has {wanted}");
    }
}

/// Formulas as printed are the words that the twin was written from, one for each feature.
#[test]
fn formulas_are_the_words_of_their_twins() {
    let all = golden();
    assert_eq!(all["terms"][""], features::TERMS);
    let check = |family: &str, formulas: &[features::Feature]| {
        let words = all["words"][family].as_object().unwrap();
        assert_eq!(words.len(), formulas.len(), "{family}");
        for feature in formulas {
            assert_eq!(words[feature.name], feature.formula, "{family}.{}", feature.name);
        }
    };
    check("metrics", &features::METRICS);
    for family in features::FAMILIES {
        check(family.name, family.features);
        assert_eq!(all["terms"][family.name], family.terms, "{}", family.name);
    }
}

/// Rollouts with ties, of one channel, too short for some families, and one that stands still.
#[test]
fn features_are_those_of_their_twins() {
    let all = golden();
    let example = Fields::Plain.at(5, 32, 3);
    let corners: Vec<f64> = (0..16).map(|i| f64::from(example[(i / 4 * 32 + i % 4) * 3])).collect();
    assert_eq!(corners, floats(&all["corners"]));
    let names = features::names();
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    let metric_names: Vec<String> = features::METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    for case in all["rollouts"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let numbers = |key: &str| floats(&case[key]);
        let [n, channels, times, every] = ["grid", "channels", "times", "every"].map(number);
        let named = |names: &[String]| names.iter().map(|name| format!("{name} of {kind}, {times} times")).collect();
        let field = |t: usize| Fields::named(kind).at(t as u32, n, channels);
        let mut describer = Describer::new(n, channels);
        let series: Vec<[f64; 5]> = (0..times)
            .map(|t| {
                let before = (t > 0).then(|| field(t - 1));
                describer.metrics(&field(t), before.as_deref())
            })
            .collect();
        let frames: Vec<Vec<f64>> = (0..times)
            .step_by(every)
            .map(|t| {
                let mut frame = vec![0.0; FRAME_LEN];
                describer.frame(&field(t), &mut frame);
                frame
            })
            .collect();
        let named: [Vec<String>; 3] = [named(&metric_names), named(&names[..FRAME_LEN]), named(&names[FRAME_LEN..])];
        assert_near(series.last().unwrap(), &numbers("metrics"), &named[0]);
        assert_near(frames.last().unwrap(), &numbers("frame"), &named[1]);
        let (got, wanted) = (features::trajectory(&series, &frames), numbers("trajectory"));
        assert_near(&got, &wanted, &named[2][..wanted.len()]);
    }
}

/// x[i, j + 1]·x[i, j] + x[i − 2, j]/2 + 1/4 of every channel of fields `[M, n, n, C]`.
fn shifted_product(x: &[f32], n: usize, channels: usize) -> Vec<f32> {
    let at = |row: usize, i: usize, j: usize, c: usize| x[((row * n + i % n) * n + j % n) * channels + c];
    (0..x.len())
        .map(|place| {
            let (row, i, j, c) =
                (place / channels / n / n, place / channels / n % n, place / channels % n, place % channels);
            at(row, i, j + 1, c) * at(row, i, j, c) + 0.5 * at(row, i + n - 2, j, c) + 0.25
        })
        .collect()
}

/// All but what the engine's normal numbers decide.
#[test]
fn sensitivity_is_that_of_its_twin() {
    let x = Fields::Plain.at(0, 16, 2);
    let mut apply = |x: &[f32]| shifted_product(x, 16, 2);
    let got = features::sensitivity(&mut apply, &x, 16, 2, 4).remove(0);
    let all = golden();
    let wanted = all["sensitivity"].as_array().unwrap();
    assert_eq!(got.len(), wanted.len());
    let known = got.iter().zip(wanted).enumerate().filter_map(|(i, (got, wanted))| Some((i, got, wanted.as_f64()?)));
    let mut seen = 0;
    for (i, got, wanted) in known {
        // Single precision, of which differences of a hundredth are taken.
        assert!((got - wanted).abs() < 1e-4 * (1.0 + wanted.abs()), "feature {i}: {got}, NumPy has {wanted}");
        seen += 1;
    }
    assert_eq!(seen, 8);
}
