//! Which rule an optimiser follows, with its constants. They are f64 because 1 − β₂ of an f32 would be off by 1e-5.

use operant_base::{Error, Result};

/// A rule, with PyTorch's meaning of every constant. Weight decay reaches only tensors whose spec says `decay`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// `torch.optim.SGD`; weight decay is added to the gradient.
    Sgd {
        /// What stays of the running sum of gradients; 0 for none.
        momentum: f64,
        /// Look ahead by one step of momentum.
        nesterov: bool,
        /// Factor of the weights that is added to the gradient.
        weight_decay: f64,
    },
    /// `torch.optim.Adam` (Kingma & Ba, 2014).
    Adam {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Added to the root of the latter, after bias correction.
        eps: f64,
    },
    /// `torch.optim.AdamW` (Loshchilov & Hutter, 2017): weights shrink apart from the gradient.
    AdamW {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Added to the root of the latter, after bias correction.
        eps: f64,
        /// Weights shrink by this times the learning rate.
        weight_decay: f64,
    },
    /// `torch.optim.Muon` with Nesterov momentum (Jordan et al., 2024) for tensors that decay, as `[shape[0], rest]` matrices;
    /// AdamW for the others: biases, scales, and embeddings or heads whose spec was told not to decay.
    Muon {
        /// Decay of the mean of gradients.
        momentum: f64,
        /// Weights shrink by this times the learning rate.
        weight_decay: f64,
        /// How the step depends on the matrix's shape.
        scale: MuonScale,
        /// AdamW's, for what is not a matrix.
        beta1: f64,
        /// AdamW's, for what is not a matrix.
        beta2: f64,
        /// AdamW's, for what is not a matrix.
        eps: f64,
    },
}

/// The learning rate of an `[a, b]` matrix under Muon, as a multiple of that given: `adjust_lr_fn` of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MuonScale {
    /// √max(1, a/b): Jordan's; wants a learning rate about 0.02, too large for AdamW's share.
    Original,
    /// 0.2 · √max(a, b): steps as large as AdamW's, so that one learning rate serves both (Liu et al., 2025).
    #[default]
    MatchAdamW,
}

impl MuonScale {
    pub(super) fn factor(self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns as f64);
        match self {
            Self::Original => (rows / columns).max(1.0).sqrt(),
            Self::MatchAdamW => 0.2 * rows.max(columns).sqrt(),
        }
    }
}

impl Default for Method {
    fn default() -> Self {
        Self::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

impl Method {
    /// Plain gradient descent.
    pub const SGD: Self = Self::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    /// AdamW with PyTorch's constants.
    pub const ADAMW: Self = Self::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    /// Muon with PyTorch's constants, one learning rate for matrices and the rest.
    pub const MUON: Self = Self::Muon {
        momentum: 0.95,
        weight_decay: 0.1,
        scale: MuonScale::MatchAdamW,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
    };

    /// Whether weights shrink by themselves.
    pub(super) fn decays(&self) -> bool {
        match *self {
            Self::Adam { .. } => false,
            Self::Sgd { weight_decay, .. } | Self::AdamW { weight_decay, .. } | Self::Muon { weight_decay, .. } => {
                weight_decay != 0.0
            }
        }
    }

    /// Whether all constants lie where the rule is defined.
    pub(super) fn check(&self) -> Result<()> {
        let fraction = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) { Ok(()) } else { Err(outside(name, value, "from 0 to below 1")) }
        };
        let not_negative = |name: &str, value: f64| {
            if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(outside(name, value, "0 or more")) }
        };
        // With eps = 0 a weight that never had a gradient, and the padding, would become 0/0.
        let positive = |name: &str, value: f64| {
            if value > 0.0 && value.is_finite() { Ok(()) } else { Err(outside(name, value, "more than 0")) }
        };
        match *self {
            Self::Sgd { momentum, nesterov, weight_decay } => {
                fraction("momentum", momentum)?;
                not_negative("weight_decay", weight_decay)?;
                if nesterov && momentum == 0.0 {
                    return Err(outside("momentum", momentum, "more than 0 with nesterov"));
                }
                Ok(())
            }
            Self::Adam { beta1, beta2, eps } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                positive("eps", eps)
            }
            Self::AdamW { beta1, beta2, eps, weight_decay } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                not_negative("weight_decay", weight_decay)?;
                positive("eps", eps)
            }
            Self::Muon { momentum, weight_decay, beta1, beta2, eps, .. } => {
                fraction("momentum", momentum)?;
                not_negative("weight_decay", weight_decay)?;
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                positive("eps", eps)
            }
        }
    }
}

fn outside(name: &str, got: f64, wanted: &str) -> Error {
    Error::Invalid(format!("optimiser's {name} is {got}, wanted {wanted}; change it in the method"))
}
