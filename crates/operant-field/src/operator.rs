//! A stochastic neural operator as a planned network: fields `[B, H, W, C]` on a periodic domain in and out.
//!
//! A convolution to `base_channels`, hidden layers of base·2^min(i, 2) channels, a stochastic block, a 1×1 convolution back (Gaussian
//! noise is drawn behind that one, with the law that it makes of it).
//! Up to three hidden layers are convolution → norm → activation → dropout; more are residual blocks of two such
//! convolutions. `uafno.rs` has another kind. Invariant: a row's result depends on that row and its keys alone, whichever rows lie beside it.

use super::uafno::Afno;
use operant_base::{Error, Result};
use operant_nn::ops::{Conv2d, KEY_WORDS, KeyedNoise, MOST_MIXED, NoiseLaw, NormOptions};
use operant_nn::{Act, Feed, Graph, Node, Options, Params, Plan};

/// How a layer is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Every channel of a field by itself.
    Instance,
    /// Every channel by statistics of the operator's first field, which then stay: a field's result must not depend on
    /// the fields beside it, as it would with statistics of the batch.
    Batch,
    /// Eight groups of channels, or as many as divide them.
    Group,
    /// All channels together.
    Layer,
    /// Not at all.
    None,
}

impl Norm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Instance, Self::Batch, Self::Group, Self::Layer, Self::None];

    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Batch => "batch",
            Self::Group => "group",
            Self::Layer => "layer",
            Self::None => "none",
        }
    }
}

/// The scale of noise over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// s.
    Constant,
    /// s(1 − t/T).
    Annealing,
    /// s(1 + ½ sin 2πt/100).
    Periodic,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Constant, Self::Annealing, Self::Periodic];

    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Annealing => "annealing",
            Self::Periodic => "periodic",
        }
    }

    /// Scale at step t of T.
    pub fn scale(self, s: f32, t: u32, steps: u32) -> f32 {
        match self {
            Self::Constant => s,
            Self::Annealing => s * (1.0 - t as f32 / steps.max(1) as f32),
            Self::Periodic => s * (1.0 + 0.5 * (std::f32::consts::TAU * t as f32 / 100.0).sin()),
        }
    }
}

/// How an operator makes the next field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// O(x).
    Autoregressive,
    /// x + dt·O(x).
    Residual {
        /// Time step.
        dt: f32,
    },
    /// αx + (1 − α)·O(x).
    Convex {
        /// Share of the old field.
        alpha: f32,
    },
}

impl Update {
    /// Coefficients of x and O(x).
    pub fn coefficients(self) -> (f32, f32) {
        match self {
            Self::Autoregressive => (0.0, 1.0),
            Self::Residual { dt } => (1.0, dt),
            Self::Convex { alpha } => (alpha, 1.0 - alpha),
        }
    }
}

/// An operator's shape and numbers; its weights are a function of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// C of the field.
    pub channels: usize,
    /// H and W of the field.
    pub grid: usize,
    /// Hidden layers.
    pub layers: usize,
    /// Channels of the first one.
    pub base_channels: usize,
    /// Side of a kernel.
    pub kernel: usize,
    /// All layers have `base_channels`, and none is residual.
    pub flat: bool,
    /// After every norm.
    pub activation: Act,
    /// Probability of 0 after every layer.
    pub dropout: f32,
    /// What the stochastic block does.
    pub noise: NoiseLaw,
    /// Its scale.
    pub noise_scale: f32,
    /// Its scale over time.
    pub schedule: Schedule,
    /// Correlation length of noise as a share of the side.
    pub correlation: f32,
    /// After every convolution.
    pub norm: Norm,
    /// Levels and Fourier blocks, if it is a U-AFNO; `layers` are then those of every stage of its encoder and decoder.
    pub afno: Option<Afno>,
}

/// The graph of an operator.
#[derive(Debug)]
pub struct Network {
    /// Its inputs are fields `[B, H, W, C]`, keys `[B, 4]` and noise scales `[B, 1]`.
    pub graph: Graph,
    /// O(x).
    pub output: Node,
    /// Batch norms, in order: name and what each normalises.
    norms: Vec<(String, Node)>,
}

pub(super) struct Builder<'a> {
    pub(super) operator: &'a Operator,
    pub(super) g: Graph,
    keys: Node,
    /// Counts ops that draw.
    drawing: u32,
    norms: Vec<(String, Node)>,
}

impl Builder<'_> {
    fn convolution(&mut self, name: &str, x: Node, outputs: usize) -> Result<Node> {
        let kernel = self.operator.kernel;
        self.g.conv2d(name, x, Conv2d::new(outputs, kernel).circular(kernel / 2))
    }

    pub(super) fn norm(&mut self, name: &str, x: Node, channels: usize) -> Result<Node> {
        let name = format!("{name}.norm");
        match self.operator.norm {
            Norm::Instance => self.g.instance_norm(&name, x, NormOptions::default()),
            Norm::Layer => self.g.group_norm(&name, x, 1, NormOptions::default()),
            Norm::Group => self.g.group_norm(&name, x, self.operator.norm_groups(channels), NormOptions::default()),
            Norm::Batch => {
                self.norms.push((name.clone(), x));
                self.g.batch_norm(&name, x)
            }
            Norm::None => Ok(x),
        }
    }

    pub(super) fn drop(&mut self, x: Node) -> Result<Node> {
        self.drawing += 1;
        let p = self.operator.dropout;
        if p > 0.0 { self.g.keyed_dropout(x, self.keys, p, self.drawing) } else { Ok(x) }
    }

    /// Convolution → norm → activation → dropout.
    pub(super) fn layer(&mut self, name: &str, x: Node, channels: usize) -> Result<Node> {
        let h = self.convolution(name, x, channels)?;
        let h = self.norm(name, h, channels)?;
        let h = self.g.activation(h, self.operator.activation)?;
        self.drop(h)
    }

    /// From a field to the channels of the last hidden layer.
    fn layers(&mut self, x: Node) -> Result<Node> {
        let operator = self.operator;
        let mut h = self.layer("stem", x, operator.base_channels)?;
        let mut from = operator.base_channels;
        for i in 0..operator.layers {
            let (name, to) = (format!("layers.{i}"), operator.width(i));
            h = if operator.is_residual() { self.residual(&name, h, from, to)? } else { self.layer(&name, h, to)? };
            from = to;
        }
        Ok(h)
    }

    /// Two convolutions beside a way past them.
    fn residual(&mut self, name: &str, x: Node, from: usize, to: usize) -> Result<Node> {
        let h = self.layer(&format!("{name}.0"), x, to)?;
        let second = format!("{name}.1");
        let h = self.convolution(&second, h, to)?;
        let h = self.norm(&second, h, to)?;
        let past = if from == to { x } else { self.g.conv2d(&format!("{name}.past"), x, Conv2d::new(to, 1))? };
        let h = self.g.add(h, past)?;
        let h = self.g.activation(h, self.operator.activation)?;
        self.drop(h)
    }
}

impl Operator {
    /// Layers from which on they are residual blocks.
    const MOST_PLAIN_LAYERS: usize = 3;

    fn check(&self) -> Result<()> {
        let fail = |what: String| Err(Error::Invalid(format!("field operator: {what}")));
        if !(self.grid.is_power_of_two() && (8..=1024).contains(&self.grid)) {
            return fail(format!("grid {}: wanted a power of two, 8 to 1024", self.grid));
        }
        if self.kernel.is_multiple_of(2) || self.kernel > self.grid {
            return fail(format!("kernel {}: wanted an odd number up to the grid's side", self.kernel));
        }
        if self.channels == 0 || self.layers == 0 || self.base_channels == 0 {
            return fail("wanted at least one channel and one layer".into());
        }
        if let Some(afno) = self.afno {
            afno.check(self.grid, self.kernel).or_else(|why| fail(format!("U-AFNO: {why}")))?;
        }
        if !(0.0..1.0).contains(&self.dropout)
            || !(0.0..f32::INFINITY).contains(&self.noise_scale)
            || !(0.0..=1.0).contains(&self.correlation)
        {
            return fail(
                "wanted a dropout of 0 to below 1, a noise scale of 0 or more, a correlation of 0 to 1".into(),
            );
        }
        Ok(())
    }

    /// Groups of so many channels for [`Norm::Group`].
    pub fn norm_groups(&self, channels: usize) -> usize {
        (1..=8).rev().find(|groups| channels.is_multiple_of(*groups)).unwrap_or(1)
    }

    /// Numbers of a field.
    pub fn field_len(&self) -> usize {
        self.grid * self.grid * self.channels
    }

    /// Channels of hidden layer i.
    pub fn width(&self, i: usize) -> usize {
        if self.flat { self.base_channels } else { self.base_channels << i.min(2) }
    }

    /// Whether hidden layers are residual blocks.
    pub fn is_residual(&self) -> bool {
        !self.flat && self.afno.is_none() && self.layers > Self::MOST_PLAIN_LAYERS
    }

    /// Whether noise is drawn behind the 1×1 convolution that follows it: Gaussian noise has the same law there, in fewer channels.
    pub fn noise_is_behind(&self) -> bool {
        self.noise == NoiseLaw::Gaussian && self.channels <= MOST_MIXED
    }

    /// Products and sums of one application's convolutions and correlated noise; as the plan counts them.
    pub fn flops(&self) -> u64 {
        let pixels = (self.grid * self.grid) as u64;
        let taps = (self.kernel * self.kernel) as u64;
        let product = |from: usize, to: usize, taps: u64| 2 * pixels * from as u64 * to as u64 * taps;
        let (mut sum, mut from) = (product(self.channels, self.base_channels, taps), self.base_channels);
        let layers = if self.afno.is_some() { 0 } else { self.layers };
        for i in 0..layers {
            let to = self.width(i);
            sum += product(from, to, taps);
            if self.is_residual() {
                sum += product(to, to, taps) + if from == to { 0 } else { product(from, to, 1) };
            }
            from = to;
        }
        if let Some(afno) = self.afno {
            sum = self.uafno_flops(afno);
        }
        let length = self.correlation * self.grid as f32;
        let noise = KeyedNoise::new(self.noise, 0, [self.grid; 2], length);
        let noisy = if self.noise_is_behind() { self.channels } else { from };
        sum + product(from, self.channels, 1) + noise.products([self.grid, self.grid, noisy])
    }

    /// The graph.
    pub fn network(&self) -> Result<Network> {
        self.check()?;
        let mut g = Graph::new();
        let x = g.input("field", [self.grid, self.grid, self.channels]);
        let keys = g.input_ints("keys", [KEY_WORDS]);
        let scale = g.input("scale", [1]);
        let mut b = Builder { operator: self, g, keys, drawing: 0, norms: Vec::new() };
        let h = match self.afno {
            Some(afno) => b.uafno(x, afno)?,
            None => b.layers(x)?,
        };
        let side = [self.grid, self.grid];
        let noise = KeyedNoise::new(self.noise, b.drawing + 1, side, self.correlation * self.grid as f32);
        let h = if self.noise_is_behind() { h } else { b.g.keyed_noise(h, keys, scale, noise.clone())? };
        let mut output = b.g.conv2d("output", h, Conv2d::new(self.channels, 1))?;
        if self.noise_is_behind() {
            let weight = b.g.find_param("output.weight");
            let weight = weight.ok_or_else(|| Error::Invalid("an operator without output.weight".into()))?;
            output = b.g.mixed_noise(output, keys, scale, weight, noise)?;
        }
        Ok(Network { graph: b.g, output, norms: b.norms })
    }
}

impl Network {
    /// Weights of a seed; batch norms take their statistics from one field `[H, W, C]`, in f32, without noise.
    pub fn params(&self, seed: u64, first: &[f32]) -> Result<Params> {
        let mut params = self.graph.params(seed)?;
        if self.norms.is_empty() {
            return Ok(params);
        }
        let keys = [seed as i32, (seed >> 32) as i32, -1, -1];
        // Each norm changes what the next ones see.
        for (name, node) in &self.norms {
            // Only what comes before it.
            let mut plan = Plan::inference(&self.graph, &[*node], 1, &Options::default())?;
            plan.forward(&params, 1, &[Feed::Real(first), Feed::Ints(&keys), Feed::Real(&[0.0])]);
            let (values, channels) = (plan.output(*node), self.graph.shape(*node)[2]);
            let pixels = (values.len() / channels) as f64;
            let mut means = vec![0.0_f64; channels];
            for pixel in values.chunks_exact(channels) {
                means.iter_mut().zip(pixel).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            means.iter_mut().for_each(|sum| *sum /= pixels);
            let mut variances = vec![0.0_f64; channels];
            for pixel in values.chunks_exact(channels) {
                let of = means.iter().zip(pixel);
                variances.iter_mut().zip(of).for_each(|(sum, (mean, &x))| *sum += (f64::from(x) - mean).powi(2));
            }
            let means: Vec<f32> = means.iter().map(|&mean| mean as f32).collect();
            let variances: Vec<f32> = variances.iter().map(|&sum| (sum / pixels) as f32).collect();
            params.set(&format!("{name}.running_mean"), &means)?;
            params.set(&format!("{name}.running_var"), &variances)?;
        }
        Ok(params)
    }
}
