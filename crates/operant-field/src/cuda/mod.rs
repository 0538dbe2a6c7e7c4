//! Operators on a Hopper GPU: the same description, weights, keys and noise as on the CPU, as a recorded sequence of kernels.
//!
//! Convolutions are implicit matrix products (`convolve.cu`); norm, activation, dropout and noise are one pass between them
//! (`finish.cu`), the last of which makes the step; the first convolution may have its norm beforehand and no such pass (`first.cu`).
//! Instance norms of results in two bytes are made by that pass, of sums that convolutions add to (`Norms` in `wide.cu`).
//! Operators of one shape and their realisations are one batch.
//! Invariant: a row's bits depend on that row alone, as on the CPU; across devices results agree within the precision's rounding.

mod first;
mod kernels;
mod layout;

use super::operator::{Operator, Update};
use super::rollout::After;
use kernels::{CorrelateArgs, Kernels, LastArgs, NormaliseArgs, Step};
use layout::Build;
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Event, Gpu, Graph};
use operant_nn::Precision;
use operant_nn::ops::{KeyedNoise, MOST_MIXED, NoiseLaw};
use std::ops::Range;
use std::sync::Arc;

pub use kernels::source;

/// An operator of a batch, and what its rollout depends on.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its shape and numbers.
    pub operator: &'a Operator,
    /// How it makes the next field.
    pub update: Update,
    /// Of weights and noise.
    pub seed: u64,
    /// The first field, `[H, W, C]`.
    pub first: &'a [f32],
}

/// Operators of one shape at work on a GPU; row op·M + m is realisation m of operator op.
#[derive(Debug)]
pub struct CudaRollout {
    gpu: Arc<Gpu>,
    step: Graph,
    apply: Graph,
    state: Buffer<f32>,
    probe: Buffer<f32>,
    output: Buffer<f32>,
    trace: Buffer<f32>,
    clock: Buffer<u32>,
    trace_slots: u32,
    rows: usize,
    field_len: usize,
    flops: u64,
    t: u32,
    /// What a step launches.
    kernels: Kernels,
    list: Vec<Step>,
    /// Where that reads and writes.
    _kept: Vec<Box<dyn std::any::Any + Send>>,
}

/// Numbers of the widest layer that kernels have room for.
const MOST_CHANNELS: usize = 512;
/// Channels of an unfolded field.
const MOST_UNFOLDED: usize = 1024;

/// Whether operators can be of one batch: they differ in numbers that every member has of its own.
pub fn one_shape(a: &Operator, b: &Operator) -> bool {
    let (dropout, noise_scale, schedule) = (b.dropout, b.noise_scale, b.schedule);
    Operator { dropout, noise_scale, schedule, ..a.clone() } == *b
}

/// Why an operator cannot run on any GPU, if so.
pub fn refused(operator: &Operator) -> Option<String> {
    operator.afno.map(|_| "operator \"uafno\" has no kernels for a GPU".to_owned())
}

/// Why an operator cannot run on this GPU, if so.
pub fn unserved(gpu: &Gpu, operator: &Operator) -> Option<String> {
    if let Some(why) = refused(operator) {
        return Some(why);
    }
    if operator.noise == NoiseLaw::Gaussian && operator.channels > MOST_MIXED {
        let got = operator.channels;
        return Some(format!("Gaussian noise of a field of {got} channels: kernels are for at most {MOST_MIXED}"));
    }
    let info = gpu.info();
    let widest = (0..operator.layers).map(|i| operator.width(i)).max().unwrap_or(0).max(operator.base_channels);
    let unfolded = 2 * operator.kernel.pow(2) * operator.channels;
    if info.capability != (9, 0) {
        return Some(format!("{} has no warpgroup products (compute capability 9.0)", info.name));
    }
    if widest > MOST_CHANNELS || unfolded > MOST_UNFOLDED || operator.grid < 16 || operator.kernel > 9 {
        return Some(format!(
            "layers of {widest} channels, kernels of {} and a grid of {}: kernels are for at most {MOST_CHANNELS}, 9, and 16 or more",
            operator.kernel, operator.grid
        ));
    }
    None
}

impl CudaRollout {
    /// Realisations of operators of one shape for `steps` steps. `trace_slots` states are kept for [`Self::trace`].
    pub fn new(
        gpu: &Arc<Gpu>,
        members: &[Member<'_>],
        after: After,
        realisations: Range<u32>,
        steps: u32,
        precision: Precision,
        trace_slots: u32,
    ) -> Result<Self> {
        Self::build(gpu, members, after, realisations, steps, (precision, false), trace_slots)
    }

    /// The same in f32 for [`Self::apply`], but with weights rounded to tf32, as two products instead of three: differences
    /// between applications are as exact, those of an operator that differs by a thousandth.
    pub fn with_rounded_weights(
        gpu: &Arc<Gpu>,
        members: &[Member<'_>],
        after: After,
        realisations: Range<u32>,
        steps: u32,
    ) -> Result<Self> {
        Self::build(gpu, members, after, realisations, steps, (Precision::F32, true), 0)
    }

    fn build(
        gpu: &Arc<Gpu>,
        members: &[Member<'_>],
        after: After,
        realisations: Range<u32>,
        steps: u32,
        (precision, rounded): (Precision, bool),
        trace_slots: u32,
    ) -> Result<Self> {
        let Some(Member { operator, .. }) = members.first().copied() else {
            return Err(Error::Invalid("wanted at least one operator".into()));
        };
        if !members.iter().all(|member| one_shape(member.operator, operator)) {
            return Err(Error::Invalid("operators of a batch: wanted one shape".into()));
        }
        if let Some(why) = unserved(gpu, operator) {
            return Err(Error::Device(why));
        }
        let rows = members.len() * realisations.len();
        let (field_len, channels, grid) = (operator.field_len(), operator.channels, operator.grid);
        let buffer = |len: usize, what: &str| Buffer::<f32>::new(gpu, len, what, "--realisations");
        let (state, probe, output) = (
            buffer(rows * field_len, "fields")?,
            buffer(rows * field_len, "fields")?,
            buffer(rows * field_len, "fields")?,
        );
        let trace = buffer(trace_slots as usize * rows * field_len, "fields of several steps")?;
        let clock = Buffer::<u32>::new(gpu, 1, "the clock", "--realisations")?;
        let keys: Vec<u32> = members
            .iter()
            .flat_map(|member| realisations.clone().map(|m| [member.seed as u32, (member.seed >> 32) as u32, m, 0]))
            .flatten()
            .collect();
        let mut build = Build::new(gpu, members, realisations.len(), (precision, rounded), clock.pointer(), &keys)?;

        let (mut list, last, norms) = build.layers(state.pointer())?;

        let noise = KeyedNoise::new(operator.noise, build.drawing() + 1, [grid; 2], operator.correlation * grid as f32);
        let noisy = if operator.noise_is_behind() { channels as u32 } else { last.channels };
        let correlated = build.correlated(&noise, noisy, &mut list)?;
        let scales: Vec<f32> = members.iter().flat_map(|member| scales(member.operator, steps)).collect();
        let updates: Vec<f32> =
            members.iter().flat_map(|member| <[f32; 2]>::from(member.update.coefficients())).collect();
        let [weight, by_lane, bias, factor] = build.output(last.padded)?;
        let finish = last;
        let trace_at = if trace_slots > 0 { trace.pointer() } else { DevicePtr::NONE };
        let none = DevicePtr::NONE;
        let mut closing = LastArgs {
            f: finish,
            weight,
            by_lane,
            bias,
            scales: build.upload(&scales)?,
            factor,
            correlated,
            update: build.upload(&updates)?,
            state: state.pointer(),
            output: none,
            trace: if after.normalise { none } else { trace_at },
            state_len: (rows * field_len) as u64,
            clamp: if after.normalise { 0.0 } else { after.clamp },
            field_channels: channels as u32,
            law: NoiseLaw::ALL.iter().position(|law| *law == operator.noise).unwrap_or(0) as u32,
            noise_layer: build.drawing() + 1,
            steps,
            lanes: finish.octets.next_power_of_two().clamp(4, 32),
            trace_slots: trace_slots.max(1),
            unused: 0,
        };
        let kernels = Kernels::load(gpu, precision, last.channels as usize, (grid, channels))?;
        list.push(build.last_step(closing, norms)?);
        if after.normalise {
            let args = NormaliseArgs {
                state: state.pointer(),
                trace: trace_at,
                clock: clock.pointer(),
                state_len: (rows * field_len) as u64,
                side: grid as u32,
                field_channels: channels as u32,
                clamp: after.clamp,
                trace_slots: trace_slots.max(1),
            };
            list.push(Step::Normalise(args, (rows * channels) as u32));
        }
        gpu.synchronize()?;
        let step = Graph::record(gpu, || kernels.launch_all(&list))?;
        let whole = list.clone();
        list.retain(|step| !matches!(step, Step::Normalise(..) | Step::Last(..) | Step::LastWide(..)));
        match &mut list[0] {
            Step::Unfold(args) => args.state = probe.pointer(),
            Step::Stem(args) => args.state = probe.pointer(),
            Step::Survey(args, _) => args.state = probe.pointer(),
            _ => {}
        }
        closing.output = output.pointer();
        list.push(build.last_step(closing, norms)?);
        let apply = Graph::record(gpu, || kernels.launch_all(&list))?;
        let flops = operator.flops();
        let first: Vec<f32> = members.iter().flat_map(|member| member.first.repeat(realisations.len())).collect();
        let mut rollout = Self {
            gpu: gpu.clone(),
            step,
            apply,
            state,
            probe,
            output,
            trace,
            clock,
            trace_slots,
            rows,
            field_len,
            flops,
            t: 0,
            kernels,
            list: whole,
            _kept: build.into_kept(),
        };
        rollout.reset(&first, 0)?;
        Ok(rollout)
    }

    /// Begins again from these fields `[rows, H, W, C]`, at time t.
    pub fn reset(&mut self, fields: &[f32], t: u32) -> Result<()> {
        assert_eq!(fields.len(), self.rows * self.field_len, "fields of all rows");
        self.state.upload(fields)?;
        self.t = t;
        self.set_clock()
    }

    /// A step's first kernel moves the clock.
    fn set_clock(&self) -> Result<()> {
        self.clock.upload(&[self.t.wrapping_sub(1)])
    }

    /// Rows: operators times realisations.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Steps made.
    pub fn time(&self) -> u32 {
        self.t
    }

    /// Products and sums of one realisation's step.
    pub fn flops(&self) -> u64 {
        self.flops
    }

    /// Starts a step of all rows, and does not wait for it.
    pub fn step(&mut self) -> Result<()> {
        self.t += 1;
        self.step.launch()
    }

    /// Seconds of each launch of a step, by name: the mean of ten, one after the other. Fields move on, by norms of ten times the sums
    /// where kernels add to them: until [`Self::reset`] they are no rollout's.
    pub fn profile(&mut self) -> Result<Vec<(String, f64)>> {
        const TIMES: u32 = 10;
        let (before, after) = (Event::new(&self.gpu)?, Event::new(&self.gpu)?);
        let mut found: Vec<(String, f64)> = Vec::new();
        for step in &self.list {
            before.record()?;
            for _ in 0..TIMES {
                self.kernels.launch(step, false)?;
            }
            after.record()?;
            found.push((step.name(), after.seconds_since(&before)? / f64::from(TIMES)));
        }
        self.set_clock()?;
        Ok(found)
    }

    /// Waits for all steps.
    pub fn wait(&self) -> Result<()> {
        self.gpu.synchronize()
    }

    /// Fields as they are now, `[rows, H, W, C]`.
    pub fn state(&self) -> Result<Vec<f32>> {
        let mut fields = vec![0.0; self.rows * self.field_len];
        self.state.download(0, &mut fields)?;
        Ok(fields)
    }

    /// Fields after each of the last `count` steps, `[count, rows, H, W, C]`; at most as many as are kept.
    pub fn trace(&self, count: u32, to: &mut Vec<f32>) -> Result<()> {
        assert!(count <= self.trace_slots.min(self.t), "{count} steps of {} kept", self.trace_slots);
        let len = self.rows * self.field_len;
        to.resize(count as usize * len, 0.0);
        let first = (self.t - count) % self.trace_slots.max(1);
        if first + count <= self.trace_slots {
            return self.trace.download(first as usize * len, to);
        }
        for (t, to) in (self.t - count..self.t).zip(to.chunks_exact_mut(len)) {
            // The clock shows the time at which a step began.
            self.trace.download((t % self.trace_slots) as usize * len, to)?;
        }
        Ok(())
    }

    /// O(x) of fields `[rows, H, W, C]` at the present time, without a step.
    pub fn apply(&mut self, fields: &[f32]) -> Result<Vec<f32>> {
        self.probe.upload(fields)?;
        self.apply.launch()?;
        let mut output = vec![0.0; fields.len()];
        self.output.download(0, &mut output)?;
        self.set_clock()?;
        Ok(output)
    }
}

/// Of every time: the noise's scale, or dropout's threshold and growth.
fn scales(operator: &Operator, steps: u32) -> Vec<f32> {
    let at = |t: u32| {
        let scale = operator.schedule.scale(operator.noise_scale, t, steps);
        if operator.noise == NoiseLaw::Drop { NoiseLaw::dropping(scale) } else { [scale, 0.0] }
    };
    (0..=steps).flat_map(at).collect()
}

impl Build<'_> {
    /// Steps that make correlated noise `[rows, H, W, channels]`, and where it lies.
    fn correlated(&mut self, noise: &KeyedNoise, channels: u32, list: &mut Vec<Step>) -> Result<DevicePtr> {
        let Some(modes) = noise.modes() else { return Ok(DevicePtr::NONE) };
        let (side, rows) = (self.operator().grid, self.rows());
        let counts = [modes[0].len() / side, modes[1].len() / side];
        let c = channels as usize;
        let [drawn, across, noise] = [counts[0] * counts[1] * c, side * counts[1] * c, side * side * c];
        let [drawn, across, whole] = [self.room(rows * drawn)?, self.room(rows * across)?, self.room(rows * noise)?];
        let base = CorrelateArgs {
            modes: self.upload(&modes[0])?,
            from: DevicePtr::NONE,
            to: drawn,
            keys: self.keys(),
            clock: self.clock(),
            images: rows as u32,
            side: side as u32,
            channels,
            rows: counts[0] as u32,
            columns: counts[1] as u32,
            layer: self.drawing() + 1,
        };
        list.push(Step::DrawModes(base));
        let columns = counts[1] as u32;
        let first = CorrelateArgs { from: drawn, to: across, rows: 1, columns: counts[0] as u32, ..base };
        list.push(Step::Correlate(CorrelateArgs { channels: columns * channels, ..first }));
        let modes = self.upload(&modes[1])?;
        list.push(Step::Correlate(CorrelateArgs {
            modes,
            from: across,
            to: whole,
            rows: side as u32,
            columns,
            ..base
        }));
        Ok(whole)
    }
}
