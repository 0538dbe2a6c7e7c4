//! Networks held to PyTorch's numbers, which the scripts in `golden_nn/` write.

mod dense;
mod image;
mod sequence;
#[path = "../torch/mod.rs"]
mod torch;
mod training;
