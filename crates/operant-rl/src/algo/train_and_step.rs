//! One step of a network by a minibatch, as learners make it, and what they say if it went wrong.

use super::{Phase, Report};
use operant_nn::{Feed, Gradients, Optimizer, Outcome, Params, Plan, StepReport};

/// Trains on rows and steps at a learning rate, with gradients of a loss that was multiplied by a scale. While times are noted, one
/// after the other, so that profiles tell them apart: the same bits.
pub fn train_and_step(
    plan: &mut Plan,
    (params, optimizer): (&mut Params, &mut Optimizer),
    (rows, feeds): (usize, &[Feed]),
    (learning_rate, loss_scale): (f32, f32),
    report: &mut Report,
) -> (Outcome, StepReport) {
    if report.spans.begin().is_none() {
        return plan.learn(params, rows, feeds, optimizer, learning_rate, loss_scale);
    }
    let outcome = plan.train(params, rows, feeds, loss_scale, Gradients::Replace);
    let begun = report.spans.begin();
    let step = optimizer.step_scaled(params, plan.gradients(), learning_rate, loss_scale);
    report.spans.end(Phase::Optimize as usize, begun);
    (outcome, step)
}

/// The op that first made a number that is not finite, as the end of a message; nothing if none does when run again.
pub fn first_bad_op(plan: &mut Plan, params: &Params, rows: usize, feeds: &[Feed]) -> String {
    plan.first_non_finite(params, rows, feeds).map_or(String::new(), |name| format!(", first in \"{name}\""))
}
