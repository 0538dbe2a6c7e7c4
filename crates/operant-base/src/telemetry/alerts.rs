//! Rules over metric samples that tell a run that goes wrong: each fires once per occurrence and clears with hysteresis,
//! so that a number that trembles at a limit does not fill the log. Nothing here stops a run.
//!
//! Invariant: a rule that fired does not fire again before it cleared; what is not known (NaN) changes no rule's state.

use super::Metric;
use std::fmt::Write as _;

/// Mean returns near 0 say little about the size of values.
const RETURN_FLOOR: f64 = 10.0;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A metric is infinite, or a loss that was a number is none.
    NonFinite,
    /// The policy hardly explores any more.
    EntropyCollapse,
    /// An update moved the policy much too far.
    KlBlowUp,
    /// Values are far outside what returns allow.
    ValueDivergence,
    /// The return has not improved for long.
    ReturnPlateau,
    /// An update would have moved most choices too far, and was cut off.
    ClipBlowUp,
    /// Values that told returns apart no longer do.
    ValueCollapse,
    /// Gradients are much larger than they were.
    GradientBlowUp,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 8] = [
        Self::NonFinite,
        Self::EntropyCollapse,
        Self::KlBlowUp,
        Self::ValueDivergence,
        Self::ReturnPlateau,
        Self::ClipBlowUp,
        Self::ValueCollapse,
        Self::GradientBlowUp,
    ];

    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::NonFinite => "non_finite",
            Self::EntropyCollapse => "entropy_collapse",
            Self::KlBlowUp => "kl_blow_up",
            Self::ValueDivergence => "value_divergence",
            Self::ReturnPlateau => "return_plateau",
            Self::ClipBlowUp => "clip_blow_up",
            Self::ValueCollapse => "value_collapse",
            Self::GradientBlowUp => "gradient_blow_up",
        }
    }

    /// The rule of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// A level to fire at and one, further in, to clear at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Beyond this the rule fires.
    pub fire: f64,
    /// Back within this it clears.
    pub clear: f64,
}

/// Limits of the rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Entropy below which exploration has collapsed, in nats.
    pub entropy: Level,
    /// `approx_kl` above which an update went too far, in nats. PPO aims at 0.01 to 0.05.
    pub kl: Level,
    /// How many times the largest return (or 10, if that is more) a value may be.
    pub value: Level,
    /// Share of choices that an update may cut off.
    pub clip: Level,
    /// Explained variance below which values have collapsed (it dips by itself where all returns are alike), once it was above [`Rules::explained`].
    pub unexplained: Level,
    /// Explained variance that values which tell returns apart have reached.
    pub explained: f64,
    /// How many times its running mean a gradient's length may be.
    pub gradient: Level,
    /// Samples without a better return before a plateau is called.
    pub plateau_samples: u64,
    /// Share of all steps so far that passed without a better return.
    pub plateau_share: f64,
    /// A better return is better by this share of the best one.
    pub plateau_gain: f64,
    /// A best return of at least this is no plateau: the env is solved.
    pub goal: Option<f64>,
}

impl Default for Rules {
    /// No rule for entropy, whose scale depends on the actions.
    fn default() -> Self {
        Self {
            entropy: Level { fire: f64::NEG_INFINITY, clear: f64::NEG_INFINITY },
            kl: Level { fire: 0.2, clear: 0.1 },
            value: Level { fire: 10.0, clear: 5.0 },
            clip: Level { fire: 0.6, clear: 0.4 },
            unexplained: Level { fire: -20.0, clear: 0.0 },
            explained: 0.3,
            gradient: Level { fire: 100.0, clear: 10.0 },
            plateau_samples: 500,
            plateau_share: 0.5,
            plateau_gain: 0.01,
            goal: None,
        }
    }
}

impl Rules {
    /// For discrete actions with these numbers of choices: 2 % of the entropy of a uniform choice.
    pub fn for_choices(choices: &[usize]) -> Self {
        let uniform: f64 = choices.iter().map(|&n| (n as f64).ln()).sum();
        Self { entropy: Level { fire: 0.02 * uniform, clear: 0.04 * uniform }, ..Self::default() }
    }

    /// For `count` real actions with Gaussian noise: a standard deviation of 0.007, and 0.011 to clear
    /// (entropy 1.42 + ln σ each).
    pub fn for_reals(count: usize) -> Self {
        let count = count as f64;
        Self { entropy: Level { fire: -3.6 * count, clear: -3.1 * count }, ..Self::default() }
    }
}

/// A rule that began or ceased to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Which rule.
    pub rule: Rule,
    /// True if it fired, false if it cleared.
    pub fired: bool,
    /// What was seen and what to try.
    pub text: String,
}

/// The rules with what they remember of a run.
#[derive(Clone, Debug)]
pub struct Alerts {
    rules: Rules,
    names: Vec<&'static str>,
    entropy: Option<usize>,
    kl: Option<usize>,
    value_min: Option<usize>,
    value_max: Option<usize>,
    mean_return: Option<usize>,
    clipped: Option<usize>,
    explained: Option<usize>,
    gradient: Option<usize>,
    firing: [bool; Rule::ALL.len()],
    /// Losses that were a number once.
    known_loss: Vec<bool>,
    /// Largest absolute return seen, once there was one.
    largest_return: Option<f64>,
    /// Best return, its step, and samples since then.
    best: Option<(f64, u64, u64)>,
    /// Whether values told returns apart once.
    told_apart: bool,
    /// Running mean of gradients' lengths, and samples that it is of.
    lengths: (f64, u32),
}

/// Samples before a running mean says something, and the weight of each new one.
const LENGTHS: (u32, f64) = (10, 0.05);

impl Alerts {
    /// Rules for samples of these metrics; rules whose metrics are not there never fire.
    pub fn new(metrics: &[Metric], rules: Rules) -> Self {
        let find = |name: &str| metrics.iter().position(|metric| metric.name == name);
        Self {
            rules,
            names: metrics.iter().map(|metric| metric.name).collect(),
            entropy: find("entropy"),
            kl: find("approx_kl"),
            value_min: find("value/min"),
            value_max: find("value/max"),
            mean_return: find("return"),
            clipped: find("clip_fraction"),
            explained: find("explained_variance"),
            gradient: find("grad_norm"),
            firing: [false; Rule::ALL.len()],
            known_loss: vec![false; metrics.len()],
            largest_return: None,
            best: None,
            told_apart: false,
            lengths: (0.0, 0),
        }
    }

    /// Looks at one sample, `values` in the order of the metrics. The list is empty, and not allocated, unless a rule
    /// changed its state.
    pub fn sample(&mut self, step: u64, values: &[f64]) -> Vec<Alert> {
        let mut alerts = Vec::new();
        self.non_finite(values, &mut alerts);
        let known = |index: Option<usize>| index.map(|i| values[i]).filter(|value| value.is_finite());
        if let Some(entropy) = known(self.entropy) {
            let Level { fire, clear } = self.rules.entropy;
            self.turn(Rule::EntropyCollapse, entropy < fire, entropy > clear, &mut alerts, |fired| {
                let next = if fired { "; raise the entropy bonus or lower the learning rate" } else { "" };
                format!("entropy is {entropy:.4} nats, limit {fire:.4}{next}")
            });
        }
        if let Some(kl) = known(self.kl) {
            let Level { fire, clear } = self.rules.kl;
            self.turn(Rule::KlBlowUp, kl > fire, kl < clear, &mut alerts, |fired| {
                let next = if fired { "; lower the learning rate or set a target for it" } else { "" };
                format!("approx_kl is {kl:.4}, limit {fire}{next}")
            });
        }
        if let Some(mean_return) = known(self.mean_return) {
            let largest = self.largest_return.map_or(0.0, |largest| largest.max(mean_return.abs()));
            self.largest_return = Some(largest.max(mean_return.abs()));
            self.plateau(step, mean_return, &mut alerts);
        }
        let values = [known(self.value_min), known(self.value_max)];
        if let (Some(largest), Some(value)) =
            (self.largest_return, values.into_iter().flatten().map(f64::abs).reduce(f64::max))
        {
            let Level { fire, clear } = self.rules.value;
            let scale = largest.max(RETURN_FLOOR);
            self.turn(Rule::ValueDivergence, value > fire * scale, value < clear * scale, &mut alerts, |fired| {
                let next = if fired { "; lower the learning rate or normalise rewards" } else { "" };
                format!("a value of size {value:.4e} where returns reach {largest:.4}{next}")
            });
        }
        if let Some(clipped) = known(self.clipped) {
            let Level { fire, clear } = self.rules.clip;
            self.turn(Rule::ClipBlowUp, clipped > fire, clipped < clear, &mut alerts, |fired| {
                let next = if fired { "; lower the learning rate or take fewer epochs" } else { "" };
                format!("clip_fraction is {clipped:.3}, limit {fire}{next}")
            });
        }
        if let Some(explained) = known(self.explained) {
            let Level { fire, clear } = self.rules.unexplained;
            self.told_apart |= explained > self.rules.explained;
            let lost = self.told_apart && explained < fire;
            self.turn(Rule::ValueCollapse, lost, explained > clear, &mut alerts, |fired| {
                let next = if fired { "; lower the learning rate or raise the weight of values" } else { "" };
                format!("explained_variance is {explained:.3}, limit {fire}{next}")
            });
        }
        if let Some(length) = known(self.gradient) {
            self.gradients(length, &mut alerts);
        }
        alerts
    }

    fn gradients(&mut self, length: f64, alerts: &mut Vec<Alert>) {
        let Level { fire, clear } = self.rules.gradient;
        let ((mean, count), (least, weight)) = (self.lengths, LENGTHS);
        let known = count >= least && mean > 0.0;
        let (large, small) = (known && length > fire * mean, length < clear * mean);
        self.turn(Rule::GradientBlowUp, large, small, alerts, |fired| {
            let next = if fired { "; clip gradients harder or normalise observations" } else { "" };
            format!("grad_norm is {length:.3e}, its running mean {mean:.3e}{next}")
        });
        // What is out of bounds says nothing about what is usual.
        if !large {
            let weight = weight.max(1.0 / f64::from(count + 1));
            self.lengths = (mean + weight * (length - mean), count.saturating_add(1));
        }
    }

    fn non_finite(&mut self, values: &[f64], alerts: &mut Vec<Alert>) {
        let mut bad = None;
        for (i, &value) in values.iter().enumerate() {
            let loss = self.names[i].starts_with("loss/");
            if value.is_infinite() || (loss && value.is_nan() && self.known_loss[i]) {
                bad = bad.or(Some((self.names[i], value)));
            }
            self.known_loss[i] |= loss && value.is_finite();
        }
        self.turn(Rule::NonFinite, bad.is_some(), bad.is_none(), alerts, |_| match bad {
            Some((name, value)) => format!("{name} is {value}; lower the learning rate or clip gradients harder"),
            None => "all metrics are finite again".to_owned(),
        });
    }

    fn plateau(&mut self, step: u64, mean_return: f64, alerts: &mut Vec<Alert>) {
        let rules = self.rules;
        let better = self.best.is_none_or(|(best, ..)| mean_return > best + rules.plateau_gain * best.abs());
        let (best, best_step, since) = match self.best {
            Some((best, best_step, since)) if !better => (best, best_step, since + 1),
            _ => (mean_return, step, 0),
        };
        self.best = Some((best, best_step, since));
        let solved = rules.goal.is_some_and(|goal| best >= goal);
        let idle = step.saturating_sub(best_step);
        let stuck = !solved && since >= rules.plateau_samples && idle as f64 > rules.plateau_share * step as f64;
        self.turn(Rule::ReturnPlateau, stuck, better, alerts, |fired| {
            let mut text = format!("mean return {best:.2} at step {best_step}");
            if fired {
                let _ = write!(text, " is still the best after {idle} more; try another seed or more exploration");
            }
            text
        });
    }

    /// Moves a rule between firing and not; `text` is only written if it moves.
    fn turn(
        &mut self,
        rule: Rule,
        fire: bool,
        clear: bool,
        alerts: &mut Vec<Alert>,
        text: impl FnOnce(bool) -> String,
    ) {
        let firing = &mut self.firing[rule as usize];
        if (!*firing && fire) || (*firing && clear) {
            *firing = fire;
            alerts.push(Alert { rule, fired: fire, text: text(fire) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: [Metric; 9] = [
        Metric::new("return", "", ""),
        Metric::new("loss/value", "", ""),
        Metric::new("entropy", "", "nats"),
        Metric::new("approx_kl", "", "nats"),
        Metric::new("value/min", "", ""),
        Metric::new("value/max", "", ""),
        Metric::new("clip_fraction", "", ""),
        Metric::new("explained_variance", "", ""),
        Metric::new("grad_norm", "", ""),
    ];
    /// A healthy sample of a policy with two choices.
    const GOOD: [f64; 9] = [100.0, 0.5, 0.6, 0.01, -1.0, 60.0, 0.1, 0.8, 0.5];

    fn with(index: usize, value: f64) -> [f64; 9] {
        let mut values = GOOD;
        values[index] = value;
        values
    }

    /// Rules that changed over these samples, as (sample, rule, fired).
    fn changes(rules: Rules, samples: &[[f64; 9]]) -> Vec<(usize, Rule, bool)> {
        let mut alerts = Alerts::new(&METRICS, rules);
        let mut found = Vec::new();
        for (i, values) in samples.iter().enumerate() {
            found.extend(alerts.sample(i as u64 * 1000, values).into_iter().map(|a| (i, a.rule, a.fired)));
        }
        found
    }

    #[test]
    fn a_healthy_run_is_silent() {
        let mut alerts = Alerts::new(&METRICS, Rules::for_choices(&[2]));
        for i in 0..400 {
            assert_eq!(alerts.sample(i, &with(0, i as f64)), []);
        }
        assert_eq!(alerts.sample(400, &[f64::NAN; 9]).len(), 1, "a loss that is no number any more");
        let mut fresh = Alerts::new(&METRICS, Rules::for_choices(&[2]));
        assert_eq!(fresh.sample(0, &[f64::NAN; 9]), [], "not known yet");
    }

    #[test]
    fn each_level_fires_once_and_clears_with_hysteresis() {
        // ln 2 = 0.693: fires below 0.0139, clears above 0.0277.
        for (rule, index, series) in [
            (Rule::EntropyCollapse, 2, [0.6, 0.013, 0.02, 0.013, 0.03, 0.001]),
            (Rule::KlBlowUp, 3, [0.01, 0.25, 0.15, 0.25, 0.05, 0.3]),
            (Rule::ValueDivergence, 5, [60.0, 1100.0, 600.0, 1100.0, 400.0, 2e9]),
            (Rule::ValueDivergence, 4, [-60.0, -1100.0, -600.0, -1100.0, -400.0, -2e9]),
            (Rule::ClipBlowUp, 6, [0.1, 0.7, 0.5, 0.7, 0.3, 0.9]),
            (Rule::ValueCollapse, 7, [0.8, -21.0, -2.0, -21.0, 0.1, -30.0]),
            (Rule::NonFinite, 1, [0.5, f64::NAN, f64::INFINITY, f64::NAN, 0.5, f64::NEG_INFINITY]),
        ] {
            let samples = series.map(|value| with(index, value));
            let wanted = [(1, rule, true), (4, rule, false), (5, rule, true)];
            assert_eq!(changes(Rules::for_choices(&[2]), &samples), wanted, "{rule:?}");
        }
    }

    #[test]
    fn values_that_never_told_returns_apart_do_not_collapse() {
        let samples = [0.0, -30.0, -21.0, 0.2, -25.0].map(|value| with(7, value));
        assert_eq!(changes(Rules::default(), &samples), []);
    }

    #[test]
    fn gradients_are_held_to_what_they_were() {
        let rule = Rule::GradientBlowUp;
        // The first ones say what is usual, whatever their size.
        let mut samples = vec![with(8, 900.0); 1];
        samples.extend([with(8, 0.5); 60]);
        samples.extend([70_000.0, 20_000.0, 70_000.0, 0.5, 70_000.0].map(|length| with(8, length)));
        assert_eq!(changes(Rules::default(), &samples), [(61, rule, true), (64, rule, false), (65, rule, true)]);
        assert_eq!(changes(Rules::default(), &samples[..9]), []);
    }

    #[test]
    fn unknown_values_change_nothing() {
        let samples = [with(3, 0.5), with(3, f64::NAN), with(3, 0.5), with(3, 0.01)];
        assert_eq!(changes(Rules::default(), &samples), [(0, Rule::KlBlowUp, true), (3, Rule::KlBlowUp, false)]);
    }

    #[test]
    fn a_plateau_is_called_once_and_ends_with_a_better_return() {
        let rules = Rules { plateau_samples: 10, ..Rules::default() };
        let mut samples: Vec<[f64; 9]> = (0..10).map(|i| with(0, 10.0 * f64::from(i))).collect();
        samples.extend([with(0, 90.5); 30]);
        samples.push(with(0, 120.0));
        // The best came at sample 9; half of all steps passed without a better one from sample 19 on.
        assert_eq!(changes(rules, &samples), [(19, Rule::ReturnPlateau, true), (40, Rule::ReturnPlateau, false)]);
        assert_eq!(changes(Rules { goal: Some(90.0), ..rules }, &samples), []);
    }

    #[test]
    fn texts_say_what_and_what_next() {
        let mut alerts = Alerts::new(&METRICS, Rules::for_choices(&[2]));
        let found = alerts.sample(0, &with(3, 0.5));
        assert_eq!(found[0].text, "approx_kl is 0.5000, limit 0.2; lower the learning rate or set a target for it");
    }
}
