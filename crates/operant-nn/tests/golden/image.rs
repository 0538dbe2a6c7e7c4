//! Layers on images against PyTorch, with its parameters: outputs, gradients, running statistics.

use crate::torch::Golden;
use operant_nn::ops::{Conv2d, NormOptions};
use operant_nn::{Act, Feed, Gradients, Graph, Node, Options, Plan};

const TOLERANCE: f64 = 2e-5;

#[test]
fn convolutions() {
    let golden = Golden::open("image.safetensors");
    let cases = [
        ("conv", Conv2d::new(5, 3).padding(1)),
        ("conv_five", Conv2d::new(3, 5).padding(2)),
        ("conv_seven", Conv2d::new(3, 7).stride(3).padding(3)),
        ("conv_one", Conv2d::new(4, 1).without_bias()),
        ("conv_circular", Conv2d::new(4, 3).circular(1)),
        ("conv_circular_stride", Conv2d::new(4, 5).stride(2).circular(2)),
        ("conv_groups", Conv2d::new(9, 3).padding(1).groups(3)),
        ("conv_depthwise", Conv2d::new(20, 3).stride(2).padding(1).groups(20)),
        ("conv_even", Conv2d::new(3, 4).stride(2)),
    ];
    for (name, layer) in cases {
        golden.check(name, TOLERANCE, |g, x| Ok(vec![g.conv2d("layer", x[0], layer)?]));
    }
    golden.check("conv_relu", TOLERANCE, |g, x| {
        let y = g.conv2d("layer", x[0], Conv2d::new(18, 3).stride(2).padding(1))?;
        Ok(vec![g.relu(y)?])
    });
}

#[test]
fn pools_and_sizes() {
    let golden = Golden::open("image.safetensors");
    for (kernel, stride, padding) in [(2, 2, 0), (3, 2, 1)] {
        let name = |how: &str| format!("{how}_{kernel}{stride}{padding}");
        golden.check(&name("max_pool"), TOLERANCE, |g, x| Ok(vec![g.max_pool(x[0], kernel, stride, padding)?]));
        golden.check(&name("average_pool"), TOLERANCE, |g, x| Ok(vec![g.average_pool(x[0], kernel, stride, padding)?]));
        golden.check(&name("average_pool_inside"), TOLERANCE, |g, x| {
            Ok(vec![g.average_pool_inside(x[0], kernel, stride, padding)?])
        });
    }
    golden.check("global_average_pool", TOLERANCE, |g, x| Ok(vec![g.global_average_pool(x[0])?]));
    golden.check("global_max_pool", TOLERANCE, |g, x| Ok(vec![g.global_max_pool(x[0])?]));
    golden.check("upsample_nearest", TOLERANCE, |g, x| Ok(vec![g.upsample_nearest(x[0], 2)?]));
    golden.check("upsample_bilinear", TOLERANCE, |g, x| Ok(vec![g.upsample_bilinear(x[0], 3)?]));
    golden.check("squeeze_excite", TOLERANCE, |g, x| Ok(vec![g.squeeze_excite("layer", x[0], 3)?]));
}

#[test]
fn norms() {
    let golden = Golden::open("image.safetensors");
    golden.check("layer_norm", TOLERANCE, |g, x| Ok(vec![g.layer_norm("layer", x[0])?]));
    golden.check("layer_norm_relu", TOLERANCE, |g, x| {
        let y = g.layer_norm("layer", x[0])?;
        Ok(vec![g.relu(y)?])
    });
    let options = NormOptions::default();
    golden.check("instance_norm", TOLERANCE, |g, x| Ok(vec![g.instance_norm("layer", x[0], options)?]));
    golden.check("instance_norm_relu", TOLERANCE, |g, x| {
        let y = g.instance_norm("layer", x[0], NormOptions { affine: false, ..options })?;
        Ok(vec![g.relu(y)?])
    });
    golden.check("group_norm", TOLERANCE, |g, x| Ok(vec![g.group_norm("layer", x[0], 2, options)?]));
    golden.check("group_norm_gelu", TOLERANCE, |g, x| {
        Ok(vec![g.group_norm("layer", x[0], 3, NormOptions { act: Act::Gelu, ..options })?])
    });
    for name in ["batch_norm", "batch_norm_eval", "batch_norm_features"] {
        golden.check(name, TOLERANCE, |g, x| Ok(vec![g.batch_norm("layer", x[0])?]));
    }
    golden.check("batch_norm_relu", TOLERANCE, |g, x| {
        let y = g.batch_norm("layer", x[0])?;
        Ok(vec![g.relu(y)?])
    });
}

#[test]
fn running_statistics() {
    let golden = Golden::open("image.safetensors");
    let tensor = |name: &str| golden.get(&format!("batch_norm/{name}")).unwrap();
    let (shape, values) = tensor("x0");
    let mut g = Graph::new();
    let x: Node = g.input("x", &shape[1..]);
    let y = g.batch_norm("layer", x).unwrap();
    let loss = g.sum(y, 9).unwrap();
    let mut params = g.params(0).unwrap();
    for name in ["layer.weight", "layer.bias", "layer.running_mean", "layer.running_var"] {
        params.set(name, &tensor(&format!("p.{name}")).1).unwrap();
    }
    let mut plan = Plan::training(&g, loss, shape[0], &Options::default()).unwrap();
    plan.train(&params, shape[0], &[Feed::Real(&values)], 1.0, Gradients::Replace);
    plan.update_buffers(&mut params);
    for name in ["layer.running_mean", "layer.running_var"] {
        crate::torch::close(name, params.get(name).unwrap(), &tensor(&format!("after.{name}")).1, 1.0, TOLERANCE);
    }
}

#[test]
fn no_case_is_forgotten() {
    Golden::open("image.safetensors").has_tests(&[convolutions, pools_and_sizes, norms, running_statistics]);
}
