//! What PPO's kernels are compiled for, and their text.

use super::fused::{CollectArgs, EvaluateArgs, LEARN_WARPS, LearnArgs, PrepareArgs};
use super::*;
use std::fmt::Write as _;

/// Most numbers of an observation and of an action.
const MOST: usize = 7;
/// Units of the largest layers whose gradient a warp has room for, and of the largest with kernels.
const MOST_OF_A_WARP: usize = 64;
const MOST_HIDDEN: usize = 128;
/// Envs from which on a warp of `collect` takes two tiles.
const MANY_ENVS: usize = 32_768;

/// Whether products read numbers of 16 bits.
fn sixteen(precision: Precision) -> bool {
    matches!(precision, Precision::Bf16 | Precision::F16)
}

/// What the kernels are compiled for.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) obs: usize,
    pub(super) hidden: usize,
    pub(super) outputs: usize,
    pub(super) continuous: bool,
    pub(super) relu: bool,
    pub(super) tiles: usize,
    pub(super) warps: usize,
    pub(super) precision: Precision,
}

/// Kernels that are compiled by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All that comes before learning, and what tells of it.
    Collecting = 1,
    /// Learning, with all of a GPU.
    Learning = 2,
    /// Learning, with a part of a GPU.
    LearningShared = 4,
    /// All that surrounds a network which is run layer by layer.
    Wide = 3,
    /// The same where the host steps the envs.
    Hosted = 5,
}

impl Shape {
    /// The shape of a network for an env, or what of it has no kernel.
    pub(super) fn new(
        architecture: &Architecture,
        spec: &Spec,
        num_envs: usize,
        precision: Precision,
    ) -> Result<Self, String> {
        let Architecture::ActorCritic { inputs, hidden, actions, activation, continuous, memory, image } = architecture
        else {
            return Err("a network that is not an actor and a critic".into());
        };
        let &[first, second] = hidden.as_slice() else {
            return Err(format!("network.hidden = {hidden:?}: wanted two layers"));
        };
        let most = if sixteen(precision) { MOST_HIDDEN } else { MOST_OF_A_WARP };
        if first != second || !first.is_multiple_of(32) || !(32..=most).contains(&first) {
            return Err(format!(
                "network.hidden = {hidden:?}: wanted two layers of 32 or 64, or of 96 or 128 in bf16 or f16"
            ));
        }
        if !matches!(activation, Act::Tanh | Act::Relu) {
            return Err(format!("network.activation = {activation:?}: wanted tanh or relu"));
        }
        if memory.is_some() || image.is_some() {
            return Err("network.memory or an image: wanted neither".into());
        }
        if *inputs > MOST || *actions > MOST || spec.masked || (!continuous && spec.action.dims() != 1) {
            return Err(format!(
                "{inputs} numbers seen and {actions} of an action: wanted at most {MOST} of each, one choice at a time, no mask"
            ));
        }
        let many = num_envs >= MANY_ENVS;
        Ok(Self {
            obs: *inputs,
            hidden: first,
            outputs: *actions,
            continuous: *continuous,
            relu: *activation == Act::Relu,
            tiles: if many { 2 } else { 1 },
            warps: match many {
                true if first > MOST_OF_A_WARP => 8,
                true => 16,
                false => 4,
            },
            precision,
        })
    }

    /// Whether a block of `learn` has one network, whose largest gradient its warps make together.
    pub(super) fn together(&self) -> bool {
        self.hidden > MOST_OF_A_WARP
    }

    /// Bytes of `ForwardWords`.
    pub(super) fn forward_bytes(&self) -> usize {
        let tiles = self.hidden / 8;
        // W2, W3 and W1, each over whole tiles of eight columns; b2 twice and b3.
        (tiles * tiles + 2 * tiles) * 64 * self.operand_bytes() + (self.hidden * 2 + 8) * 4
    }

    /// Bytes of `NetWords`.
    pub(super) fn net_bytes(&self) -> usize {
        let tiles = self.hidden / 8;
        self.forward_bytes() + (tiles * tiles + tiles) * 64 * self.operand_bytes()
    }

    /// Bytes of a number that products read.
    fn operand_bytes(&self) -> usize {
        if sixteen(self.precision) { 2 } else { 4 }
    }

    /// Bytes that a warp of `learn` keeps of a tile in shared memory, as in `KEPT_BYTES`.
    fn kept_bytes(&self) -> usize {
        if sixteen(self.precision) { 0 } else { (3 * TILE * (self.hidden + 8) + TILE * 8) * 4 }
    }

    /// Bytes of `Samples` of sixteen.cu.
    fn samples_bytes(&self) -> usize {
        2 * TILE * self.hidden * self.operand_bytes()
    }

    /// Numbers of an action as the rollout holds them.
    pub(super) fn action_numbers(&self) -> usize {
        if self.continuous { self.outputs } else { 1 }
    }

    /// Bytes of `TileData`.
    pub(super) fn tile_bytes(&self) -> usize {
        TILE * 4 * (self.obs + self.action_numbers() + 2)
    }

    /// Groups of two parameters per lane, of one network.
    pub(super) fn groups(&self) -> usize {
        let (tiles, steps) = (self.hidden / 8, self.hidden / 16);
        let shared = self.obs + 2 + self.outputs <= 8;
        steps * tiles * 2 + steps * 2 * if shared { 1 } else { 2 } + 1
    }

    pub(super) fn collect_shared(&self) -> usize {
        2 * self.forward_bytes() + self.warps * TILE * self.tiles * (2 * self.operand_bytes() + 9) * 4
    }

    /// Bytes that `learn` lays out: weights or sums, tiles, scales, a few numbers, orders, sources of tiles, what tiles need or sums.
    pub(super) fn learn_shared(&self) -> usize {
        let sums = 2 * self.groups() * 32 * 8;
        let (first, last) = match self.together() {
            true => (self.net_bytes() + 2 * LEARN_WARPS * self.samples_bytes(), 0),
            false => ((2 * self.net_bytes()).max(sums), sums),
        };
        first
            + 2 * LEARN_WARPS * self.tile_bytes()
            + MAX_UPDATES * 16
            + LEARN_WARPS * 8 * 4
            + MAX_EPOCHS * 48
            + 2 * self.tile_bytes()
            + last.max(LEARN_WARPS * (6 * 32 * 4 + self.kept_bytes()))
    }

    /// Warps of `collect` that have envs.
    pub(super) fn collect_warps(&self, num_envs: usize) -> usize {
        num_envs.div_ceil(TILE * self.tiles)
    }

    /// The text of one part of the kernels, behind that of the env's.
    pub(super) fn source(&self, env: &str, params: &Params, settings: &Settings, part: Part) -> Result<String> {
        let mut text = format!("#define FUNCTIONS_ONLY\n{env}");
        let several = part == Part::LearningShared;
        let compiled = if several { Part::Learning } else { part };
        let numbers = [
            ("PART", compiled as usize),
            ("HID", self.hidden),
            ("OUT", self.outputs),
            ("CONTINUOUS", usize::from(self.continuous)),
            ("RELU", usize::from(self.relu)),
            ("TILES", self.tiles),
            ("WARPS", self.warps),
            ("LEARN_WARPS", LEARN_WARPS),
            ("MAX_UPDATES", MAX_UPDATES),
            ("SEVERAL_SLICES", usize::from(several)),
            ("FORWARD_BYTES", self.forward_bytes()),
            ("NET_BYTES", self.net_bytes()),
            ("TILE_BYTES", self.tile_bytes()),
            ("GROUP_COUNT", self.groups()),
            ("COLLECT_BYTES", size_of::<CollectArgs>()),
            ("EVALUATE_BYTES", size_of::<EvaluateArgs>()),
            ("LEARN_BYTES", size_of::<LearnArgs>()),
            ("PREPARE_BYTES", size_of::<PrepareArgs>()),
        ];
        for (name, value) in numbers.into_iter().chain(defines(settings)) {
            let _ = writeln!(text, "#define {name} {value}");
        }
        let offset = |name: &str| {
            let found = params.specs().iter().find(|spec| spec.name == name);
            found.map(|spec| spec.offset).ok_or_else(|| Error::Invalid(format!("a network without {name}")))
        };
        for (net, letter) in [("actor", 'A'), ("critic", 'C')] {
            for layer in 0..3 {
                for (kind, short) in [("weight", 'W'), ("bias", 'B')] {
                    let at = offset(&format!("{net}.{}.{kind}", 2 * layer))?;
                    let _ = writeln!(text, "#define {letter}{short}{} {at}", layer + 1);
                }
            }
        }
        let log_std = if self.continuous { offset("log_std")? } else { 0 };
        let _ = writeln!(text, "#define LOG_STD {log_std}");
        let sixteen = include_str!("../sixteen.cu");
        let (product, passes) = match self.precision {
            Precision::Bf16 => ([include_str!("../bf16.cu"), sixteen], 1),
            Precision::F16 => ([include_str!("../f16.cu"), sixteen], 1),
            Precision::Tf32 => (["", include_str!("../tf32.cu")], 1),
            Precision::F32 => (["", include_str!("../tf32.cu")], 3),
        };
        let _ = writeln!(text, "#define PASSES {passes}");
        text.push_str(include_str!("../normalise.cu"));
        text.push_str(include_str!("../rollout.cu"));
        text.push_str(include_str!("../network.cu"));
        product.iter().for_each(|part| text.push_str(part));
        text.push_str(include_str!("../collect.cu"));
        text.push_str(include_str!("../learn.cu"));
        Ok(text)
    }
}
