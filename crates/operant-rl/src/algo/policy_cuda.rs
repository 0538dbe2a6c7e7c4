//! A policy's networks on a GPU, for those who keep observations on the host: rows go there and logits come back in every step.

use super::policy::{ActionsMut, Head, Policy};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, Gpu};
use operant_lanes::Backend;
use operant_nn::cuda::{Layout, Mlp, Pass, Workspace};
use operant_nn::dist::{DiagGaussian, Draws, Factored};
use operant_nn::nets::Architecture;
use operant_nn::{Params, Precision};
use std::sync::Arc;

/// What [`Actor`](super::Actor) is on the CPU, for policies of linear layers.
#[derive(Debug)]
pub struct GpuActor {
    mlp: Mlp,
    workspace: Workspace,
    pass: Pass,
    rows: usize,
    /// Numbers of a row of logits.
    width: usize,
    obs: Buffer<f32>,
    logits: Buffer<f32>,
    fetched: Vec<f32>,
    head: Head,
    log_std: Vec<f32>,
    backend: Backend,
}

impl GpuActor {
    /// For `rows` observations at once, with products in f32, or which op of the network has no kernel.
    pub fn new(gpu: &Arc<Gpu>, policy: &Policy, rows: usize) -> Result<Self> {
        let unserved = |op: &str| {
            Err(Error::Invalid(format!(
                "op {op} of this policy's network has no kernel for a GPU; play it with --device cpu"
            )))
        };
        let Architecture::ActorCritic { actions, activation, continuous, memory, image, .. } = &policy.architecture
        else {
            return unserved("of a network that values actions");
        };
        if memory.is_some() {
            return unserved("recurrent");
        }
        if image.is_some() {
            return unserved("conv2d");
        }
        let params: &Params = &policy.params;
        let layout = Layout::new(params, &["actor", "critic"], if *continuous { &["log_std"] } else { &[] })?;
        let mlp = Mlp::new(gpu, layout, *activation, Precision::F32)?;
        let zeros = vec![0.0; params.len()];
        mlp.send(params.values(), [&zeros, &zeros])?;
        let lower = "--episodes";
        Ok(Self {
            workspace: mlp.workspace(rows, false, lower)?,
            pass: mlp.pass(rows, false)?,
            obs: Buffer::new(gpu, rows * policy.architecture.inputs(), "observations", lower)?,
            logits: Buffer::new(gpu, rows * actions, "logits", lower)?,
            fetched: vec![0.0; rows * actions],
            mlp,
            rows,
            width: *actions,
            head: policy.head.clone(),
            log_std: params.get("log_std").map(<[f32]>::to_vec).unwrap_or_default(),
            backend: Backend::fast(),
        })
    }

    /// Runs the networks on dense rows.
    pub fn forward(&mut self, obs: &[f32]) -> Result<()> {
        self.obs.upload(obs)?;
        self.mlp.encode(&self.workspace, self.obs.pointer(), self.rows)?;
        self.mlp.forward(&self.workspace, &self.pass, self.workspace.input())?;
        self.mlp.outputs(&self.workspace, &self.pass, 0, self.width, self.logits.pointer())?;
        self.logits.download(0, &mut self.fetched)
    }

    /// Draws actions of the last run's rows, or takes the most probable without `draws`.
    pub fn act(
        &self,
        legal: Option<&[u8]>,
        draws: Option<Draws>,
        actions: ActionsMut<'_>,
        log_prob: &mut [f32],
    ) -> Result<()> {
        match (&self.head, actions) {
            (Head::Choices(heads), ActionsMut::Choices(actions)) => {
                let choices = Factored::checked(&self.fetched, heads, legal, self.backend);
                match draws {
                    Some(draws) => choices.sample(draws, actions, log_prob),
                    None => choices.mode(actions),
                }
            }
            (Head::Gaussian(dims), ActionsMut::Numbers(actions)) => {
                let numbers = DiagGaussian::new(&self.fetched, &self.log_std, *dims, self.backend)?;
                match draws {
                    Some(draws) => numbers.sample(draws, actions, log_prob),
                    None => numbers.mode(actions),
                }
            }
            _ => unreachable!("actions are of the head's kind"),
        }
        Ok(())
    }
}
