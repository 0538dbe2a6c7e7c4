//! Both kinds of kernels against sums in f64.

use super::{Halves, SPREAD, Strided};
use operant_lanes::Backend;

fn numbers(count: usize, step: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * step + i / 13 * 7) % 251) as f32 / 125.0 - 1.0).collect()
}

/// Sizes of a convolution of one image under 3×3 with a border of one pixel.
#[derive(Clone, Copy)]
struct Case {
    out: [usize; 2],
    channels: usize,
    outputs: usize,
    stride: usize,
}

impl Case {
    fn size(&self) -> [usize; 2] {
        self.out.map(|pixels| pixels * self.stride)
    }

    /// Calls with places in the image, in PyTorch's weights and in the results, of every product.
    fn each(&self, mut call: impl FnMut(usize, usize, usize)) {
        let ([height, width], [rows, pixels]) = (self.size(), self.out);
        for (row, pixel, ky, kx) in (0..rows * pixels * 9).map(|i| (i / 9 / pixels, i / 9 % pixels, i % 9 / 3, i % 3)) {
            let (y, x) = (row * self.stride + ky, pixel * self.stride + kx);
            if y == 0 || x == 0 || y > height || x > width {
                continue;
            }
            for (o, c) in (0..self.outputs * self.channels).map(|i| (i / self.channels, i % self.channels)) {
                let image = ((y - 1) * width + x - 1) * self.channels + c;
                call(image, (o * self.channels + c) * 9 + ky * 3 + kx, (row * pixels + pixel) * self.outputs + o);
            }
        }
    }
}

fn near(what: &str, got: &[f32], wanted: &[f64]) {
    let scale = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((f64::from(got) - wanted).abs() <= 4e-6 * scale, "{what}[{i}] is {got}, wanted {wanted}");
    }
}

/// Results, gradients of image, weights and bias, with and without the activation.
fn wanted(case: Case, x: &[f32], weight: &[f32], bias: &[f32], dy: &[f32], relu: bool) -> [Vec<f64>; 4] {
    let wide = |x: f32| f64::from(x);
    let mut y: Vec<f64> = (0..dy.len()).map(|i| wide(bias[i % case.outputs])).collect();
    case.each(|image, factor, result| y[result] += wide(x[image]) * wide(weight[factor]));
    let dz: Vec<f64> = y.iter().zip(dy).map(|(y, dy)| if relu && *y <= 0.0 { 0.0 } else { wide(*dy) }).collect();
    y.iter_mut().filter(|y| relu && **y < 0.0).for_each(|y| *y = 0.0);
    let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; weight.len()], vec![0.0; case.outputs]);
    case.each(|image, factor, result| {
        dx[image] += dz[result] * wide(weight[factor]);
        dw[factor] += dz[result] * wide(x[image]);
    });
    dz.iter().enumerate().for_each(|(i, d)| db[i % case.outputs] += d);
    [y, dx, dw, db]
}

#[test]
fn halves_are_convolutions() {
    for (height, width, relu) in [(2, 16, false), (6, 32, true), (20, 16, true)] {
        let Some(kernel) = Halves::new(Backend::fast(), [height, width], 3, 8) else { return };
        let case = Case { out: [height, width], channels: 3, outputs: 8, stride: 1 };
        let (x, weight, bias) = (numbers(height * width * 3, 37), numbers(216, 53), numbers(8, 71));
        let dy = numbers(height * width * 8, 91);
        let [y, _, dw, db] = wanted(case, &x, &weight, &bias, &dy, relu);
        let (mut staged, mut spread) = (vec![9.0; kernel.staged_len()], vec![9.0; SPREAD]);
        let mut got = vec![9.0; y.len()];
        Halves::spread(&weight, &bias, &mut spread);
        kernel.stage(&x, &mut staged);
        kernel.forward(&staged, &spread, relu, &mut got);
        near("result", &got, &y);
        let (mut sums, mut beside) = (vec![0.0; SPREAD], vec![9.0; kernel.beside_len()]);
        kernel.weight(&staged, relu.then_some(&got[..]), &dy, &mut beside, &mut sums);
        let (mut got, mut got_bias) = (vec![0.0; 216], vec![0.0; 8]);
        Halves::gather(&sums, &mut got, &mut got_bias);
        near("gradient of weights", &got, &dw);
        near("gradient of the bias", &got_bias, &db);
    }
}

#[test]
fn strided_ones_are_convolutions() {
    for (out, channels, outputs, relu) in [
        ([1, 8], 8, 16, false),
        ([9, 16], 8, 16, true),
        ([3, 8], 8, 32, true),
        ([2, 24], 16, 16, true),
        ([10, 8], 16, 32, true),
    ] {
        let Some(kernel) = Strided::new(Backend::fast(), out, channels, outputs) else { return };
        let case = Case { out, channels, outputs, stride: 2 };
        let x = numbers(4 * out[0] * out[1] * channels, 37);
        let (weight, bias) = (numbers(9 * channels * outputs, 53), numbers(outputs, 71));
        let dy = numbers(out[0] * out[1] * outputs, 91);
        let [y, dx, dw, db] = wanted(case, &x, &weight, &bias, &dy, relu);
        // As products pack them: `[tap, channel, output]`, and by kinds of pixels with channels in registers.
        let place = |o: usize, c: usize, tap: usize| weight[(o * channels + c) * 9 + tap];
        let packed: Vec<f32> =
            (0..weight.len()).map(|i| place(i % outputs, i / outputs % channels, i / outputs / channels)).collect();
        let turned = [&[8, 6, 2, 0][..], &[7, 1], &[5, 3], &[4]].map(|taps| -> Vec<f32> {
            let number = |i: usize| {
                let (tap, o, lane) = (taps[i / 16 / outputs], i / 16 % outputs, i % 16);
                match channels {
                    8 if o + lane % 2 < outputs => place(o + lane % 2, lane / 2, tap),
                    8 => 0.0,
                    _ => place(o, lane, tap),
                }
            };
            (0..taps.len() * outputs * 16).map(number).collect()
        });
        let mut got = vec![9.0; y.len()];
        kernel.forward(&x, &packed, &bias, relu, &mut got);
        near("result", &got, &y);
        let (mut dz, mut sums) = (vec![0.0; kernel.bordered_len()], vec![0.0; Strided::BIAS]);
        kernel.border(relu.then_some(&got[..]), &dy, &mut dz, &mut sums);
        let mut got = vec![0.0; outputs];
        kernel.gather_bias(&sums, &mut got);
        near("gradient of the bias", &got, &db);
        let mut got = vec![9.0; x.len()];
        kernel.image(&dz, [&turned[0], &turned[1], &turned[2], &turned[3]], &mut got);
        near("gradient of the image", &got, &dx);
        let (mut sums, mut got) = (vec![0.0; weight.len()], vec![0.0; weight.len()]);
        kernel.weight(&x, &dz, &mut sums);
        kernel.gather(&sums, &mut got);
        near("gradient of weights", &got, &dw);
    }
}
