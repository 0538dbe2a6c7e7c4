//! The networks in candle.

use crate::{Call, Case, LEARNING_RATE, Pass};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN};
use candle_nn::{
    AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss, lstm,
};
use std::collections::HashMap;

pub(crate) fn build(case: &Case, pass: Pass) -> std::result::Result<Call, String> {
    let call = match case.net.as_str() {
        "mlp" => call::<Mlp>(case, pass),
        "dueling" => call::<Dueling>(case, pass),
        "resnet" => call::<ResNet>(case, pass),
        "conv" => call::<Conv>(case, pass),
        "lstm" => call::<Lstm>(case, pass),
        "field" => return Err("candle has no circular padding".into()),
        "attention" => return Err("candle has no multi-head attention layer".into()),
        net => return Err(format!("no network \"{net}\"")),
    };
    call.map_err(|error| error.to_string())
}

/// A network, its data and its loss.
trait Net: Sized + 'static {
    fn new(vars: VarBuilder) -> Result<Self>;
    /// Inputs, and targets of the loss.
    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)>;
    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>>;
    fn loss(outputs: &[Tensor], targets: &[Tensor]) -> Result<Tensor> {
        let mut total = loss::mse(&outputs[0], &targets[0])?;
        for (output, target) in outputs.iter().zip(targets).skip(1) {
            total = (total + loss::mse(output, target)?)?;
        }
        Ok(total)
    }
}

fn call<N: Net>(case: &Case, pass: Pass) -> Result<Call> {
    let dtype = if case.bf16 { DType::BF16 } else { DType::F32 };
    let cast = |x: Tensor| if x.dtype() == DType::F32 { x.to_dtype(dtype) } else { Ok(x) };
    let (x, targets) = N::data(case.batch)?;
    let x = cast(x)?;
    let targets = targets.into_iter().map(cast).collect::<Result<Vec<_>>>()?;
    let vars = VarMap::new();
    let net = N::new(VarBuilder::from_varmap(&vars, dtype, &Device::Cpu))?;
    let said = |error: candle_core::Error| error.to_string();
    match pass {
        Pass::Forward => {
            // Plain tensors in place of variables: candle records no graph for them.
            let vars = vars.data().lock().expect("no thread panicked");
            let plain: HashMap<String, Tensor> = vars.iter().map(|(name, var)| (name.clone(), var.detach())).collect();
            let net = N::new(VarBuilder::from_tensors(plain, dtype, &Device::Cpu))?;
            Ok(Box::new(move || net.forward(&x).map(drop).map_err(said)))
        }
        Pass::Train => {
            // AdamW without decay is Adam.
            let adam = ParamsAdamW { lr: LEARNING_RATE, weight_decay: 0.0, ..ParamsAdamW::default() };
            let mut optimizer = AdamW::new(vars.all_vars(), adam)?;
            let mut step = move || optimizer.backward_step(&N::loss(&net.forward(&x)?, &targets)?);
            Ok(Box::new(move || step().map_err(said)))
        }
    }
}

fn normal(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu)
}

/// `batch` classes below `below`.
fn classes(batch: usize, below: u32) -> Result<Tensor> {
    Tensor::from_vec((0..batch as u32).map(|i| i * 7 % below).collect(), batch, &Device::Cpu)
}

struct Mlp {
    actor: [Linear; 3],
    critic: [Linear; 3],
}

impl Mlp {
    fn branch(layers: &[Linear; 3], x: &Tensor) -> Result<Tensor> {
        layers[2].forward(&layers[1].forward(&layers[0].forward(x)?.tanh()?)?.tanh()?)
    }
}

impl Net for Mlp {
    fn new(vars: VarBuilder) -> Result<Self> {
        let branch = |name: &str, outputs| -> Result<[Linear; 3]> {
            let vars = vars.pp(name);
            Ok([linear(4, 64, vars.pp("0"))?, linear(64, 64, vars.pp("2"))?, linear(64, outputs, vars.pp("4"))?])
        };
        Ok(Self { actor: branch("actor", 2)?, critic: branch("critic", 1)? })
    }

    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)> {
        Ok((normal(&[batch, 4])?, vec![normal(&[batch, 2])?, normal(&[batch, 1])?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        Ok(vec![Self::branch(&self.actor, x)?, Self::branch(&self.critic, x)?])
    }
}

struct Dueling {
    trunk: [Linear; 2],
    value: [Linear; 2],
    advantage: [Linear; 2],
}

impl Net for Dueling {
    fn new(vars: VarBuilder) -> Result<Self> {
        let pair = |name: &str, sizes: [usize; 3]| -> Result<[Linear; 2]> {
            let vars = vars.pp(name);
            Ok([linear(sizes[0], sizes[1], vars.pp("0"))?, linear(sizes[1], sizes[2], vars.pp("2"))?])
        };
        Ok(Self {
            trunk: pair("trunk", [144, 256, 128])?,
            value: pair("value", [128, 64, 1])?,
            advantage: pair("advantage", [128, 64, 12])?,
        })
    }

    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)> {
        Ok((normal(&[batch, 144])?, vec![classes(batch, 12)?.unsqueeze(1)?, normal(&[batch, 1])?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let pair = |layers: &[Linear; 2], x: &Tensor| layers[1].forward(&layers[0].forward(x)?.relu()?);
        let h = pair(&self.trunk, x)?.relu()?;
        let advantage = pair(&self.advantage, &h)?;
        let centred = advantage.broadcast_sub(&advantage.mean_keepdim(1)?)?;
        Ok(vec![centred.broadcast_add(&pair(&self.value, &h)?)?])
    }

    fn loss(outputs: &[Tensor], targets: &[Tensor]) -> Result<Tensor> {
        loss::huber(&outputs[0].gather(&targets[0], 1)?, &targets[1], 1.0)
    }
}

struct ResNet {
    first: Linear,
    blocks: Vec<[Linear; 2]>,
    policy: Linear,
    value: [Linear; 2],
}

impl Net for ResNet {
    fn new(vars: VarBuilder) -> Result<Self> {
        let block = |i: usize| -> Result<[Linear; 2]> {
            let vars = vars.pp(format!("block.{i}"));
            Ok([linear(128, 128, vars.pp("0"))?, linear(128, 128, vars.pp("1"))?])
        };
        Ok(Self {
            first: linear(198, 128, vars.pp("first"))?,
            blocks: (0..3).map(block).collect::<Result<_>>()?,
            policy: linear(128, 1156, vars.pp("policy"))?,
            value: [linear(128, 64, vars.pp("value.0"))?, linear(64, 6, vars.pp("value.2"))?],
        })
    }

    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)> {
        Ok((normal(&[batch, 198])?, vec![normal(&[batch, 1156])?, normal(&[batch, 6])?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let mut x = self.first.forward(x)?.relu()?;
        for [first, second] in &self.blocks {
            x = (&x + second.forward(&first.forward(&x)?.relu()?)?)?.relu()?;
        }
        let value = self.value[1].forward(&self.value[0].forward(&x)?.relu()?)?;
        Ok(vec![self.policy.forward(&x)?, value])
    }
}

struct Conv {
    convs: [Conv2d; 3],
    head: Linear,
}

impl Net for Conv {
    fn new(vars: VarBuilder) -> Result<Self> {
        let conv = |from, to, stride| {
            conv2d(from, to, 3, Conv2dConfig { padding: 1, stride, ..Conv2dConfig::default() }, vars.pp(to.to_string()))
        };
        Ok(Self { convs: [conv(3, 8, 1)?, conv(8, 16, 2)?, conv(16, 32, 2)?], head: linear(32, 10, vars.pp("head"))? })
    }

    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)> {
        Ok((normal(&[batch, 3, 32, 32])?, vec![classes(batch, 10)?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let mut x = x.clone();
        for conv in &self.convs {
            x = conv.forward(&x)?.relu()?;
        }
        Ok(vec![self.head.forward(&x.flatten_from(2)?.mean(2)?)?])
    }

    fn loss(outputs: &[Tensor], targets: &[Tensor]) -> Result<Tensor> {
        loss::cross_entropy(&outputs[0], &targets[0])
    }
}

const LSTM_STEPS: usize = 64;

struct Lstm(LSTM);

impl Net for Lstm {
    fn new(vars: VarBuilder) -> Result<Self> {
        Ok(Self(lstm(128, 128, LSTMConfig::default(), vars)?))
    }

    fn data(batch: usize) -> Result<(Tensor, Vec<Tensor>)> {
        Ok((normal(&[batch, LSTM_STEPS, 128])?, vec![normal(&[batch, LSTM_STEPS, 128])?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        Ok(vec![self.0.states_to_tensor(&self.0.seq(x)?)?])
    }
}
