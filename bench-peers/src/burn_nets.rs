//! The networks in burn.

use crate::{Call, Case, LEARNING_RATE, Pass};
use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLossConfig, HuberLossConfig, MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::{relu, tanh};
use burn::tensor::{Device, Distribution, FloatDType, Int, Tensor};
use std::hint::black_box;

pub(crate) fn flex(case: &Case, pass: Pass) -> Result<Call, String> {
    build(Device::flex(), case, pass)
}

// burn deprecates it in favour of flex; whichever of the two is faster is what burn offers on a CPU.
#[allow(deprecated)]
pub(crate) fn ndarray(case: &Case, pass: Pass) -> Result<Call, String> {
    build(Device::ndarray(), case, pass)
}

fn build(mut device: Device, case: &Case, pass: Pass) -> Result<Call, String> {
    if case.net == "field" {
        return Err("burn has no circular padding".into());
    }
    // A device keeps the first precision it is given, and each pass asks anew.
    if case.bf16 && device.settings().float_dtype != FloatDType::BF16 {
        device.configure(FloatDType::BF16).map_err(|error| format!("bf16: {error:?}"))?;
    }
    Ok(match case.net.as_str() {
        "mlp" => call::<Mlp>(device, case, pass),
        "dueling" => call::<Dueling>(device, case, pass),
        "resnet" => call::<ResNet>(device, case, pass),
        "conv" => call::<Conv>(device, case, pass),
        "lstm" => call::<Recurrent>(device, case, pass),
        "attention" => call::<Attention>(device, case, pass),
        net => return Err(format!("no network \"{net}\"")),
    })
}

/// A network, its data and its loss.
trait Net: Module + 'static {
    /// Inputs and targets.
    type Data: 'static;
    type Output;
    fn new(device: &Device) -> Self;
    fn data(batch: usize, device: &Device) -> Self::Data;
    fn run(&self, data: &Self::Data) -> Self::Output;
    fn loss(output: Self::Output, data: &Self::Data) -> Tensor<1>;
}

fn call<N: Net>(device: Device, case: &Case, pass: Pass) -> Call {
    match pass {
        Pass::Forward => {
            let (net, data) = (N::new(&device), N::data(case.batch, &device));
            Box::new(move || {
                black_box(net.run(&data));
                Ok(())
            })
        }
        Pass::Train => {
            let device = device.autodiff();
            let data = N::data(case.batch, &device);
            let mut net = Some(N::new(&device));
            let mut optimizer = AdamConfig::new().with_epsilon(1e-8).init();
            Box::new(move || {
                let trained = net.take().expect("every call puts it back");
                let gradients = N::loss(trained.run(&data), &data).backward();
                let gradients = GradientsParams::from_grads(gradients, &trained);
                net = Some(optimizer.step(LEARNING_RATE, trained, gradients));
                Ok(())
            })
        }
    }
}

fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// `batch` classes below `below`.
fn classes(batch: usize, below: usize, device: &Device) -> Tensor<1, Int> {
    let classes: Vec<i32> = (0..batch).map(|i| (i * 7 % below) as i32).collect();
    Tensor::from_ints(classes.as_slice(), device)
}

fn squared_error<const D: usize>(output: Tensor<D>, target: &Tensor<D>) -> Tensor<1> {
    MseLoss::new().forward(output, target.clone(), Reduction::Mean)
}

fn linear(from: usize, to: usize, device: &Device) -> Linear {
    LinearConfig::new(from, to).init(device)
}

#[derive(Module, Debug)]
struct Mlp {
    actor: Vec<Linear>,
    critic: Vec<Linear>,
}

impl Net for Mlp {
    type Data = (Tensor<2>, Tensor<2>, Tensor<2>);
    type Output = (Tensor<2>, Tensor<2>);

    fn new(device: &Device) -> Self {
        let branch = |outputs| vec![linear(4, 64, device), linear(64, 64, device), linear(64, outputs, device)];
        Self { actor: branch(2), critic: branch(1) }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        (normal([batch, 4], device), normal([batch, 2], device), normal([batch, 1], device))
    }

    fn run(&self, data: &Self::Data) -> Self::Output {
        let branch = |layers: &[Linear]| {
            let h = tanh(layers[0].forward(data.0.clone()));
            layers[2].forward(tanh(layers[1].forward(h)))
        };
        (branch(&self.actor), branch(&self.critic))
    }

    fn loss(output: Self::Output, data: &Self::Data) -> Tensor<1> {
        squared_error(output.0, &data.1) + squared_error(output.1, &data.2)
    }
}

#[derive(Module, Debug)]
struct Dueling {
    trunk: Vec<Linear>,
    value: Vec<Linear>,
    advantage: Vec<Linear>,
}

/// Two layers with a ReLU between them.
fn pair(layers: &[Linear], x: Tensor<2>) -> Tensor<2> {
    layers[1].forward(relu(layers[0].forward(x)))
}

impl Net for Dueling {
    type Data = (Tensor<2>, Tensor<2, Int>, Tensor<2>);
    type Output = Tensor<2>;

    fn new(device: &Device) -> Self {
        let pair = |a, b, c| vec![linear(a, b, device), linear(b, c, device)];
        Self { trunk: pair(144, 256, 128), value: pair(128, 64, 1), advantage: pair(128, 64, 12) }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        let actions = classes(batch, 12, device).reshape([batch, 1]);
        (normal([batch, 144], device), actions, normal([batch, 1], device))
    }

    fn run(&self, data: &Self::Data) -> Tensor<2> {
        let h = relu(pair(&self.trunk, data.0.clone()));
        let advantage = pair(&self.advantage, h.clone());
        pair(&self.value, h) + advantage.clone() - advantage.mean_dim(1)
    }

    fn loss(q: Tensor<2>, data: &Self::Data) -> Tensor<1> {
        HuberLossConfig::new(1.0).init().forward(q.gather(1, data.1.clone()), data.2.clone(), Reduction::Mean)
    }
}

#[derive(Module, Debug)]
struct ResNet {
    first: Linear,
    blocks: Vec<Vec<Linear>>,
    policy: Linear,
    value: Vec<Linear>,
}

impl Net for ResNet {
    type Data = (Tensor<2>, Tensor<2>, Tensor<2>);
    type Output = (Tensor<2>, Tensor<2>);

    fn new(device: &Device) -> Self {
        Self {
            first: linear(198, 128, device),
            blocks: (0..3).map(|_| vec![linear(128, 128, device), linear(128, 128, device)]).collect(),
            policy: linear(128, 1156, device),
            value: vec![linear(128, 64, device), linear(64, 6, device)],
        }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        (normal([batch, 198], device), normal([batch, 1156], device), normal([batch, 6], device))
    }

    fn run(&self, data: &Self::Data) -> Self::Output {
        let mut x = relu(self.first.forward(data.0.clone()));
        for block in &self.blocks {
            x = relu(x.clone() + pair(block, x));
        }
        (self.policy.forward(x.clone()), pair(&self.value, x))
    }

    fn loss(output: Self::Output, data: &Self::Data) -> Tensor<1> {
        squared_error(output.0, &data.1) + squared_error(output.1, &data.2)
    }
}

#[derive(Module, Debug)]
struct Conv {
    convs: Vec<Conv2d>,
    head: Linear,
}

impl Net for Conv {
    type Data = (Tensor<4>, Tensor<1, Int>);
    type Output = Tensor<2>;

    fn new(device: &Device) -> Self {
        let conv = |from, to, stride| {
            let config = Conv2dConfig::new([from, to], [3, 3]).with_stride([stride, stride]);
            config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        Self { convs: vec![conv(3, 8, 1), conv(8, 16, 2), conv(16, 32, 2)], head: linear(32, 10, device) }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        (normal([batch, 3, 32, 32], device), classes(batch, 10, device))
    }

    fn run(&self, data: &Self::Data) -> Tensor<2> {
        let x = self.convs.iter().fold(data.0.clone(), |x, conv| relu(conv.forward(x)));
        let [batch, channels, ..] = x.dims();
        self.head.forward(x.reshape([batch as i64, channels as i64, -1]).mean_dim(2).reshape([batch, channels]))
    }

    fn loss(logits: Tensor<2>, data: &Self::Data) -> Tensor<1> {
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, data.1.clone())
    }
}

#[derive(Module, Debug)]
struct Recurrent {
    lstm: Lstm,
}

impl Net for Recurrent {
    type Data = (Tensor<3>, Tensor<3>);
    type Output = Tensor<3>;

    fn new(device: &Device) -> Self {
        Self { lstm: LstmConfig::new(128, 128, true).init(device) }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        const STEPS: usize = 64;
        (normal([batch, STEPS, 128], device), normal([batch, STEPS, 128], device))
    }

    fn run(&self, data: &Self::Data) -> Tensor<3> {
        self.lstm.forward(data.0.clone(), None).0
    }

    fn loss(output: Tensor<3>, data: &Self::Data) -> Tensor<1> {
        squared_error(output, &data.1)
    }
}

#[derive(Module, Debug)]
struct Attention {
    attention: MultiHeadAttention,
}

impl Net for Attention {
    type Data = (Tensor<3>, Tensor<3>);
    type Output = Tensor<3>;

    fn new(device: &Device) -> Self {
        Self { attention: MultiHeadAttentionConfig::new(64, 4).with_dropout(0.0).init(device) }
    }

    fn data(batch: usize, device: &Device) -> Self::Data {
        const STEPS: usize = 32;
        (normal([batch, STEPS, 64], device), normal([batch, STEPS, 64], device))
    }

    fn run(&self, data: &Self::Data) -> Tensor<3> {
        self.attention.forward(MhaInput::self_attn(data.0.clone())).context
    }

    fn loss(output: Tensor<3>, data: &Self::Data) -> Tensor<1> {
        squared_error(output, &data.1)
    }
}
